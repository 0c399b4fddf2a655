"""Bigger baselines beside variants: who wins, by hand, and the command with what was counted.

Covers: perf/area/designs.py, perf/area/skipping.py, perf/area/document.py, perf/area/picture.py,
perf/area/command.py.
"""

import json

import pytest

from perf.__main__ import main
from perf.area.designs import (
    COSTS,
    ESTIMATED,
    SYNTHESISED,
    bigger_baseline,
    designs_of,
    wider_baseline,
)
from perf.area.document import comparison_lines, verdict_lines
from perf.area.measured import report_designs, syntheses
from perf.area.skipping import skipping
from perf.area.verdict import cells_of, compare, efficiencies
from perf.counted import Cell, Count, Store
from perf.counted.count import BatchCount

IMAGES = 4
BATCH = Cell(network="vgg13", input="3x32x32", batch=IMAGES)


def batch(cycles):
    layers = {"conv": {"forward": cycles // 4, "backward": cycles // 2}, "": {"loss": cycles // 4}}
    return BatchCount(cycles=cycles, counters={}, layers=layers)


def count(cell: Cell, bp, gp=None, state=""):
    batches = {"bp": batch(bp)} | ({} if gp is None else {"gp": batch(gp)})
    return Count(cell=cell, batches=batches, state=state)


def fill(store):
    """baseline 1000 cycles, with 24 columns and more lanes 700, with 27 columns 600, with 30 590,
    more 580; max 1000 and 200."""
    for cell in cells_of(report_designs(), BATCH):
        if cell.variant == "baseline":
            columns = int(dict(s.split("=") for s in cell.settings).get("columns", 15))
            cycles = {15: 1000, 24: 700, 27: 600, 30: 590}.get(columns, 580)
            store.add(count(cell, cycles))
        else:
            store.add(count(cell, 1000, {"low": 1100, "efficient": 300, "max": 200}[cell.variant]))


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "cycles.jsonl", published=None)
    fill(found)
    return found


def test_bigger_baselines_cost_no_more():
    report = report_designs()
    variants = designs_of(report)
    for cost in COSTS:
        bigger = bigger_baseline(report, "max", cost)
        step = (bigger.costs[cost] - variants["baseline"].costs[cost]) / (bigger.columns - 15)
        room = variants["max"].costs[cost] - bigger.costs[cost]
        assert 0 <= room < 3 * step
        assert f"columns={bigger.columns}" in bigger.settings and bigger.lanes == 3
        assert (bigger.source == SYNTHESISED) == (bigger.columns <= 30)
        assert bigger.cell(BATCH).config.columns == bigger.columns
    assert bigger_baseline(report, "low", "cells") is None


def test_more_lanes():
    """Twice the lanes, and 24 columns, for the standard cells of `max`, as they were synthesised;
    for its power that is too much, and 18 are the most whose power is known."""
    report = report_designs()
    wide, limits = wider_baseline(report, "max", "cells"), designs_of(report)["max"].costs
    core = wide.cell(BATCH).config.cores[0]
    assert (core.columns, core.post_lanes) == (24, 6)
    found = {
        each.flow: each.totals for each in syntheses() if each.config == wide.cell(BATCH).config
    }
    assert wide.source == SYNTHESISED
    assert wide.costs["cells"] == found["asic"]["um2"] <= limits["cells"]
    assert wide.costs["lut"] == found["xc7"]["LUT"] <= limits["lut"]
    assert wide.costs["power"] == found["asic"]["mw"] > limits["power"]
    assert wider_baseline(report, "max", "power").columns == 18
    assert wider_baseline(report, "low", "cells") is None


def test_what_was_not_synthesised():
    """It costs what columns cost as far as they were, or with more lanes what the model says."""
    report = report_designs()
    between = bigger_baseline(report, "max", "chip")
    assert between.source == "columns added" and between.columns > 30
    assert wider_baseline(report, "max", "chip").source == ESTIMATED


def test_the_faster_rival_counts(store):
    report = report_designs()
    wide = wider_baseline(report, "max", "cells")
    store.add(count(wide.cell(BATCH), 400))
    found = compare(report, BATCH, store.get)
    own = next(each for each in found if (each.variant, each.cost) == ("max", "cells"))
    assert own.rival == wide and own.rival_speed == 1000 / 400


def test_who_wins_by_hand(store):
    found = compare(report_designs(), BATCH, store.get)
    by_name = {(each.variant, each.cost): each for each in found}
    assert len(found) == 3 * len(COSTS)
    own = by_name["max", "cells"]
    assert own.rival.columns == 27
    assert own.speed["B"] == pytest.approx(2000 / 1200)
    assert own.rival_speed == pytest.approx(1000 / 600)
    assert 1 < own.speed["A"] < own.speed["B"]
    assert not own.wins("A") and not own.wins("B")
    alone = by_name["efficient", "cells"]
    assert alone.rival is None and alone.rival_speed == 1
    assert alone.wins("A") and alone.wins("B")
    assert not by_name["low", "power"].wins("B")


def kept(tmp_path, counts):
    """What compare finds if of ``max`` only these of its rivals for standard cells were counted:
    more columns, more lanes -> cycles; `max` is 1.667 times as fast as the baseline by B."""
    report, found = report_designs(), Store(tmp_path / "some.jsonl", published=None)
    designs = designs_of(report)
    found.add(count(designs["baseline"].cell(BATCH), 1000, state="aa"))
    found.add(count(designs["max"].cell(BATCH), 1000, 200, state="bb"))
    for make, cycles in counts.items():
        found.add(count(make(report, "max", "cells").cell(BATCH), cycles, state="cc"))
    own = compare(report, BATCH, found.get)
    return {each.cost: each for each in own}, own


def test_a_rival_that_was_not_counted_leaves_it_open(tmp_path):
    """As long as the variant is ahead of those that were; one that is faster decides at once."""
    by_cost, own = kept(tmp_path, {wider_baseline: 800})
    cells = by_cost["cells"]
    assert cells.rival.lanes == 6 and [each.name for each in cells.missing] == ["baseline 12 × 27"]
    assert cells.rival_speed == 1.25 and cells.wins("A") is None and cells.wins("B") is None
    assert cells.state == "aa, bb, cc"
    assert by_cost["chip"].rival is None and by_cost["chip"].rival_speed is None
    rows = [
        [part.strip() for part in line.split("|")[1:-1]] for line in comparison_lines(own)[2:-1]
    ]
    assert [row[3] for row in rows if row[2] == "standard cells"] == [cells.rival.name]
    assert [row[7:] for row in rows if row[2] == "standard cells"] == [
        ["open", "open", "baseline 12 × 27", "aa, bb, cc"]
    ]
    (chip,) = [row for row in rows if row[2] == "standard cells and SRAM"]
    assert chip[3:5] == ["not run"] * 2 and chip[7:9] == ["not run"] * 2
    assert " and ".join(each.name for each in by_cost["chip"].missing) == chip[9]
    text = "\n".join(verdict_lines(own))
    assert (
        "- `max` at equal standard cells: the rival is baseline 12 × 24, 6 lanes. The variant is "
        "faster in 0 of 1 networks by schedule A, in 0 by B. Incomplete: not run was baseline "
        "12 × 27 in vgg13; so it is open in 1 of 1 networks by A, in 1 by B." in text
    )
    assert "- `max` at equal standard cells and SRAM: the rivals were not run. Incomplete" in text
    by_cost, own = kept(tmp_path, {wider_baseline: 400})
    assert by_cost["cells"].missing and by_cost["cells"].wins("B") is False
    assert "another baseline is faster than the variant" in "\n".join(verdict_lines(own))


def test_verdicts_are_of_one_cost(tmp_path):
    """`max` has different rivals for cells and for LUTs in one network, and the same in another:
    every number of networks is of those that were compared at that cost."""
    report, other = report_designs(), Cell(network="vgg16", input="3x32x32", batch=IMAGES)
    found = Store(tmp_path / "two.jsonl", published=None)
    fill(found)
    for cell in cells_of(report, other, ["max"]):
        wide = "post_lanes=6" in cell.settings
        cycles = {"max": 1000}.get(cell.variant, 500 if wide else 1000)
        found.add(count(cell, cycles, 200 if cell.variant == "max" else None))
    own = [each for batch in (BATCH, other) for each in compare(report, batch, found.get)]
    lines = [line for line in verdict_lines(own) if line.startswith("- `max`")]
    assert len(lines) == len(COSTS) and all("of 2 networks by schedule A" in line for line in lines)
    cells = next(line for line in lines if "at equal standard cells: " in line)
    assert "baseline 12 × 27 (1 network) or baseline 12 × 24, 6 lanes (1 network)." in cells
    alike = [line for line in verdict_lines(own) if line.startswith("- `low`")]
    assert len(alike) == 1 and all(words.text in alike[0] for words in COSTS.values())


def test_cells_of_some_variants():
    report = report_designs()
    own = {cell.variant for cell in cells_of(report, BATCH, ["max"])}
    assert own == {"baseline", "max"}
    assert {cell.variant for cell in cells_of(report, BATCH, ["low"])} == {"baseline", "low"}
    assert len(cells_of(report, BATCH, ["low"])) == 2
    assert set(cells_of(report, BATCH, ["max"])) < set(cells_of(report, BATCH))


def test_speed_for_cost(store):
    found = efficiencies(report_designs(), BATCH, store.get)
    by_name = {each.design.name: each for each in found}
    base, own = by_name["baseline"], by_name["max"]
    assert base.speed == 1 and set(base.per_cost.values()) == {1}
    costs = designs_of(report_designs())
    share = costs["max"].costs["lut"] / costs["baseline"].costs["lut"]
    assert own.per_cost["lut"] == pytest.approx(2000 / 1200 / share)


def test_skipping_by_hand(store):
    cells = {name: d.cell(BATCH) for name, d in designs_of(report_designs()).items()}
    found = skipping("vgg13", store.get(cells["baseline"]), lambda name: store.get(cells[name]))
    own = next(each for each in found if each.variant == "max")
    assert own.free == pytest.approx(1200 / 1000)
    assert own.forward == pytest.approx(1200 / 1500)


def test_command(store, tmp_path, capsys):
    """With what was counted before; a network of which there is nothing is named."""
    files = [str(tmp_path / name) for name in ("area.md", "area.json", "area.png")]
    arguments = ["area", "--network", "vgg13", "vgg16", "--batch", str(IMAGES), "--kept",
                 "--store", str(store.path), "--markdown", files[0], "--json", files[1],
                 "--plot", files[2]]  # fmt: skip
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert (
        "`max` at equal standard cells: the rival is baseline 12 × 27. The variant is faster in 0 "
        in text
    )
    assert "- vgg16 3x32x32, batch 4, baseline, bp" in text
    assert text.count("- Paper: at the ") == 2
    found = json.loads((tmp_path / "area.json").read_text())
    assert len(found["comparisons"]) == 3 * len(COSTS)
    assert {each["network"] for each in found["not_counted"]} == {"vgg16"}
    assert (tmp_path / "area.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments[:2], "resnet18", *arguments[4:]]) == 2
    assert "nothing to compare" in capsys.readouterr().err
