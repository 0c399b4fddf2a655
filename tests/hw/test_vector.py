"""hw.vector.VectorEngine against golden.vector_command, bit for bit."""

import json

import pytest

from hw.config import make_config
from hw.shared import emit_verilog
from hw.vector import VectorEngine
from verif import runner

#: Rows, columns, lanes: groups in a word 4, 2, 1; an odd number of them; several of 8 bits.
CASES = (
    ((12, 15, 3), "bf16"),
    ((8, 4, 4), "fp16"),
    ((4, 6, 2), "bf16"),
    ((4, 4, 4), "bf16"),
    ((5, 3, 1), "fp16"),
    ((8, 2, 2), "fp8_e4m3"),
    ((6, 4, 2), "fp8_e5m2"),
)


@pytest.mark.parametrize(
    ("size", "operand_format"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else "x".join(map(str, value)),
)
def test_engine(size, operand_format, seed):
    rows, columns, lanes = size
    fields = {
        "preset": "tiny",
        "variant": "baseline",
        "operand_format": operand_format,
        "rows": rows,
        "columns": columns,
        "post_lanes": lanes,
    }
    config = make_config(**fields)
    text = emit_verilog(VectorEngine(config, config.cores[0]), name="vector")
    design = runner.build(text, toplevel="vector")
    runner.run(
        design,
        "verif.cocotb_vector",
        seed=seed,
        extra_env={"VECTOR_CONFIG": json.dumps(fields), "VECTOR_COMMANDS": 40},
    )
