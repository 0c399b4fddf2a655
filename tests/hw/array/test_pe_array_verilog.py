"""The emitted array, one Verilog module per column, in Verilator against golden.

Covers: hw/array/pe_array.py, verif/blocks/array/cocotb_array.py, verif/sim/technology.py.
"""

import json

import pytest

from hw.array.pe_array import PEArray
from hw.formats import FORMATS
from hw.primitives.shared_module import emit_verilog
from verif.sim import runner
from verif.sim.technology import MODELS


@pytest.mark.parametrize(
    ("name", "rows", "columns", "technology", "lut_rows"),
    [
        pytest.param("bf16", 12, 4, "generic", 0, marks=pytest.mark.long),
        pytest.param("bf16", 5, 3, "ecp5", 2, marks=pytest.mark.long),
        pytest.param("fp16", 3, 5, "generic", 3, marks=pytest.mark.long),
        ("fp8_e4m3", 4, 2, "generic", 2),
        ("int8", 9, 4, "generic", 0),
    ],
)
def test_emitted_array(name, rows, columns, technology, lut_rows, seed):
    array = PEArray(FORMATS[name], rows, columns, lut_rows=lut_rows)
    text = emit_verilog(array, name="array", technology=technology)
    assert (f"pe_{name}" in text and "_lut(" in text) == bool(lut_rows)
    build = runner.build({"array.v": text}, toplevel="array", files=MODELS[technology])
    job = {"format": name, "rows": rows, "columns": columns, "tiles": 40, "vectors": 100}
    result = runner.run(
        build,
        "verif.blocks.array.cocotb_array",
        seed=seed,
        extra_env={"ARRAY_JOB": json.dumps(job)},
    )
    print(f"seed {seed}, built in {build.seconds:.1f} s, ran in {result.seconds:.1f} s")
