"""Places of multiplier blocks: those of a column together, columns in order, each place once."""

import json

import pytest

from synth.devices import device_by_name
from synth.errors import ToolError
from synth.floorplan import multiplier_places, prepare
from synth.nextpnr import place_and_route
from synth.yosys import run_yosys

#: Three rows of seven places.
ROWS = [[f"{row}{x}" for x in range(7)] for row in "abc"]


def names(columns, rows, array="dut.core0.matrix.array."):
    return [f"{array}column{c}.pe{r}.multiplier" for c in range(columns) for r in range(rows)]


def test_columns_in_order():
    """Six columns of three: two a row, every other row backwards, the spare place between them."""
    found = multiplier_places([*names(6, 3), "dut.core0.post.lane0.multiplier"][::-1], ROWS)
    columns = [
        [found[f"dut.core0.matrix.array.column{c}.pe{r}.multiplier"] for r in range(3)]
        for c in range(6)
    ]
    assert columns == [
        ["a0", "a1", "a2"],
        ["a3", "a4", "a5"],
        ["b6", "b5", "b4"],
        ["b3", "b2", "b1"],
        ["c0", "c1", "c2"],
        ["c3", "c4", "c5"],
    ]
    assert len(found) == 18


def test_gaps_and_numbers():
    """Columns 2 and 10 are in the order of their numbers; what is free is between columns."""
    chosen = [name for name in names(11, 2) if "column2." in name or "column10." in name]
    found = multiplier_places(chosen[::-1], [list(range(9))])
    assert [found[name] for name in chosen] == [0, 1, 4, 5]


def test_two_arrays():
    both = names(3, 4, "dut.core0.matrix.array.") + names(3, 2, "dut.core1.matrix.array.")
    found = multiplier_places(both, [[*row, f"{row[0][0]}7"] for row in ROWS])
    assert len(set(found.values())) == len(both) == 18
    assert found["dut.core0.matrix.array.column0.pe0.multiplier"] == "a0"
    assert found["dut.core1.matrix.array.column0.pe0.multiplier"] == "b2"
    assert found["dut.core1.matrix.array.column2.pe1.multiplier"][0] == "c"


@pytest.mark.parametrize("columns", [7, 8])
def test_what_does_not_fit_whole_has_no_place(columns):
    assert len(multiplier_places(names(6, 3), ROWS)) == 18
    assert multiplier_places(names(columns, 3), ROWS) == {}


@pytest.mark.parametrize(("device", "rows"), [("25F", 1), ("45F", 2), ("85F", 3)])
def test_devices(device, rows):
    device = device_by_name(f"LFE5U-{device}")
    places = [place for row in device.multiplier_rows for place in row]
    assert len(device.multiplier_rows) == rows
    assert len(set(places)) == len(places) == device.available["MULT18X18D"]


def design(directory, columns, per_column):
    """A netlist of a named multiplier for each PE, for nextpnr, from Yosys."""
    total = columns * per_column
    text = ["module top(input clk, input d, output q);", f"wire [{total - 1}:0] p;"]
    text.append("reg [17:0] a; always @(posedge clk) a <= {a, d}; assign q = ^p;")
    operands = ", ".join(f".{port}{i}(a[{i}])" for port in "AB" for i in range(18))
    for i, name in enumerate(names(columns, per_column, "array.")):
        text.append(f"MULT18X18D \\{name} ({operands}, .CLK0(clk), .P35(p[{i}]));")
    (directory / "harness.v").write_text("\n".join([*text, "endmodule"]))
    run_yosys(
        ["read_verilog harness.v", "synth_ecp5 -top top -json harness.json"],
        name="harness",
        directory=directory,
    )
    return directory / "harness.json"


def test_nextpnr_has_these_places(tmp_path):
    """It refuses a place that it does not have."""
    pytest.importorskip("pyosys")
    device = device_by_name("LFE5U-25F")
    netlist = design(tmp_path, 5, 4)
    assert prepare(netlist, device) == 20
    cells = json.loads(netlist.read_text())["modules"]["top"]["cells"]
    assert cells["array.column4.pe3.multiplier"]["attributes"]["BEL"] == "X61/Y13/MULT18_1"
    routed = place_and_route("harness", device=device, seed=1, target_mhz=50, directory=tmp_path)
    assert routed["utilisation"]["MULT18X18D"]["used"] == 20
    assert routed["wire_length"] > 100
    assert routed["overused"][-1] == 0 < len(routed["overused"])


def test_nextpnr_reads_settings(tmp_path):
    """It refuses a number that is none."""
    pytest.importorskip("pyosys")
    device, netlist = device_by_name("LFE5U-25F"), design(tmp_path, 5, 4)
    prepare(netlist, device)
    routed = place_and_route("harness", device=device, seed=1, target_mhz=50, directory=tmp_path)
    assert routed["overused"][-1] == 0
    changed = json.loads(netlist.read_text())
    settings = changed["modules"]["top"]["settings"]
    assert settings == device.details.settings
    settings.update(dict.fromkeys(settings, "much"))
    netlist.write_text(json.dumps(changed))
    with pytest.raises(ToolError, match="nextpnr failed, seed 1"):
        place_and_route("harness", device=device, seed=1, target_mhz=50, directory=tmp_path)


def test_few_multipliers_are_left_to_the_placer(tmp_path):
    pytest.importorskip("pyosys")
    netlist = design(tmp_path, 5, 2)
    assert prepare(netlist, device_by_name("LFE5U-25F")) == 0
    cells = json.loads(netlist.read_text())["modules"]["top"]["cells"]
    assert not any("BEL" in cell["attributes"] for cell in cells.values())
