"""Tables 4 and 5, and what sections are made of.

Covers: perf/report/section.py.
"""

import json

import pytest

import paper
from perf.counted import Cell
from perf.report.section import commands_of, percent
from perf.report.tables_4_5 import RESULTS, tables_4_5


def test_overheads_are_those_of_the_file():
    fpga, asic = tables_4_5()
    beyond = json.loads(RESULTS.read_text())["analysis"]["overhead_percent"]
    assert asic.data["overhead_percent"]["asic_logic"] == beyond["asic_logic"]
    text = fpga.markdown(lambda picture: "")
    luts = paper.table("4a")
    share = 100 * (luts["max"]["CLB LUTs"] / luts["baseline"]["CLB LUTs"] - 1)
    assert f"| {percent(beyond['xc7_lut']['max'])} | {share:+.1f} % |" in text
    assert "+0.0" not in text and "-" not in text.split("| power |")[1].split("\n")[0]
    assert "not measured" in text  # power of an FPGA


def test_the_papers_text_and_its_tables():
    """They differ by a tenth; both are said."""
    fpga, asic = tables_4_5()
    text = paper.figures()["overheads_percent"]
    for section, name in ((fpga, "fpga_power"), (asic, "asic_area")):
        low, efficient, largest = text[name].values()
        assert f"({low}, {efficient} and {largest} % more" in section.paper
    area = paper.table("5a")
    own = [100 * (area[name]["total area"] / area["baseline"]["total area"] - 1)
           for name in ("low", "efficient", "max")]  # fmt: skip
    assert "take {:.1f}, {:.1f} and {:.1f} % more area".format(*own) in asic.paper


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="must be what python -m synth report has written"):
        tables_4_5(path)


def test_commands_count_what_lacks():
    def cell(network, variant, **others):
        return Cell(network=network, input="3x32x32", batch=8, variant=variant,
                    method="bp" if variant == "baseline" else "adagp", **others)  # fmt: skip

    names = ("vgg13", "vgg16")
    cells = [cell(name, variant) for name in names for variant in ("baseline", "max")]
    cells += [cell("vgg19", "max"), cell("vgg19", "max", classes=100)]
    assert commands_of([*cells, cells[0]]) == [
        "count --network vgg13 vgg16 --input 3x32x32 --batch 8 --variant baseline max",
        "count --network vgg19 --input 3x32x32 --batch 8 --variant max",
        "count --network vgg19 --input 3x32x32 --batch 8 --classes 100 --variant max",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "not measured"), (-0.01, "±0.0 %"), (3.14, "+3.1 %"), (-2, "−2.0 %")]
)
def test_percent(value, text):
    assert percent(value) == text
