"""The explorer: machines, bounds, budgets, the front, and the command on a tiny network.

Covers: perf/explore/space.py, perf/explore/bound.py, perf/explore/budget.py,
perf/explore/picture.py, perf/explore/command.py.
"""

import json

import pytest

from hw.config import make_config
from perf.__main__ import main
from perf.analytic.shapes import Layer
from perf.area.measured import report_designs
from perf.counted import Cell, Count
from perf.counted.count import BatchCount
from perf.explore.bound import least_cycles
from perf.explore.budget import Budget, area_budget, device_budget
from perf.explore.search import Search, front
from perf.explore.space import SIZES as USUAL
from perf.explore.space import candidates
from synth.fpga.devices import DEVICES
from synth.study.analysis import metric

SIZES = {"rows": (4, 8), "columns": (4, 8), "predictor_rows": (4,), "predictor_columns": (4, 8),
         "buffer_bank_depth": (1024,), "axi_data_width": (64,)}  # fmt: skip
LAYERS = [
    Layer(name="conv", inputs=16, outputs=16, groups=1, kernel=(3, 3), in_size=(8, 8),
          out_size=(8, 8)),
    Layer(name="depthwise", inputs=16, outputs=16, groups=16, kernel=(3, 3), in_size=(8, 8),
          out_size=(8, 8)),
]  # fmt: skip


def cell(candidate):
    method = "bp" if candidate.variant == "baseline" else "adagp"
    return Cell(network="vgg11", input="3x32x32", batch=2, variant=candidate.variant,
                method=method, settings=candidate.settings)  # fmt: skip


def count(cell, *cycles):
    batches = {
        name: BatchCount(cycles=own, counters={}, layers={})
        for name, own in zip(("bp", "gp"), cycles)
    }
    return Count(cell=cell, batches=batches)


def test_space():
    """The predictor's sizes only make a difference where there is one; wrong ones are left out."""
    found = list(candidates(("baseline", "max"), SIZES | {"columns": (4, 8, 1000)}))
    assert [each.variant for each in found].count("baseline") == 4
    assert [each.variant for each in found].count("max") == 8
    assert all(each.config.columns != 1000 for each in found)


def test_usual_sizes_hold_the_presets_predictor():
    """Its array is swept, and one of its sizes is that of preset `paper`; a baseline has none."""
    predictor = make_config(variant="max", preset="paper").cores[1]
    few = USUAL | {"rows": (12,), "buffer_bank_depth": (4096,), "axi_data_width": (256,)}
    found = list(candidates(("max",), few))
    arrays = {(each.config.cores[1].rows, each.config.cores[1].columns) for each in found}
    assert (predictor.rows, predictor.columns) in arrays and len(arrays) > 1
    assert len(found) == len(USUAL["columns"]) * len(arrays)
    assert len(list(candidates(("baseline",), few))) == len(USUAL["columns"])


def test_lanes():
    """Those that a machine has anyway make no other one; those that do not divide it, none."""
    sizes = {"rows": (12,), "columns": (12, 15), "post_lanes": (0, 3, 4, 6)}
    found = [(each.config.columns, each.settings) for each in candidates(("baseline",), sizes)]
    assert found == [
        (12, ("columns=12",)),
        (12, ("columns=12", "post_lanes=3")),
        (12, ("columns=12", "post_lanes=6")),
        (15, ()),
    ]
    without = list(candidates(("baseline",), sizes | {"post_lanes": (3, 4, 6)}))
    assert sorted((each.config.columns, each.settings) for each in without) == sorted(found)
    (same,) = candidates(
        ("baseline",), {"post_lanes": (0,)}, settings=["columns=24", "post_lanes=6"]
    )
    assert same.config.cores[0].post_lanes == 6
    (one,) = candidates(("max",), {"columns": (24,), "post_lanes": (6,)})
    assert one.text.startswith("max 12 × 24 + 8 × 10, 6 lanes, ")


def test_bound_by_hand():
    """16 channels of 3 × 3 on 4 × 8 PEs: 36 K tiles, 2 tiles of columns; 2 images of 64 pixels."""
    config = make_config(variant="low", preset="tiny", rows=4, columns=8)
    forward = 2 * 64 * 36 * 2
    weights = 2 * 64 * 144 * 16 / 32
    assert least_cycles(LAYERS, config, 2, gp=False) == forward + weights
    assert least_cycles(LAYERS, config, 2, gp=True) == forward + weights / 2


def test_budget_of_a_device():
    """Rows of multipliers become look-up tables until the device has enough; then the limit is the
    look-up tables, and a margin counts for logic only."""
    budget = device_budget("lfe5u-85")
    small, costs = budget.fitting(make_config(variant="baseline", preset="ulx3s", training=True))
    assert small.lut_multiplier_rows == 0 and budget.fits(costs)
    config = make_config(variant="baseline", preset="paper", axi_data_width=64,
                         buffer_bank_depth=2048)  # fmt: skip
    before = budget.costs(config)
    fitted, costs = budget.fitting(config)
    assert before["MULT18X18D"] > DEVICES["LFE5U-85F"].available["MULT18X18D"]
    assert costs["MULT18X18D"] <= DEVICES["LFE5U-85F"].available["MULT18X18D"]
    assert fitted.lut_multiplier_rows > 0 and costs["COMB"] > before["COMB"]
    seven = device_budget("XC7A100T").fitting(config)[0]
    assert seven.lut_multiplier_rows == 0  # nobody has measured them there
    tight = Budget(name="", flow="ecp5", shown="COMB", available={"COMB": costs["COMB"] * 1.1})
    assert tight.fits(costs, margin=0.05) and not tight.fits(costs, margin=0.2)


