"""What the compiler has estimated, beside what was counted."""

from dataclasses import replace

import pytest

from compiler.networks.cells import Cell, Outcome, append_outcome
from perf.counted import Store
from perf.report.estimates import Estimates, estimated_glance, estimated_table
from perf.report.figures_17_19 import figures_17_19
from perf.report.formulas import Formulas
from perf.report.tables_2_3 import tables_2_3
from perf.report.wanted import Wanted

#: (network, input, batch, variant) -> cycles of a batch of BP and of GP.
OUTCOMES = {
    ("vgg13", "3x32x32", 128, "baseline"): (9000, None),
    ("vgg13", "3x32x32", 64, "baseline"): (5000, None),
    ("vgg13", "3x32x32", 128, "low"): (10000, 5000),
    ("vgg13", "3x32x32", 64, "low"): (6000, 4000),
    ("vgg13", "3x32x32", 64, "max"): (5500, 2500),
    ("resnet50", "3x32x32", 128, "low"): (10000, 5000),
    ("transformer", "32+32", 16, "baseline"): (800, None),
    ("transformer", "32+32", 16, "max"): (900, 300),
}


@pytest.fixture
def estimates(tmp_path):
    path = tmp_path / "networks.jsonl"
    for (network, size, batch, variant), cycles in OUTCOMES.items():
        names = ("bp", "gp") if variant != "baseline" else ("bp",)
        cell = Cell(network=network, input=size, batch=batch, variant=variant,
                    method="adagp" if "gp" in names else "bp", preset="paper")  # fmt: skip
        programs = {name: {"cycles": own} for name, own in zip(names, cycles)}
        append_outcome(path, Outcome(cell=cell, programs=programs, state=f"of{batch}"))
        if variant == "max":
            larger = replace(cell, batch=1024)
            append_outcome(path, Outcome(cell=larger, reason="it is too large"))
    return Estimates(path)


WANTED = Wanted(networks=["resnet50", "vgg13"], data=["cifar10", "cifar100"], swept=[])


def test_the_largest_batch_that_both_have(estimates):
    low, most = (estimates.of(WANTED, "vgg13", "cifar10", name) for name in ("low", "max"))
    assert (low.images, low.state, low.speed_up("B")) == (128, "of128", 2 * 9000 / 15000)
    assert (most.images, most.state, most.speed_up("B")) == (64, "of64", 2 * 5000 / 8000)
    assert low.summary == {"A": low.speed_up("A"), "B": 1.2, "images": 128, "commit": "of128"}
    assert estimates.of(WANTED, "vgg13", "cifar10", "efficient") is None
    assert estimates.of(WANTED, "resnet50", "cifar10", "low") is None  # there is no baseline
    assert estimates.of(WANTED, "vgg13", "cifar100", "low") is None  # other classes
    base = WANTED.cell("vgg13", "cifar10", "baseline")
    assert estimates.speed(base, base) is None
    other = Wanted(networks=["vgg13"], settings=("rows=8",))
    assert estimates.of(other, "vgg13", "cifar10", "low") is None


def test_a_table_of_what_is_known(estimates, tmp_path):
    (table,) = estimated_table(WANTED, "cifar10", estimates)
    assert [row[0] for row in table.rows] == ["vgg13", "mean"]
    assert table.rows[0][1:3] == ["128, 64", "1.200"] and table.rows[0][4:7] == ["", "", "1.250"]
    assert table.rows[0][-1] == "of128, of64"
    assert table.rows[1][2] == "1.200 (1)" and table.rows[1][4] == ""
    assert estimated_glance(WANTED, "cifar10", estimates) == "; estimated 1.25 (mean of 1)"
    for data, known in (("cifar100", estimates), ("cifar10", Estimates(tmp_path / "none"))):
        assert estimated_table(WANTED, data, known) == []
        assert estimated_glance(WANTED, data, known) == ""


def test_it_stands_beside_what_was_counted_and_never_for_it(estimates, tmp_path):
    store = Store(tmp_path / "cycles.jsonl", published=None)
    wanted = Wanted(networks=["vgg13"], data=["cifar10"], swept=[])
    section = figures_17_19(wanted, store, Formulas(), estimates)[0]
    assert section.glance[0][2].endswith("counted not run; estimated 1.25 (mean of 1)")
    found = section.data["cifar10"]["vgg13"]
    assert found["counted"]["max"] is None and found["estimated"]["max"]["B"] == 1.25
    assert found["estimated"]["efficient"] is None
    transformer = tables_2_3(wanted, store, estimates)[0]
    assert transformer.glance[0][2] == "not run; estimated 1.333 (batch 16)"
