"""The report: exact arithmetic on made-up measurements, and a document that says what they say.

Covers: synth/study.
"""

import itertools
import json
import re
from pathlib import Path

import pytest

from hw.config import VARIANTS, make_config
from synth.__main__ import main
from synth.asic.area import block_of
from synth.common.errors import ToolError
from synth.fpga.tables import fmax_summary
from synth.study import collect as report_collect
from synth.study import document, document_command, plots
from synth.study.analysis import (
    area_by_block,
    batch_control,
    block_growth,
    equal_baseline,
    luts_per_mac,
    marginal_per_pe,
    measurement_dates,
    metric,
    overhead_percent,
    predictor_budget,
)
from synth.study.document import analyse
from synth.study.tables import count, delta, figure, percent, table


def made_up(*, arrays, lut, area, power, memory, blocks, fits=True):
    """One design with figures that are easy to reckon with."""
    return {
        "configuration": {},
        "configuration_hash": "0" * 12,
        "options": "--variant x --preset paper",
        "pes": sum(rows * columns for rows, columns in arrays),
        "arrays": arrays,
        "xc7": {
            "device": "xc7",
            "resources": {
                "LUT": {"used": lut, "available": None},
                "FF": {"used": lut // 2, "available": None},
                "RAMB36": {"used": 12, "available": None},
                "RAMB18": {"used": 0, "available": None},
                "DSP48E1": {"used": 180, "available": None},
            },
            "blocks": {block: {"LUT": value} for block, value in blocks.items()},
            "commands": ["python -m synth fpga --device xc7"],
            "date": "2026-01-03",
        },
        "ecp5": {
            "device": "LFE5U-85F",
            "fits": fits,
            "over": {} if fits else {"LUT4EQ": lut * 2 - 100},
            "not_routed": None if fits else "the design does not fit",
            "config": {"lut_multiplier_rows": 2},
            "resources": {
                "LUT4EQ": {"used": lut * 2, "available": 83640 if fits else 100},
                "MULT18X18D": {"used": 156, "available": 156},
            },
            "blocks": {block: {"LUT4EQ": 2 * value} for block, value in blocks.items()},
            "command": "python -m synth fpga --device LFE5U-85F --no-route",
            "fmax_mhz": {"1": 50.0, "2": 56.5, "3": 53.0} if fits else {},
            "critical_path": {"from": "a.b", "to": "c.d", "block": "main array"},
            "date": "2026-01-03",
        },
        "asic": {
            "library": "made-up cells",
            "node_nm": 45,
            "corner": "typical",
            "basis": "no placement",
            "area_um2": {
                "combinational": area * 0.7,
                "sequential": area * 0.2,
                "buffers_inverters": area * 0.1,
                "total": area,
            },
            "blocks": {
                block_of(path): area * value / sum(blocks.values())
                for path, value in blocks.items()
            },
            "date": "2026-01-02",
            "fmax_mhz": 400.0,
            "critical_path": {"from": "x", "to": "y", "block": "main array"},
            "power_mw": {
                "internal": power / 2,
                "switching": power / 4,
                "leakage": power / 4,
                "total": power,
                "clock_mhz": 100.0,
                "activity": "a made-up run",
                "cycles": 2000,
            },
            "memory_power_mw": {"dynamic": 5.0, "leakage": 11.0},
            "not_available": {"net interconnect area": "the library has none"},
        },
        "sram": {
            "memories": [
                {
                    "purpose": "global buffer",
                    "count": 4,
                    "words": 4096,
                    "width": 192,
                    "bits": 4 * 4096 * 192,
                    "area_um2": memory,
                    "leakage_mw": 11.0,
                    "each": {
                        "area_um2": memory / 4,
                        "read_energy_pj": 37.0,
                        "write_energy_pj": 38.0,
                        "leakage_mw": 2.75,
                        "access_time_ns": 1.75,
                        "exact": variant_is_exact(memory),
                    },
                }
            ],
            "area_um2": memory,
            "leakage_mw": 11.0,
            "area_by_purpose_um2": {"global buffer": memory},
            "technology": {"node_nm": 45, "cell_type": "itrs-lop", "temperature_k": 300},
            "notes": ["An estimate."],
            "date": "2026-01-02",
        },
    }


def variant_is_exact(memory):
    return memory != 2_000_000


@pytest.fixture
def designs():
    main_array = {"core0.matrix.array": 30_000, "core0.load": 7_000, "core0.store": 3_000}
    base = {"arrays": [[12, 15]], "memory": 2_000_000.0}
    two = [[12, 15], [8, 10]]
    predictor = {**main_array, "core1.matrix.array": 16_000, "core1.matrix.matmul": 4_000}
    return {
        "baseline": made_up(lut=40_000, area=1e6, power=100.0, blocks=main_array, **base),
        "low": made_up(lut=40_400, area=1.01e6, power=101.0, blocks=main_array, **base),
        "efficient": made_up(
            lut=41_000, area=1.02e6, power=103.0, blocks=main_array, arrays=[[12, 15]], memory=3e6
        ),
        "max": made_up(
            lut=60_000, area=1.5e6, power=150.0, blocks=predictor, arrays=two, memory=3e6,
            fits=False,
        ),
        # 36 PEs more for 9000 LUTs, 180 000 square micrometres, 18 mW.
        "probe_main": made_up(
            lut=49_000, area=1.18e6, power=118.0, blocks=main_array, arrays=[[12, 18]], memory=2e6
        ),
        # Two of ten columns less: 4000 LUTs, 80 000 square micrometres.
        "probe_predictor": made_up(
            lut=56_000, area=1.42e6, power=142.0, blocks=predictor, arrays=[[12, 15], [8, 8]],
            memory=3e6,
        ),
    }  # fmt: skip


def test_overheads(designs):
    assert overhead_percent(designs, "asic_logic") == pytest.approx(
        {"low": 1.0, "efficient": 2.0, "max": 50.0}
    )
    assert overhead_percent(designs, "xc7_lut") == {"low": 1.0, "efficient": 2.5, "max": 50.0}
    assert overhead_percent(designs, "asic_memory") == {"low": 0, "efficient": 50, "max": 50}
    total = overhead_percent(designs, "asic_total")
    assert total["efficient"] == pytest.approx(100 * (4.02 - 3.0) / 3.0)
    power = overhead_percent(designs, "asic_power_total")
    assert power["max"] == pytest.approx(100 * (166 - 116) / 116)
    del designs["low"]["asic"], designs["max"]
    assert overhead_percent(designs, "asic_logic")["low"] is None
    assert overhead_percent(designs, "xc7_lut")["max"] is None
    assert metric(designs["low"], "asic_total") is None


def test_halves_of_block_rams():
    resources = {"RAMB36": {"used": 3}, "RAMB18": {"used": 3}}
    assert metric({"xc7": {"resources": resources}}, "xc7_ram") == 4.5
    assert metric({"xc7": {"resources": {}}}, "xc7_ram") is None


def test_equal_baselines(designs):
    assert marginal_per_pe(designs, "asic_logic") == pytest.approx(5000)
    assert marginal_per_pe(designs, "xc7_lut") == 250
    area = equal_baseline(designs, "asic_logic")
    # 10 000, 20 000 and 500 000 square micrometres at 5000 each; 12 PEs make a column.
    assert [round(area[v]["extra_pes"], 6) for v in ("low", "efficient", "max")] == [2, 4, 100]
    assert [area[v]["columns"] for v in ("low", "efficient", "max")] == [15, 15, 23]
    assert area["max"]["pes_percent"] == pytest.approx(100 * 100 / 180)
    assert equal_baseline(designs, "asic_power")["max"]["extra_pes"] == pytest.approx(100)
    designs["low"]["xc7"]["resources"]["LUT"]["used"] = 39_000
    assert equal_baseline(designs, "xc7_lut")["low"]["extra_pes"] == -4
    assert equal_baseline(designs, "xc7_lut")["low"]["columns"] == 15
    del designs["probe_main"]
    assert set(equal_baseline(designs, "asic_logic").values()) == {None}


def test_predictor_budget(designs):
    """8.3 % of a million are 83 000: two columns; but 100 000 are needed before the first one."""
    budget = predictor_budget(designs, "asic_logic", 8.3)
    assert budget["per_column"] == pytest.approx(40_000)
    assert budget["fixed"] == pytest.approx(100_000)
    assert (budget["fixed_percent"], budget["array_percent"]) == pytest.approx((10, 40))
    assert budget["array_alone_pes"] == pytest.approx(83_000 / 40_000 * 8)
    assert budget["columns"] == 0
    assert predictor_budget(designs, "asic_logic", 18.5)["columns"] == 2
    del designs["probe_predictor"]["asic"]
    assert predictor_budget(designs, "asic_logic", 8.3) is None


def test_batch_control(designs):
    """400 of 40,000 look-up tables; nothing where no such block is known."""
    assert batch_control(designs) == {}
    designs["baseline"]["xc7"]["blocks"] = {"batches": {"LUT": 400}, "fetch": {"LUT": 39_600}}
    designs["baseline"]["asic"]["blocks"] = {"batch control": 30.0, "array": 970.0}
    assert batch_control(designs) == {"xc7": 1.0, "asic": 3.0}


def test_blocks_and_macs(designs):
    """Blocks of FPGAs are called as those of standard cells; two of one purpose are one."""
    assert area_by_block(designs["baseline"], "xc7") == {"array": 30_000, "DMA": 10_000}
    assert block_growth(designs, "max", "xc7") == {
        "predictor array": 40.0,
        "predictor array control": 10.0,
    }
    macs = luts_per_mac(designs["max"])
    assert macs["array"] == 2 * 46_000 / 260 and macs["accelerator"] == 120_000 / 260
    assert luts_per_mac({"pes": 1}) is None
    assert fmax_summary(designs["low"]["ecp5"]) == {
        "seeds": 3,
        "min": 50.0,
        "median": 53.0,
        "max": 56.5,
    }
    assert fmax_summary(designs["max"]["ecp5"]) is None


def written(designs, tmp_path):
    content = {
        "command": "python -m synth report",
        "preset": "paper",
        "tools": {"pyosys": "0.70"},
        "seconds": 12.0,
        "designs": designs,
    }
    document_command.write_report(content, tmp_path)
    return (tmp_path / "report.md").read_text()


def test_document(designs, tmp_path):
    text = written(designs, tmp_path)
    assert "| low | 12 × 15 | +1.0 % | +1.0 % | +1.7 % | 2.000 | yes | 53.0 |" in text
    assert "| max | 12 × 15 + 8 × 10 | +50.0 % | +50.0 % | +8.3 % | 3.000 | no | – |" in text
    assert "`low` +1.0 %, no more than the paper's +1.7 %" in text
    assert "does not fit LFE5U-85F: 119900 LUT4EQ too many (120000 of 100)" in text
    assert "made of look-up tables: `baseline` 2, `low` 2, `efficient` 2, `max` 2." in text
    assert "| 12 (=) | 0 (=) | 180 (=) |" in text
    assert "| low | a.b → c.d | main array | 50.0 | 53.0 | 56.5 | 3 |" in text
    assert "Not available – net interconnect area: the library has none." in text
    assert "| global buffer * | baseline, low | 4 × 4096 × 192 | 384.0 | 2.000 |" in text
    assert "| global buffer | efficient, max | 4 × 4096 × 192 | 384.0 | 3.000 |" in text
    assert "| **all** | max |  | 384.0 | 3.000 |" in text
    assert text.count("python -m synth fpga --device LFE5U-85F --no-route --refresh\n") == 4
    assert "| 7-series block RAM | ±0.0 % | ±0.0 % | ±0.0 % |" in text
    assert "At 100 MHz while this runs: a made-up run." in text
    # 116 mW for 2000 cycles of 10 ns.
    assert "| baseline | 50.00 | 25.00 | 25.00 | 100.00 | 5.00 | 11.00 | 2 000 | 2.32 |" in text
    assert "not reached" not in text
    assert "with 12 × 18 PEs" in text and "from an array of 8 columns" in text
    assert "probe" not in text.split("## Where the figures come from")[0]
    assert "None" not in text and "nan" not in text.lower().split()
    for line in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (tmp_path / line).stat().st_size > 5000
    assert text.count("![") == 5


def test_cells_of_the_paper(designs, tmp_path):
    """Each beside the cell here, its overhead over the paper's own baseline in brackets."""
    text = written(designs, tmp_path)
    assert "| baseline | here | 40 000 | 20 000 | 12 | 0 | 180 |" in text
    assert "|  | paper | 472 004 | 31 402 | 1 327 | 514 | 166 |" in text
    last = "| 494 080 (+4.7 %) | 37 452 (+19.3 %) | 2 407 (+81.4 %) | 514 (=) | 246 (+48.2 %) |"
    assert last in text and "adds 1080 RAMB36" in text
    assert "| baseline | 0.046 | 0.420 | 0.842 | 0.244 | 0.009 | 2.032 | 3.712 |" in text
    assert "add up to about 0.12 W less" in text
    assert "| max | here | 1.050 | 0.300 | 0.150 | not available | 1.500 (+50.0 %) |" in text
    assert "|  | paper | 2.512 | – | 0.287 | 0.460 | 2.771 (+8.8 %) | 3.231 (+8.3 %) |" in text
    assert "| max | 28.00 | 2.42 | 223.00 | 254.00 (+13.4 %) |" in text
    assert "Leakage is 89 % of the power of its baseline, 25 % of that of the logic here" in text
    for label, low, efficient, most in (
        ("total area, Table 5", 1.8, 2.7, 8.3),
        ("LUT, Table 4", 3.7, 4.5, 4.7),
        ("power on the FPGA, Table 4", 0.9, 3.6, 3.9),
    ):
        assert f"| **paper**: {label} | +{low} % | +{efficient} % | +{most} % |" in text
    assert "not at hand" not in text
    # What is not compared, with the figures that show why.
    assert (
        "with 180 PEs the paper's baseline takes 472 004 LUT and 166 DSP48E1, the baseline here "
        "40 000 and 180; what its `max` has beyond `efficient` is 909 LUT and 80 DSP48E1." in text
    )
    assert text.count("**Not compared**") == 3
    designs["baseline"]["pes"] = 16
    assert "with 16 PEs" not in written(designs, tmp_path)


def test_clock_of_the_power_that_is_not_reached(designs, tmp_path):
    designs["efficient"]["asic"]["fmax_mhz"] = 99.4
    designs["max"]["asic"]["fmax_mhz"] = 100.0
    text = written(designs, tmp_path)
    assert "Clock not reached (see Fmax above): `efficient`; its power is stated" in text


def test_date_is_that_of_the_measurement(designs, tmp_path):
    """However often the document is written, and from whatever file."""
    assert measurement_dates(designs)["asic"] == ["2026-01-02", "2026-01-02"]
    text = written(designs, tmp_path)
    assert "Measured from 2026-01-02 to 2026-01-03 by `python -m synth report`" in text
    designs["low"]["asic"]["date"] = "2025-12-31"
    text = written(designs, tmp_path)
    assert "`asic` 2025-12-31 to 2026-01-02, `xc7` 2026-01-03" in text
    for design in designs.values():
        for flow in ("sram", "asic", "xc7", "ecp5"):
            design[flow].pop("date", None)
    assert "Measured by `python -m synth report`" in written(designs, tmp_path)


def test_without_probes_and_place_and_route(designs, tmp_path):
    for name in ("probe_main", "probe_predictor"):
        del designs[name]
    for design in designs.values():
        del design["ecp5"]
    text = written(designs, tmp_path)
    assert "Not available: no design with more columns was measured" in text
    assert "Not available: `max` or its smaller probe was not measured." in text
    designs["baseline"]["ecp5"] = {"device": "LFE5U-45F", "fits": True, "not_routed": "no seeds"}
    assert "No design was placed and routed, so there is no Fmax." in written(designs, tmp_path)


def texts_of(draw, designs):
    """All that a plot says, without line ends."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    try:
        caption = draw(axes, designs, analyse(designs))
        legend = axes.get_legend()
        texts = [text.get_text() for text in legend.get_texts()] if legend else []
        ticks = [tick.get_text() for tick in axes.get_xticklabels()]
        return " | ".join([caption, axes.get_title(), *texts, *ticks]).replace("\n", " ")
    finally:
        pyplot.close(figure)


def test_plot_of_power_names_workload_and_technology(designs):
    text = texts_of(plots._power, document.variants_of(designs))
    caption, title, *rest = text.split(" | ")
    for part in (caption, title):
        assert "a made-up run" in part and "made-up cells" in part and "100 MHz" in part, part
    assert "45 nm" in title and "max 2 000 cycles" in rest


def test_legend_says_why_efficient_is_above_max(designs):
    for variant, width in (("efficient", 192), ("max", 128)):
        memory = {"purpose": "predictor memory", "bits": 4 * 8192 * width}
        designs[variant]["sram"]["memories"].append(memory)
        designs[variant]["sram"]["area_by_purpose_um2"]["predictor memory"] = 1e4 * width
    text = texts_of(plots._asic_area, document.variants_of(designs))
    assert "efficient: 768 KiB, 12 operands a word" in text
    assert "max: 512 KiB, 8 operands a word" in text
    assert "one for each row of the array    that the predictor runs on" in text


def test_every_table_is_whole(designs, tmp_path):
    lines = written(designs, tmp_path).splitlines()
    for above, line in itertools.pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|"), line


def test_flows_that_are_missing(designs, tmp_path):
    for design in designs.values():
        del design["asic"], design["ecp5"]
        design["sram"] = {"failed": "no CACTI"}
    text = written(designs, tmp_path)
    assert "## Standard cells, beside the paper's Table 5\n\nNot available: not asked for." in text
    assert "## Memories (SRAM, CACTI 7)\n\nNot available: no CACTI." in text
    assert "| 7-series LUT | +1.0 % | +2.5 % | +50.0 % |" in text
    assert not (tmp_path / "power.png").exists() and (tmp_path / "area_xc7.png").exists()


def test_from_a_file(designs, tmp_path, capsys):
    first = written(designs, tmp_path / "first")
    source = tmp_path / "first" / "report.json"
    assert main(["report", "--from", str(source), "--output-dir", str(tmp_path / "second")]) == 0
    assert (tmp_path / "second" / "report.md").read_text() == first
    assert not (tmp_path / "second" / "report.json").exists()
    assert "standard cells: low +1.0 %, efficient +2.0 %, max +50.0 %" in capsys.readouterr().out
    assert json.loads(source.read_text())["analysis"] == analyse(designs)
    source.write_text("{}")
    assert main(["report", "--from", str(source)]) == 2
    assert "is no report.json: lacks command, designs" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="Report cannot be written"):
        document_command.write_report({"designs": designs}, tmp_path / "file")


ROOT = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").is_file())


def test_committed_document_is_that_of_the_committed_figures(tmp_path):
    """`python -m synth report --from synth/results/report-paper.json --output-dir
    docs/synthesis_results` writes what is there."""
    figures = json.loads((ROOT / "synth" / "results" / "report-paper.json").read_text())
    document_command.write_report(figures, tmp_path, figures=False)
    committed = ROOT / "docs" / "synthesis_results"
    assert (committed / "report.md").read_text() == (tmp_path / "report.md").read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in committed.iterdir()} == names


def test_figures_on_the_page_are_the_committed_ones():
    figures = json.loads((ROOT / "synth" / "results" / "report-paper.json").read_text())
    text = (ROOT / "docs" / "synthesis_report.md").read_text()
    for label, name in (
        ("standard cells, logic", "asic_logic"),
        ("7-series LUT", "xc7_lut"),
        ("power of the logic, a convolution", "asic_power"),
        ("SRAM", "asic_memory"),
    ):
        values = overhead_percent(figures["designs"], name).values()
        assert f"| {label} | {' | '.join(map(percent, values))} |" in text


def test_probes_differ_in_columns_only():
    for preset, columns, predictor in (("paper", 18, 8), ("tiny", 8, 8)):
        configs = report_collect.configurations(preset)
        main_probe, predictor_probe = configs["probe_main"], configs["probe_predictor"]
        assert main_probe.columns == columns
        assert main_probe.cores[0].post_lanes == configs["baseline"].cores[0].post_lanes
        assert predictor_probe.predictor_columns == predictor
        old, new = configs["max"].cores[1], predictor_probe.cores[1]
        assert (new.post_lanes, new.rows) == (old.post_lanes, old.rows)
    assert configs["low"] == make_config(variant="low", preset="tiny")
    assert list(report_collect.configurations("tiny", probes=False)) == list(VARIANTS)


def test_collect_measures_each_once(monkeypatch, capsys):
    """Every flow for every design, the probes without place and route; an error ends it."""
    calls = []

    def measure(flow, config, *, device, seeds, workload, refresh, progress):
        calls.append((flow, config.hash))
        assert (workload is None) == (config.predictor_columns == 8)
        return {"flow": flow}

    monkeypatch.setattr(report_collect, "_measure", measure)
    configs = report_collect.configurations("tiny")
    options = {"device": "LFE5U-25F", "seeds": (1,)}
    designs = report_collect.collect(configs, flows=("ecp5", "xc7"), jobs=2, **options)
    assert len(calls) == len(set(calls)) == 6 + 4
    assert designs["max"]["ecp5"] == {"flow": "ecp5"} and "ecp5" not in designs["probe_main"]
    assert "[10/10]" in capsys.readouterr().err

    def fail(*_arguments, **_options):
        raise ToolError("no tool")

    monkeypatch.setattr(report_collect, "_measure", fail)
    with pytest.raises(ToolError, match="no tool"):
        report_collect.collect(configs, flows=("xc7",), **options)


def test_quick_measures_less(monkeypatch, tmp_path, designs):
    asked = {}

    def collect(configs, **options):
        asked.update(options, names=list(configs), columns=configs["max"].columns)
        return designs

    monkeypatch.setattr(document_command, "collect", collect)
    assert main(["report", "--quick", "--output-dir", str(tmp_path)]) == 0
    assert asked["names"] == list(VARIANTS) and asked["columns"] == 4
    assert asked["placed"] == ("baseline",) and asked["seeds"] == (1,)
    assert "**not the paper's size**" in (tmp_path / "report.md").read_text()
    assert main(["report", "--output-dir", str(tmp_path)]) == 0
    assert asked["names"] == [*VARIANTS, "probe_main", "probe_predictor"]
    assert asked["placed"] == tuple(VARIANTS) and asked["seeds"] == ()


def test_only_what_is_placed_is_mapped_to_the_device(monkeypatch):
    monkeypatch.setattr(report_collect, "_measure", lambda flow, config, **options: {"of": flow})
    configs = report_collect.configurations("tiny", probes=False)
    options = {"device": "LFE5U-25F", "seeds": (1,), "placed": ("baseline",)}
    found = report_collect.collect(configs, flows=("ecp5", "xc7"), **options)
    assert [name for name in found if "ecp5" in found[name]] == ["baseline"]
    assert all("xc7" in design for design in found.values())


@pytest.mark.parametrize(("excess", "rows"), [(0, 0), (1, 1), (5, 2), (99, 4)])
def test_multipliers_that_do_not_fit_become_look_up_tables(monkeypatch, excess, rows):
    """Four columns: each row of the array frees four multiplier blocks."""
    calls = []

    def measure(config, *, device, seeds, refresh, progress):
        calls.append((config.lut_multiplier_rows, seeds))
        return {"over": {"MULT18X18D": excess} if excess and not seeds else {}}

    monkeypatch.setattr(report_collect.fpga, "measure", measure)
    options = {"device": "LFE5U-25F", "refresh": False, "progress": print}
    config = make_config(variant="low", preset="tiny")
    report_collect._ecp5(config, seeds=(7,), **options)
    assert calls == [(0, ()), (rows, (7,))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--flows", "asic,vlsi"], "must be of sram, asic, xc7, ecp5, not 'asic,vlsi'"),
        (["--seeds", "one"], "must be numbers separated by commas, not 'one'"),
        (["--jobs", "0"], "must be an integer from 1 to 99, not '0'"),
        (["--preset", "huge"], "invalid choice: 'huge'"),
    ],
)
def test_bad_options(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["report", *options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_how_figures_are_written():
    assert (count(1234567), count(None), figure(1.005, 1)) == ("1 234 567", "–", "1.0")
    assert (percent(0.0), percent(-0.01)) == ("±0.0 %", "±0.0 %")
    assert (percent(-1.25), delta(3, 2), delta(0, 0), delta(1, 0)) == (
        "-1.2 %",
        "+50.0 %",
        "=",
        "new",
    )
    with pytest.raises(ValueError, match="Row has 1 cells, the table 2"):
        table(["a", "b"], [["c"]])
