"""Places of multiplier blocks and block RAMs: what belongs together is close, each place once."""

import json

import pytest

from synth.common.errors import ToolError
from synth.common.yosys import run_yosys
from synth.fpga.devices import Site, device_by_name
from synth.fpga.floorplan import multiplier_places, prepare, ram_places
from synth.fpga.nextpnr import place_and_route

#: Three rows of seven places, twenty tiles apart.
SITES = [Site(x, y, f"{row}{x}") for y, row in ((0, "a"), (20, "b"), (40, "c")) for x in range(7)]
CORE = "dut.core0."


def names(columns, rows, array=f"{CORE}matrix.array."):
    return [f"{array}column{c}.pe{r}.multiplier" for c in range(columns) for r in range(rows)]


def rams(memory, banks, parts):
    return [f"{memory}bank{b}.mem.0.{part}" for b in range(banks) for part in range(parts)]


def test_columns_are_stripes():
    """Six columns of three PEs: a column is at one or two neighbouring x, its PE r in the device's
    row r; three of 21 places are free, one left of the array and two right of it."""
    found = multiplier_places(names(6, 3)[::-1], SITES)
    assert len(found) == 18
    for c in range(6):
        column = [found[f"{CORE}matrix.array.column{c}.pe{r}.multiplier"].name for r in range(3)]
        # The first place, a0, is free, hence each stripe starts in the second row ...
        assert sorted(column) == sorted([f"b{c}", f"c{c}", f"a{c + 1}"])
        # ... and the PEs are in order from top to bottom all the same.
        assert column == [f"a{c + 1}", f"b{c}", f"c{c}"]


def test_columns_are_in_the_order_of_their_numbers():
    chosen = [name for name in names(11, 3) if "column2." in name or "column10." in name]
    found = multiplier_places(chosen[::-1], SITES[:2] + SITES[7:9] + SITES[14:16])
    assert [found[name].x for name in chosen] == [0, 0, 0, 1, 1, 1]


def test_two_arrays_and_another_multiplier():
    """The second array is right of the first; what is neither's is between columns."""
    others = [f"{CORE}post.lane0.multiplier{i}" for i in range(3)]
    both = names(3, 4) + names(3, 2, "dut.core1.matrix.array.")
    found = multiplier_places([*both, *others], SITES)
    assert len(set(found.values())) == len(found) == 21
    assert sorted(site.x for site in found.values()) == sorted(site.x for site in SITES)
    assert max(found[name].x for name in both[:12]) <= min(found[name].x for name in both[12:])
    # Behind the second, fourth and sixth column, 8, 15 and 20 places from the left; the middle of
    # the lower edge is c3.
    assert [found[name].name for name in others] == ["c2", "c6", "a5"]


def test_no_more_names_than_places():
    assert len(multiplier_places(names(7, 3), SITES)) == 21
    with pytest.raises(ValueError, match="multipliers must be at most 21, not 24"):
        multiplier_places(names(8, 3), SITES)
    with pytest.raises(ValueError, match="block RAMs must be at most 21, not 22"):
        ram_places(rams("m.", 2, 11), SITES, {})


def test_bits_of_a_memory_are_spread_over_their_array():
    """Two banks of four block RAMs: those of the same bits are one above the other in the lowest
    two rows, from left to right; accumulators are in the row in the middle of the array."""
    array = [Site(x, y, "") for x in (0, 6) for y in (0, 40)]
    buffer = rams(f"{CORE}buffer.", 2, 4)
    accumulators = rams(f"{CORE}matrix.accumulators.", 2, 2)
    found = ram_places(buffer + accumulators, SITES, {CORE: array})
    assert len(set(found.values())) == len(found) == 12
    assert [found[name].name for name in accumulators] == ["b0", "b4", "b1", "b5"]
    for part in range(4):
        columns = {found[name].x for name in buffer if name.endswith(f".{part}")}
        assert max(columns) - min(columns) <= 1
    for bank in range(2):
        order = [found[name].x for name in buffer if f"bank{bank}" in name]
        assert order == sorted(order)
        assert order[-1] - order[0] >= 4
    assert {found[name].name[0] for name in buffer} == {"b", "c"}


