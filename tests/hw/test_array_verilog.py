"""The emitted array, one Verilog module per column, in Verilator against golden.numerics."""

import json

import pytest

from hw.array import PEArray
from hw.formats import FORMATS
from hw.shared import emit_verilog
from verif import runner
from verif.technology import MODELS


@pytest.mark.parametrize(
    ("name", "rows", "columns", "technology"),
    [
        ("bf16", 12, 4, "generic"),
        ("bf16", 5, 3, "ecp5"),
        ("fp16", 3, 5, "generic"),
        ("int8", 9, 4, "generic"),
    ],
)
def test_emitted_array(name, rows, columns, technology, seed):
    text = emit_verilog(PEArray(FORMATS[name], rows, columns), name="array", technology=technology)
    build = runner.build({"array.v": text}, toplevel="array", files=MODELS[technology])
    job = {"format": name, "rows": rows, "columns": columns, "tiles": 40, "vectors": 100}
    result = runner.run(
        build, "verif.cocotb_array", seed=seed, extra_env={"ARRAY_JOB": json.dumps(job)}
    )
    print(f"seed {seed}, built in {build.seconds:.1f} s, ran in {result.seconds:.1f} s")
