"""Matrix units against golden, bit for bit.

Covers: verif/blocks/engines/cocotb_matmul.py, verif/blocks/engines/matmul_bench.py,
verif/blocks/support.py.
"""

import json

import pytest

from hw.config import make_config
from hw.primitives.shared_module import emit_verilog
from verif.blocks.engines.matmul_bench import MatmulBench
from verif.blocks.support import CONFIG_VARIABLE
from verif.sim import runner


@pytest.mark.parametrize(
    ("operand_format", "rows", "columns"),
    [
        pytest.param("bf16", 4, 4, marks=pytest.mark.long),
        ("bf16", 3, 5),
        ("int8", 5, 3),
        pytest.param("fp16", 2, 1, marks=pytest.mark.long),
    ],
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
        "verif.blocks.engines.cocotb_matmul",
        seed=seed,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict())},
    )
    assert len(result.tests) == 2