def test_memories_of_unknown_form():
    found = ram_places(["fifo", "table.mem.0.0", "table.mem.1.0"], SITES, {})
    assert len(set(found.values())) == 3
    assert all(abs(site.x - 3) <= 1 for site in found.values())


@pytest.mark.parametrize(("device", "rows"), [("25F", (1, 2)), ("45F", (2, 3)), ("85F", (3, 4))])
def test_devices(device, rows):
    device = device_by_name(f"LFE5U-{device}")
    for sites, count, resource in zip(
        (device.multipliers, device.block_rams), rows, ("MULT18X18D", "DP16KD"), strict=True
    ):
        assert len({site.y for site in sites}) == count
        assert len({site.name for site in sites}) == len(sites) == device.available[resource]


def design(directory, columns, per_column, memories):
    """A netlist for nextpnr, from Yosys: a named multiplier for each PE, and block RAMs."""
    total = columns * per_column
    text = ["module top(input clk, input d, output q);", f"wire [{total - 1}:0] p;"]
    text.append("reg [17:0] a; always @(posedge clk) a <= {a, d};")
    operands = ", ".join(f".{port}{i}(a[{i}])" for port in "AB" for i in range(18))
    for i, name in enumerate(names(columns, per_column, "array.")):
        text.append(f"MULT18X18D \\{name} ({operands}, .CLK0(clk), .P35(p[{i}]));")
    for i in range(memories):
        memory = f"\\m{i}.mem "
        text.append(f"reg [17:0] {memory} [0:1023]; reg [17:0] r{i};")
        text.append(f"always @(posedge clk) r{i} <= {memory} [a[9:0]];")
        text.append(f"always @(posedge clk) if (a[0]) {memory} [a[17:8]] <= a;")
    sums = ["^p", *(f"^r{i}" for i in range(memories))]
    text.append(f"assign q = {' ^ '.join(sums)}; endmodule")
    (directory / "harness.v").write_text("\n".join(text))
    run_yosys(
        ["read_verilog harness.v", "synth_ecp5 -top top -json harness.json"],
        name="harness",
        directory=directory,
    )
    return directory / "harness.json"


@pytest.mark.parametrize(
    "name",
    [pytest.param(f"LFE5U-{size}F", marks=pytest.mark.long) for size in (25, 45, 85)],
)
def test_nextpnr_has_these_places(tmp_path, name):
    """All of them, each once: it refuses a place that it does not have, or that is taken."""
    pytest.importorskip("pyosys")
    device = device_by_name(name)
    multipliers, block_rams = device.available["MULT18X18D"], device.available["DP16KD"]
    netlist = design(tmp_path, multipliers // 4, 4, block_rams)
    assert prepare(netlist, device) == multipliers + block_rams
    cells = json.loads(netlist.read_text())["modules"]["top"]["cells"]
    kinds = {"MULT18X18D": device.multipliers, "DP16KD": device.block_rams}
    for kind, sites in kinds.items():
        placed = [cell["attributes"]["BEL"] for cell in cells.values() if cell["type"] == kind]
        assert sorted(placed) == sorted(site.name for site in sites)
    routed = place_and_route("harness", device=device, seed=1, target_mhz=50, directory=tmp_path)
    assert routed["utilisation"]["MULT18X18D"]["used"] == multipliers
    assert routed["utilisation"]["DP16KD"]["used"] == block_rams
    assert routed["wire_length"] > 100
    assert routed["overused"][-1] == 0 < len(routed["overused"])


@pytest.mark.long
def test_nextpnr_reads_settings(tmp_path):
    """It refuses a number that is none."""
    pytest.importorskip("pyosys")
    device, netlist = device_by_name("LFE5U-25F"), design(tmp_path, 5, 4, 3)
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
