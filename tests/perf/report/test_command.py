"""The report on counts of a stand-in: which numbers it shows, and what it says of those that lack.

Covers: perf/report/document.py, perf/report/wanted.py, perf/report/figure_16.py,
perf/report/figures_17_19.py, perf/report/figure_20.py, perf/report/sweeps.py,
perf/report/tables_2_3.py, perf/report/costs.py, perf/report/pictures.py.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.workers import Workers
from golden.prediction.schedule import Phase, ScheduleConfig
from perf.__main__ import main
from perf.analytic.evaluation import published
from perf.area.measured import report_designs
from perf.area.verdict import cells_of
from perf.counted import Count, Store, store
from perf.counted.count import BatchCount
from perf.report.costs import same_cost
from perf.report.estimates import Estimates
from perf.report.figure_20 import figure_20
from perf.report.figures_17_19 import figures_17_19
from perf.report.formulas import Formulas
from perf.report.section import of_networks, percent
from perf.report.wanted import Wanted, paper_networks

#: Cycles of a batch of Phase BP and of Phase GP for an image.
CYCLES = {"baseline": (900, None), "low": (1000, 500), "efficient": (960, 440), "max": (920, 380)}
COUNTERS = ("VECTORS", "TILES", "POST_BUSY", "POST_STALL", "LOAD_BUSY", "STORE_BUSY")
LAYERS = {"a": 0.3, "b": 0.1, "c": 0.2, "d": 0.2, "e": 0.2}


class Killed(BaseException):
    """As from a signal: nobody catches it."""


@pytest.fixture
def counted(monkeypatch):
    """Cells in the order in which a stand-in has counted them; it is ended by ``limit`` cells."""
    cells = []

    def count(cell, latencies, *, model, plain):
        if len(cells) == count.limit:
            raise Killed
        cells.append(cell)
        found = replace(cell, latency=latencies[0])
        if cell.network == "vgg19":
            return [Count(cell=found, reason="it is too large", state="1234567")]
        batches = {}
        for name, cycles in zip(("bp", "gp"), CYCLES[cell.variant]):
            if cycles is not None:
                total = cycles * cell.batch
                layers = {
                    layer: {"forward": int(part * total) // 3, "backward": int(part * total) // 3,
                            "update": int(part * total) // 3}
                    for layer, part in LAYERS.items()
                }  # fmt: skip
                counters = {"READ_BYTES": 2 * total, "WRITE_BYTES": total} | {
                    f"CORE{core}_{counter}": 1 for core in (0, 1) for counter in COUNTERS
                }
                batches[name] = BatchCount(cycles=total, counters=counters, layers=layers)
        return [Count(cell=found, batches=batches, state="1234567")]

    count.limit = None
    monkeypatch.setattr(store, "count", count)
    monkeypatch.setattr("perf.report.figure_20.MICRO_BATCHES", (4,))
    monkeypatch.setattr(store.Store.__init__, "__kwdefaults__", {"published": None})
    monkeypatch.setattr("perf.report.command.Estimates", lambda: Estimates(Path("none")))
    return cells, count


@pytest.fixture
def unwritten(monkeypatch):
    """Reports are made up to their files, which take longest."""
    monkeypatch.setattr("perf.report.command.write_report", lambda *arguments: [])
    monkeypatch.setattr("perf.report.command.figures_17_19", lambda *arguments: [])


def _report(tmp_path, *arguments):
    output = tmp_path / "page.md"
    kept = tmp_path / "cycles.jsonl"
    status = main(["report", "--output", str(output), "--store", str(kept), *arguments])
    return status, output


SMALL = ("--network", "vgg13", "--data", "cifar10", "--sweep")


def test_numbers_come_from_counts(tmp_path, counted):
    status, output = _report(tmp_path, *SMALL, "vgg13")
    assert status == 0
    numbers = json.loads(output.with_suffix(".json").read_text())["sections"]
    own = numbers["figure-17"]["cifar10"]["vgg13"]["counted"]
    for variant in ("low", "efficient", "max"):
        learning, predicted = CYCLES[variant]
        assert own[variant]["B"] == pytest.approx(2 * 900 / (learning + predicted))
        phases = list(ScheduleConfig().phases(90, 60))
        share = phases.count(Phase.GP) / len(phases)
        whole = 900 / (share * predicted + (1 - share) * learning)
        assert own[variant]["A"] == pytest.approx(whole)
        assert own[variant]["commit"] == "1234567"
    lines = numbers["sweeps"]["speed_up_b"]["vgg13"]
    assert lines["counted, max"] == [pytest.approx(1800 / 1300)] * 5
    sizes = numbers["sweeps"]["speed_up_b_of_channels"]["vgg13"]
    assert sizes["counted, max"] == [pytest.approx(1800 / 1300)] * 4
    assert sizes["formulas, max"] == sorted(sizes["formulas, max"], reverse=True)
    text = output.read_text()
    assert "| vgg13 | 16 | " in text and "not run" not in text.split("## Figure 21")[0][900:]
    assert f"{1800 / 1300:.3f}" in text
    assert "python -m perf report --network vgg13 --data cifar10" in text
    for name in ("figure_16", "figure_17", "sweep", "predictor", "figure_20"):
        assert f"](page_{name}.png)" in text
        assert (tmp_path / f"page_{name}.png").read_bytes().startswith(b"\x89PNG")
    steps = [row for row in numbers["figure-20"]["steps"] if row["stages"] == "vgg13"]
    assert {row["devices"] for row in steps} == {2, 4}  # there are five layers
    energy = numbers["figure-21"]["beyond_baseline_percent"]["vgg13"]
    assert energy["max"]["DRAM bytes, B"] == pytest.approx(100 * (650 / 900 - 1))
    beside = numbers["same-cost"]
    assert {each["variant"] for each in beside["comparisons"]} == {"low", "efficient", "max"}
    assert all(
        each["rival"] == "baseline" for each in beside["comparisons"] if each["variant"] == "low"
    )
    assert all(each["rival_speed"] == 1 and not each["not_run"] for each in beside["comparisons"])
    assert {each["commits"] for each in beside["comparisons"]} == {"1234567"}
    assert beside["not_run"] == []
    assert "batch 128, baseline, bp, columns=27" in text
    means = numbers["figure-20"]["means"]
    assert f"| 1.654 | {means['gpipe']:.3f} (mean of 1) |" in text
    assert numbers["table-5"]["overhead_percent"]["asic_logic"]["max"] > 0


def test_rows_say_which_compilers_made_their_programs(tmp_path, counted):
    kept, wanted = Store(tmp_path / "kept.jsonl"), Wanted(networks=["vgg13"], data=["cifar10"])
    for variant, state in (("baseline", "aa"), ("low", "aa"), ("max", "bb")):
        (found,) = counted[1](wanted.cell("vgg13", "cifar10", variant), [30], model="", plain=True)
        kept.add(replace(found, cell=wanted.cell("vgg13", "cifar10", variant), state=state))
    section = figures_17_19(wanted, kept, Formulas(), Estimates(tmp_path / "none"))[0]
    (table,) = [part for part in section.parts if getattr(part, "headings", [])[-1:] == ["commits"]]
    assert table.rows[0][-1] == "aa, bb" and table.rows[0][6:8] == ["not run"] * 2


def test_what_was_not_counted_is_not_run(tmp_path, counted):
    status, output = _report(tmp_path, *SMALL, "--kept")
    assert status == 0 and counted[0] == []
    text = output.read_text()
    assert "| vgg13 | 1.302 | 1.357 | 128 | not run | not run |" in text
    line = "count --network vgg13 --input 3x32x32 --batch 128 --variant baseline low efficient max"
    assert f"\npython -m perf {line}\n" in text
    numbers = json.loads(output.with_suffix(".json").read_text())["sections"]
    assert numbers["figure-17"]["cifar10"]["vgg13"]["counted"]["max"] is None
    assert f"python -m perf {line}" in numbers["figure-17"]["not_run"]
    assert any("--set columns=" in line for line in numbers["same-cost"]["not_run"])
    assert "\nBaselines of the same cost: not run.\n" in text
    assert (
        "Phase GP of `max` over the forward pass of `baseline` | no backward pass | not run" in text
    )
    assert numbers["table-2"]["low"] == {"cycles": {}, "commit": "not run"}
    assert (tmp_path / "page_figure_17.png").exists() and not (
        tmp_path / "page_figure_16.png"
    ).exists()


def test_a_killed_report_goes_on(tmp_path, counted, unwritten):
    cells, count = counted
    count.limit = 3
    with pytest.raises(Killed):
        _report(tmp_path, *SMALL)
    assert len(Store(tmp_path / "cycles.jsonl", published=None)) == 3
    count.limit = None
    assert _report(tmp_path, *SMALL)[0] == 0
    wanted = list(Wanted(networks=["vgg13"], data=["cifar10"], swept=[]).cells())
    assert sorted(cell.text for cell in cells) == sorted(cell.program.text for cell in wanted)


def test_no_program_is_said_with_its_reason(tmp_path, counted):
    wanted = Wanted(networks=["vgg19"], data=["cifar10"], variants=["max"], swept=[], others=False)
    kept = Store(tmp_path / "cycles.jsonl", published=None)
    kept.fill(wanted.cells(), Workers(jobs=1))
    section = figures_17_19(wanted, kept, Formulas(), Estimates(tmp_path / "none"))[0]
    text = section.markdown(lambda picture: "")
    assert section.missing == []
    assert "- vgg19, `max`: it is too large" in text and "| no program | no program |" in text


def _counted_baselines(tmp_path, counted):
    """Two networks on all variants; of the bigger baselines only one, with more lanes."""
    kept = Store(tmp_path / "kept.jsonl", published=None)
    wanted = Wanted(networks=["vgg13", "vgg16"], data=["cifar10"], swept=[], others=False)
    for network in wanted.networks:
        for cell in cells_of(report_designs(), wanted.cell(network, "cifar10", "baseline")):
            if not cell.settings or {"columns=24", "post_lanes=6"} == set(cell.settings):
                kept.add(counted[1](cell, [cell.latency], model="", plain=True)[0])
    return wanted, kept


def test_a_rival_that_is_not_counted_is_not_run(tmp_path, counted):
    wanted, kept = _counted_baselines(tmp_path, counted)
    (section,) = same_cost(wanted, kept)
    text = section.markdown(lambda picture: "")
    assert "Incomplete: not run was baseline 12 × 27 in vgg13, vgg16; so it is open in 2" in text
    assert (
        "| not run | not run | baseline 12 × 60 and baseline 12 × 54, 6 lanes | 1234567 |" in text
    )
    assert {cell.network for cell in section.missing} == {"vgg13", "vgg16"}
    glance = {what: ours for what, _, ours in section.glance}
    cells = next(ours for what, ours in glance.items() if "same standard cells," in what)
    assert "`max` is faster in 0 of 2, open in 2; a rival not run in 2" in cells
    assert next(ours for what, ours in glance.items() if "and SRAM, and" in what) == "not run"
    assert "FPGA power" in section.paper and "ASIC area" in section.paper
    assert "- Paper" not in text
    gains = [100 * (value - 1) for value in published("weight-stationary")["mean"].values()]
    assert f"`max` itself gains {min(gains):.0f} to {max(gains):.0f} %" in section.paper


def test_pipelines_beside_the_papers_means(tmp_path, counted):
    wanted, kept = _counted_baselines(tmp_path, counted)
    section = figure_20(wanted, kept)
    table = section.parts[1]
    assert [row[0] for row in table.rows[-2:]] == ["mean of 2", "paper, mean"]
    networks = [float(row[3]) for row in table.rows[2:4]]
    assert float(table.rows[-2][3]) == pytest.approx(sum(networks) / 2, abs=1e-3)
    assert section.data["means"]["gpipe"] == pytest.approx(sum(networks) / 2, abs=1e-3)
    assert "a greedy list schedule here" in section.why


def test_quick_is_small(tmp_path, counted, unwritten):
    assert _report(tmp_path, "--quick")[0] == 0
    assert [(cell.network, cell.variant, cell.batch) for cell in counted[0]] == [
        ("vgg13", "baseline", 16),
        ("vgg13", "max", 16),
    ]


def test_batches_are_those_that_fit():
    """Of CIFAR as many as a memory window has room for, unless a batch is asked for."""
    names, places = ("vgg13", "inception-v4"), ("cifar10", "imagenet")

    def found(**options):
        wanted = Wanted(networks=names, **options)
        return [
            (wanted.batch_of(name, data), wanted.cell(name, data, "max").batch)
            for data in places
            for name in names
        ]

    assert found() == [(128, 128), (64, 64), (16, 16), (16, 16)]
    assert found(images=(8, 4, 2)) == [(8, 8), (8, 8), (4, 4), (4, 4)]
    assert Wanted(networks=names, images=(8, 4, 2)).other_cell("transformer", "max").batch == 2


def test_many_networks_at_a_glance():
    assert of_networks({}) == "not run"
    few = dict(zip("abcd", (1.0, 1.25, 1.5, 1.75), strict=True))
    assert of_networks(few) == "a 1.00, b 1.25, c 1.50, d 1.75"
    assert of_networks({"e": 3.0} | few) == "1.70, the mean of 5, from 1.00 (a) to 3.00 (e)"
    assert of_networks({"a": -25.04}, percent) == "a −25.0 %"


def test_everything_that_the_paper_has_is_wanted():
    wanted = Wanted(networks=paper_networks())
    cells = set(wanted.cells())
    assert len(paper_networks()) == 13
    rivals = {cell for cell in cells if cell.settings}
    assert len(cells - rivals) == 13 * 3 * 4 + 2 * 4 * 4 + 3 * 3 + 2 * 4
    assert rivals == {
        cell
        for name in paper_networks()
        for cell in cells_of(report_designs(), wanted.cell(name, "cifar10", "baseline"))
        if cell.settings
    }
    assert len(rivals) % 13 == 0 and len(rivals) >= 13 * 2
    without = set(Wanted(networks=paper_networks(), rivals=False).cells())
    assert without == cells - rivals
    assert not any(cell.settings for cell in Wanted(networks=["vgg13"], preset="tiny").cells())
    assert {cell.channels for cell in cells} == {4, 8, 16, 32}
    shapes = {(cell.network, cell.input) for cell in cells}
    assert {
        ("inception-v4", "3x299x299"),
        ("yolo-v3", "3x416x416"),
        ("transformer", "32+32"),
    } <= shapes
    assert {cell.classes for cell in cells} == {None, 100}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "lenet"], "network must be one of"),
        (["--sweep", "vgg11"], "sweep must be one of"),
        (["--batch", "16", "0", "16"], "batch must be at least 1, not 0"),
        (["--set", "rows=x"], "rows must be"),
    ],
)
def test_what_cannot_be(arguments, message, tmp_path, capsys):
    assert _report(tmp_path, "--kept", *arguments)[0] == 2
    assert message in capsys.readouterr().err
