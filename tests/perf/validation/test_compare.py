"""How model and RTL are compared.

Covers: perf/validation/cases.py, perf/validation/command.py, perf/validation/picture.py.
"""

from dataclasses import replace

import pytest

from hw.config import make_config
from hw.isa.encoding import Opcode, encode
from perf.__main__ import main
from perf.machine.model import BASE, run
from perf.validation.cases import CASES, points
from perf.validation.command import _good
from perf.validation.compare import (
    Comparison,
    compare,
    markdown,
    summaries,
    summary_table,
    totals,
)
from perf.validation.measured import Measured
from perf.validation.picture import draw
from verif.programs.faulty_programs import HALT, vector

GOOD = Comparison(
    case="layers", variant="baseline", preset="tiny", latency=10, number=0, rtl=1000, model=1000,
    counters={"READ_BYTES": (64, 64), "WRITE_BYTES": (8, 8), "CORE0_POST_STALL": (5, 5)},
)  # fmt: skip
LATE = replace(GOOD, number=1, model=1004, counters=GOOD.counters | {"CORE0_POST_STALL": (5, 9)})
WRONG = replace(GOOD, latency=30, counters=GOOD.counters | {"READ_BYTES": (64, 72)})


def test_the_worst_of_each_case_is_shown():
    found = summaries([GOOD, LATE, WRONG])
    assert [(item.latency, item.programs) for item in found] == [(10, 2), (30, 1)]
    assert found[0].error == pytest.approx(0.004)
    assert (found[0].counter, found[0].exact_bytes) == ("CORE0_POST_STALL", True)
    assert found[0].difference == pytest.approx(0.004)
    assert (found[1].error, found[1].exact_bytes) == (0, False)
    assert len(summary_table(found).rows) == 2
    text = markdown(found, [GOOD, LATE, WRONG])
    assert "| layers | baseline | tiny | 10 | 2 | 2,000 | +0.400% | CORE0_POST_STALL |" in text
    assert "WRONG" in text
    sentence = totals([GOOD, LATE, WRONG])
    assert "0.4000% at most (layers 1, baseline, tiny, latency 10)" in sentence
    assert "1 programs exact in every counter; off-chip bytes wrong in 1" in sentence


def test_the_goal_can_be_missed():
    assert _good([GOOD] * 3 + [LATE])
    assert not _good([GOOD, LATE, LATE])
    assert not _good([GOOD] * 9 + [replace(GOOD, model=1011)])
    assert not _good([GOOD] * 9 + [WRONG])


def test_both_models():
    """The same programs on both; that of events leaves out what it does not know."""
    config = make_config(variant="baseline", preset="tiny")
    commands = vector(config, steps=20) + HALT
    known = Measured(
        config=config.as_dict(), commands=commands, offset=0, latency=30, base=BASE, loop=None,
        counters=run(commands, config, latency=30, compiled=False).counters,
    )  # fmt: skip
    rows = replace(known, commands=encode(Opcode.ROWS, level=0, action=0) + HALT)
    point = points(["engines"], ("tiny",), [30], quick=True)[0]
    by_cycles = compare(point, [known], plain=True)
    for found in (*by_cycles, *compare(point, [rows, known], model="events", plain=True)):
        assert (found.rtl, found.model) == (known.counters["CYCLES"],) * 2
    assert found.number == 1
    with pytest.raises(ValueError, match="a window at 0x3000, not at 0x4000"):
        compare(point, [replace(known, base=0x4000)], model="events")


def test_a_picture_is_drawn(tmp_path):
    path = tmp_path / "points.png"
    draw([GOOD, LATE, replace(GOOD, preset="paper")], str(path))
    assert path.stat().st_size > 5000


def test_points_of_a_selection():
    found = points(["conv", "train-adagp"], ("tiny",), [10, 30], quick=False)
    assert [(p.case, p.variant, p.latency) for p in found] == [
        ("conv", "baseline", 10), ("conv", "baseline", 30),
        ("train-adagp", "max", 10), ("train-adagp", "max", 30),
    ]  # fmt: skip
    quick = points([], ("tiny", "paper"), [10], quick=True)
    assert {point.preset for point in quick} == {"tiny"}
    assert {point.case for point in quick} == {n for n, case in CASES.items() if case.quick}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "conv", "walk"], "case must be one of engines, loops"),
        (["--latency", "10", "-3"], "latency must be at least 0, not -3"),
        (["--case", "matmul", "--preset", "tiny"], "none of these cases runs at these presets"),
    ],
)
def test_what_cannot_be(arguments, message, capsys):
    assert main(["validate", *arguments]) == 2
    assert message in capsys.readouterr().err
