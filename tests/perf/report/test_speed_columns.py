"""Speed-ups variant by variant, and their means."""

from perf.analytic.training import Batches
from perf.counted import Count, Store
from perf.counted.count import BatchCount
from perf.report.estimates import Estimates
from perf.report.figures_17_19 import figures_17_19
from perf.report.formulas import Formulas
from perf.report.section import Table
from perf.report.speed_columns import columns, headings, means
from perf.report.wanted import Speed, Wanted


def speed(predicted):
    """1.6 and 1.0 for 25 and 100."""
    return Speed(batches=Batches(plain=100, learning=100, predicted=predicted), state="a")


def test_columns():
    assert headings(["low", "max"]) == ["`low` B", "`low` A", "`max` B", "`max` A"]
    found = columns([speed(25), None], ["", "no program"])
    assert found[0] == "1.600" and 1.5 < float(found[1]) < 1.6
    assert found[2:] == ["no program", "no program"]


def test_means_are_of_what_is_known():
    found = means([[speed(25), None, None], [speed(100), speed(25), None]])
    assert found[0] == "1.300 (2)" and found[2] == "1.600 (1)" and found[4:] == ["", ""]


def test_an_estimate_stands_where_something_is_not_counted(tmp_path):
    """Two networks: with the last count there is nothing left that is estimated."""
    wanted = Wanted(
        networks=["vgg13", "vgg16"], data=["cifar10"], swept=[], others=False, rivals=False
    )
    store, estimates = Store(tmp_path / "cycles.jsonl", published=None), Estimates()

    def shown():
        section = figures_17_19(wanted, store, Formulas(), estimates)[0]
        tables = [part for part in section.parts if isinstance(part, Table)]
        said = [table.caption for table in tables if "*estimated*" in table.caption]
        return tables[1], len(said), "estimated" in section.glance[0][2]

    cells = list(wanted.cells())
    cycles = {"baseline": (400,), "low": (400, 240), "efficient": (400, 100), "max": (400, 0)}
    for cell in cells:
        table, estimated, glance = shown()
        assert estimated == 1 and table.rows[-1][0] == "mean"
        numbers = (BatchCount(cycles=c, counters={}, layers={}) for c in cycles[cell.variant])
        store.add(Count(cell=cell, batches=dict(zip(("bp", "gp"), numbers, strict=False))))
    table, estimated, glance = shown()
    assert not estimated and not glance
    assert [row[0] for row in table.rows] == ["vgg13", "vgg16", "mean"]
    assert [row[4] for row in table.rows] == ["1.250", "1.250", "1.250 (2)"]
    assert [row[8] for row in table.rows] == ["2.000", "2.000", "2.000 (2)"]
