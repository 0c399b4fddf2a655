"""The figures of the paper: tables that are whole and agree with its text, and their reader.

Covers: paper/__init__.py.
"""

import pytest

import paper
from hw.config import VARIANTS

NUMBERS = ("1", "2", "3", "4a", "4b", "5a", "5b")


def test_source_is_named():
    source = paper.figures()["source"]
    assert source["arxiv"] == "2305.13236" and source["arxiv"] in paper.SOURCE
    assert source["venue"] in paper.SOURCE and source["authors"][0].split()[-1] in paper.SOURCE


@pytest.mark.parametrize("number", NUMBERS)
def test_every_row_has_a_cell_for_each_column(number):
    tables = paper.figures()["tables"]
    assert tuple(tables) == NUMBERS
    entry = tables[number]
    for row, cells in entry["rows"].items():
        assert len(cells) == len(entry["columns"]), f"Table {number}, {row}: {cells}"
        assert all(isinstance(cell, int | float) for cell in cells), f"Table {number}, {row}"


def test_hardware_tables_have_the_four_variants():
    for number in ("4a", "4b", "5a", "5b"):
        assert tuple(paper.table(number)) == tuple(VARIANTS), number


def test_sums_of_table_5():
    """Cells and interconnect make the area, to the last digit but one that is rounded; the parts of
    power make its total to the three digits that are printed."""
    for variant, row in paper.table("5a").items():
        parts = row["total cell area"] + row["net interconnect"]
        assert abs(parts - row["total area"]) <= 1, f"{variant}: {parts}, {row['total area']}"
    for variant, row in paper.table("5b").items():
        parts = row["internal"] + row["switching"] + row["leakage"]
        assert abs(parts - row["total"]) <= 1000, f"{variant}: {parts}, {row['total']}"


def test_stated_overheads_are_those_of_the_tables():
    """The text cuts digits off instead of rounding: 1.79 is 1.7."""
    stated = paper.figures()["overheads_percent"]
    for name, number, column in (
        ("asic_area", "5a", "total area"),
        ("fpga_power", "4b", "total"),
    ):
        rows = paper.table(number)
        base = rows["baseline"][column]
        for variant, per_cent in stated[name].items():
            exact = 100 * (rows[variant][column] - base) / base
            assert int(10 * exact) / 10 == per_cent, f"{name}, {variant}: {exact}"


def test_reader_names_its_tables():
    assert paper.table("4a")["max"]["DSP48E1"] == 246
    with pytest.raises(ValueError, match=r"must be one of 1, 2, 3, 4a, 4b, 5a, 5b, not '4'"):
        paper.table("4")


def test_a_caller_cannot_change_the_figures():
    paper.figures()["tables"].clear()
    assert paper.figures()["tables"]