def test_area_of_a_chip(monkeypatch):
    """Standard cells by the model, SRAM as CACTI says: here what it said for the report."""
    design = report_designs()["max"]
    areas = {(m["words"], m["width"]): m["each"]["area_um2"] for m in design["sram"]["memories"]}

    def macro(*, words, width, technology):
        return {"area_um2": areas[words, width]}

    monkeypatch.setattr("perf.explore.budget.sram_macro", macro)
    costs = area_budget(8.0).costs(make_config(variant="max", preset="paper"))
    measured = metric(design, "asic_total") / 1e6
    assert costs["mm²"] == pytest.approx(measured, rel=0.002)
    assert costs["cells mm²"] == pytest.approx(design["asic"]["area_um2"]["total"] / 1e6, rel=0.01)
    assert area_budget(8.0).fits(costs) and not area_budget(7.0).fits(costs)


def test_wrong_budgets():
    with pytest.raises(ValueError, match="area limit must be above 0 mm², not -1"):
        area_budget(-1)
    with pytest.raises(ValueError, match="for which designs were synthesised, not LIFCL-40"):
        device_budget("LIFCL-40")


def test_search_rules_out_what_cannot_be_better():
    """Cycles are twice the bound for large arrays, equal to it for 8 × 8: nothing that is more
    expensive and has a larger bound is counted, and the front is that of an exhaustive search."""
    found = list(candidates(("baseline", "max"), SIZES))
    budget = Budget(name="any", flow="xc7", shown="LUT")
    search = Search(found, cell, LAYERS, 2, budget)
    everything = Search(found, cell, LAYERS, 2, budget)
    assert search.fitting == len(found) == 12

    def cycles(point):
        return (1.0 if point.candidate.config.columns == 8 else 2.0) * point.least

    while wave := search.wave(1):
        for point in wave:
            own = cycles(point)
            search.counted(point, count(point.cell, own, *[own] * (point.cell.method != "bp")))
    for point in everything.wave(100):
        own = cycles(point)
        everything.counted(point, count(point.cell, own, *[own] * (point.cell.method != "bp")))
    counted = [point for point in search.points if point.cycles is not None]
    assert 0 < len(counted) < len(found)
    assert len(search.points) == len(everything.points) == len(found)
    names = [[p.candidate.text for p in front(s.points, "LUT")] for s in (search, everything)]
    assert names[0] == names[1]
    best = front(search.points, "LUT")
    assert [p.costs["LUT"] for p in best] == sorted(p.costs["LUT"] for p in best)
    assert [p.cycles for p in best] == sorted((p.cycles for p in best), reverse=True)
    ruled_out = [p for p in search.points if p.cycles is None]
    assert all("is better than its bound" in p.reason for p in ruled_out)


def test_refused_programs_and_limits():
    found = list(candidates(("baseline",), SIZES))
    search = Search(found, cell, LAYERS, 2, Budget(name="any", flow="xc7", shown="LUT"))
    (point,) = search.wave(1)
    search.counted(point, Count(cell=point.cell, reason="too small a buffer"))
    search.give_up()
    assert [point.cycles for point in search.points] == [None] * 4
    assert search.points[0].reason == "too small a buffer"
    assert front(search.points, "LUT") == []


def test_command(tmp_path, capsys, monkeypatch):
    """Programs are not compiled: a count says that cycles are the PEs' inverse."""

    def fill(self, cells, workers, **options):
        for each in cells:
            self.add(count(each, 10**9 // each.config.pes))

    monkeypatch.setattr("perf.counted.store.Store.fill", fill)
    files = [str(tmp_path / name) for name in ("front.md", "front.json", "front.png")]
    arguments = ["explore", "--network", "vgg11", "--quick", "--device", "LFE5U-85F", "--store",
                 str(tmp_path / "cycles.jsonl")]  # fmt: skip
    assert main([*arguments, "--markdown", files[0], "--json", files[1], "--plot", files[2]]) == 0
    text = capsys.readouterr().out
    assert "8 machines, 8 fit LFE5U-85F" in text
    assert "| baseline 8 × 8, 1024 words a bank, 64 bit | 15,625,000 |" in text
    assert "off by" in (tmp_path / "front.md").read_text()
    found = json.loads((tmp_path / "front.json").read_text())
    assert found["front"][-1] == "baseline 8 × 8, 1024 words a bank, 64 bit"
    assert len(found["points"]) == 8
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    for wrong, message in (
        (["--device", "ECP9"], "Device must be one of"),
        (["--most", "0"], "most must be at least 1, not 0"),
        (["--device", "LFE5U-25F", "--rows", "64", "--columns", "64"], "none of 2 machines fits"),
    ):
        assert main([*arguments[:4], *wrong]) == 2
        assert message in capsys.readouterr().err
