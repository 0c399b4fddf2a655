"""Matrix units against golden, bit for bit."""

import json

import pytest

from hw.config import make_config
from hw.shared import emit_verilog
from verif import runner
from verif.cocotb_support import CONFIG_VARIABLE
from verif.matmul_bench import MatmulBench


@pytest.mark.parametrize(
    ("operand_format", "rows", "columns"),
    [("bf16", 4, 4), ("bf16", 3, 5), ("int8", 5, 3), ("fp16", 2, 1)],
)
def test_random_commands(operand_format, rows, columns, seed):
    config = make_config(
        variant="baseline",
        preset="tiny",
        operand_format=operand_format,
        rows=rows,
        columns=columns,
        accumulator_depth=64,
        buffer_bank_depth=128,
        buffer_banks=2,
    )
    text = emit_verilog(MatmulBench(config), name="matmul_bench")
    result = runner.run(
        runner.build(text, toplevel="matmul_bench"),
        "verif.cocotb_matmul",
        seed=seed,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict())},
    )
    assert len(result.tests) == 2
