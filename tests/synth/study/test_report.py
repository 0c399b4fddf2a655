"""The report on made-up measurements: a document that says what they say, plots, the command.

Covers: synth/study.
"""

import itertools
import json
import re
from pathlib import Path

import pytest

from hw.config import VARIANTS
from synth.__main__ import main
from synth.common.errors import ToolError
from synth.study import document, document_command, plots
from synth.study.analysis import measurement_dates, overhead_percent
from synth.study.document import analyse
from synth.study.tables import count, delta, figure, percent, table


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
        "With 180 PEs the paper's baseline takes 472 004 LUT and 166 DSP48E1, the baseline here "
        "40 000 and 180; what its `max` has beyond `efficient` is 909 LUT and 80 DSP48E1." in text
    )
    assert text.count("**Not compared**") == 3
    designs["baseline"]["pes"] = 16
    assert "With 1" not in written(designs, tmp_path)


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


def test_parts_of_a_plot_are_in_one_order():
    """Memories first, then by size, then by name; the small ones are last."""
    columns = [{"b": 5, "c": 5, "a": 5, "SRAM: x": 1, "d": 9, "e": 0.1, "f": 0.1}]
    merged, ordered = plots._merge_small(columns)
    assert ordered == ["SRAM: x", "d", "a", "b", "c", "other"]
    assert merged[0]["other"] == pytest.approx(0.2)


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


def test_quick_measures_less(monkeypatch, tmp_path, designs):
    asked = {}

    def collect(configs, **options):
        asked.update(options, names=list(configs), columns=configs["max"].columns)
        return designs

    monkeypatch.setattr(document_command, "collect", collect)
    assert main(["report", "--quick", "--output-dir", str(tmp_path)]) == 0
    assert asked["names"] == list(VARIANTS) and asked["columns"] == 4
    assert asked["placed"] == ("baseline",) and asked["seeds"] == ()
    assert "**not the paper's size**" in (tmp_path / "report.md").read_text()
    assert main(["report", "--quick", "--seeds", "2,3", "--output-dir", str(tmp_path)]) == 0
    assert asked["seeds"] == (2, 3)
    assert "`python -m synth report --quick --seeds 2,3`" in (tmp_path / "report.md").read_text()
    assert main(["report", "--output-dir", str(tmp_path)]) == 0
    assert asked["names"] == [*VARIANTS, "probe_main", "probe_predictor"]
    assert asked["placed"] == tuple(VARIANTS) and asked["seeds"] == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--flows", "asic,vlsi"], "must be of sram, asic, xc7, ecp5, not 'asic,vlsi'"),
        (["--seeds", "one"], "must be numbers separated by commas, not 'one'"),
        (["--jobs", "0"], "must be an integer of at least 1, not '0'"),
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
