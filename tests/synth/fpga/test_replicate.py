"""Copies of flip-flops for every column: what they drive, and that the circuit stays the same."""

import json
import re

import pytest

from synth.common.errors import ToolError
from synth.common.yosys import run_yosys
from synth.fpga.replicate import replicate, split

COLUMNS, WIDTH = 3, 4
#: ``swap`` enables the registers of all columns and one outside; ``late`` drives as many
#: inputs, of look-up tables whose names are in no column.
DESIGN = f"""
module column(input clk, input swap, input x, input [{WIDTH - 1}:0] w, output [{WIDTH - 1}:0] q);
  reg [{WIDTH - 1}:0] active = 0;
  always @(posedge clk) if (swap) active <= w;
  assign q = active ^ {{{WIDTH}{{x}}}};
endmodule
module top(input clk, input go, input hold, input x, input [{COLUMNS * WIDTH - 1}:0] w,
           output [{COLUMNS * WIDTH - 1}:0] q, output reg seen = 0);
  reg swap = 0, late = 0;
  always @(posedge clk) begin
    if (!hold) swap <= go;
    late <= x;
    seen <= swap;
  end
  genvar i;
  generate for (i = 0; i < {COLUMNS}; i = i + 1) begin : array
    column column(.clk(clk), .swap(swap), .x(late), .w(w[{WIDTH} * i +: {WIDTH}]),
                  .q(q[{WIDTH} * i +: {WIDTH}]));
  end endgenerate
endmodule
"""


def column_of(name):
    match = re.match(r"array\[(\d+)\]", name)
    return match and int(match[1])


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("replicate")
    (path / "top.v").write_text(DESIGN)
    passes = ("read_verilog top.v", "synth_ecp5 -top top -json top.json")
    run_yosys(passes, name="top", directory=path)
    return path


def replicated(directory, **options):
    design = json.loads((directory / "top.json").read_text())
    top = design["modules"]["top"]
    before = len(top["cells"])
    options = {"flip_flop": "TRELLIS_FF", "column": column_of, "limit": 8} | options
    copies = replicate(top, **options)
    assert len(top["cells"]) == before + copies
    return copies, design


def enables(top):
    """Name of a flip-flop's driver of its clock enable -> columns of those flip-flops."""
    found = {}
    drivers = {c["connections"]["Q"][0]: n for n, c in top["cells"].items() if "FF" in c["type"]}
    for name, cell in top["cells"].items():
        bit = cell["connections"].get("CE", ["1"])[0]
        if bit in drivers:
            found.setdefault(drivers[bit], set()).add(column_of(name))
    return found


def compare(directory, design, name):
    """Let Yosys prove that outputs are equal for all inputs of the first eight cycles; raises
    ToolError where they are not."""
    gold = json.loads((directory / "top.json").read_text())["modules"]["top"]
    modules = {"gold": gold, "gate": design["modules"]["top"]}
    for module in modules.values():
        module["attributes"].pop("top", None)
    (directory / f"{name}.json").write_text(json.dumps({"creator": "test", "modules": modules}))
    passes = (
        "read_verilog -D IS_PREFIXED -overwrite +/ecp5/cells_sim.v",
        f"read_json {name}.json",
        "hierarchy",
        "proc",
        "miter -equiv -flatten gold gate miter",
        "hierarchy -top miter",
        "flatten",
        "opt_clean",
        "sat -seq 8 -set-init-zero -prove trigger 0 -verify miter",
    )
    run_yosys(passes, name=name, directory=directory)


def test_each_column_has_its_own(directory):
    copies, design = replicated(directory)
    found = enables(design["modules"]["top"])
    assert copies == COLUMNS
    assert sorted(map(sorted, found.values())) == [[n] for n in range(COLUMNS)]
    # What is outside stays with the original.
    cells = design["modules"]["top"]["cells"]
    outside, original = cells["seen_TRELLIS_FF_Q"], cells["swap_TRELLIS_FF_Q"]
    assert outside["connections"]["DI"] == original["connections"]["Q"]
    compare(directory, design, "equal")


def test_the_comparison_can_fail(directory):
    """A copy with another input."""
    _, design = replicated(directory)
    cells = design["modules"]["top"]["cells"]
    copy = next(cell for name, cell in cells.items() if name.endswith("_copy1"))
    copy["connections"]["DI"] = cells["late_TRELLIS_FF_Q"]["connections"]["DI"]
    with pytest.raises(ToolError, match="proof did fail"):
        compare(directory, design, "different")


@pytest.mark.parametrize(
    ("limit", "copies"), [(COLUMNS * WIDTH - 1, COLUMNS), (COLUMNS * WIDTH, 0)]
)
def test_limit(directory, limit, copies):
    """``swap`` has as many inputs in columns as there are registers."""
    assert replicated(directory, limit=limit)[0] == copies


def splitted(directory, limit=8, share=4):
    design = json.loads((directory / "top.json").read_text())
    outputs = {"TRELLIS_FF": "Q", "LUT4": "Z"}
    copies = split(design["modules"]["top"], outputs=outputs, limit=limit, share=share)
    return copies, design


def loads(top):
    """Name of a cell -> how many inputs its output drives."""
    nets = {}
    for cell in top["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                for bit in bits:
                    nets[bit] = nets.get(bit, 0) + 1
    outputs = {"TRELLIS_FF": "Q", "LUT4": "Z"}
    return {
        name: nets.get(cell["connections"][outputs[cell["type"]]][0], 0)
        for name, cell in top["cells"].items()
        if cell["type"] in outputs
    }


def test_nobody_drives_more(directory):
    """``swap`` drives 13 inputs and ``late`` 12, which become 4 and 3 nets."""
    _, whole = splitted(directory, limit=13)
    before = loads(whole["modules"]["top"])
    assert sorted(before.values())[-2:] == [COLUMNS * WIDTH, COLUMNS * WIDTH + 1]
    copies, design = splitted(directory)
    top = design["modules"]["top"]
    after = loads(top)
    assert copies == 3 + 2 == len(after) - len(before)
    assert max(after.values()) <= 4 and sum(after.values()) >= sum(before.values())
    # Each part has neighbours.
    columns = [seen - {None} for seen in enables(top).values()]
    assert all(len(seen) <= 2 for seen in columns)
    compare(directory, design, "split")


def test_a_part_of_something_else(directory):
    _, design = splitted(directory)
    cells = design["modules"]["top"]["cells"]
    part = next(c for n, c in cells.items() if "_part" in n and n.startswith("swap"))
    part["connections"]["DI"] = cells["late_TRELLIS_FF_Q"]["connections"]["DI"]
    with pytest.raises(ToolError, match="proof did fail"):
        compare(directory, design, "wrong_part")
