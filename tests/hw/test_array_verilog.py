"""The emitted array, one Verilog module per column, in Verilator against golden.numerics."""

import json

import pytest

from hw.array import PEArray
from hw.formats import FORMATS
from hw.shared import emit_verilog
from verif import runner

#: What the instantiated ECP5 block does with operands and product registered.
MULT18X18D = """
module MULT18X18D({}, input CLK0, CE0, RST0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, {});
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
  parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
  reg signed [18:0] a, b;
  reg signed [37:0] p;
  always @(posedge CLK0) begin
    a <= {{SIGNEDA & A17, {}}};
    b <= {{SIGNEDB & B17, {}}};
    p <= a * b;
  end
  assign {{{}}} = p[35:0];
  initial if (REG_INPUTA_CLK != "CLK0" || REG_INPUTB_CLK != "CLK0" || REG_OUTPUT_CLK != "CLK0")
    $fatal(1, "registers expected");
endmodule
""".format(
    ", ".join(f"input {side}{bit}" for side in "AB" for bit in range(18)),
    ", ".join(f"output P{bit}" for bit in range(36)),
    ", ".join(f"A{bit}" for bit in reversed(range(18))),
    ", ".join(f"B{bit}" for bit in reversed(range(18))),
    ", ".join(f"P{bit}" for bit in reversed(range(36))),
)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "technology"),
    [
        ("bf16", 12, 4, None),
        ("bf16", 5, 3, "ecp5"),
        ("fp16", 3, 5, None),
        ("int8", 9, 4, None),
    ],
)
def test_emitted_array(name, rows, columns, technology, seed):
    text = emit_verilog(PEArray(FORMATS[name], rows, columns), name="array", technology=technology)
    sources = {"array.v": text}
    if technology == "ecp5":
        sources["mult18x18d.v"] = MULT18X18D
    build = runner.build(sources, toplevel="array")
    job = {"format": name, "rows": rows, "columns": columns, "tiles": 40, "vectors": 100}
    result = runner.run(
        build, "verif.cocotb_array", seed=seed, extra_env={"ARRAY_JOB": json.dumps(job)}
    )
    print(f"seed {seed}, built in {build.seconds:.1f} s, ran in {result.seconds:.1f} s")
