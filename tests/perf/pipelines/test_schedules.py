"""Pipelines: the paper's steps, and rules that every simulated schedule keeps.

Covers: perf/pipelines/simulate.py.
"""

from fractions import Fraction
from itertools import pairwise

import pytest

import paper
from perf.pipelines.schedules import SCHEDULES, Stage, pipeline, steps
from perf.pipelines.simulate import Task, simulate

EVEN = [Stage()] * 4
UNEVEN = [
    Stage(forward=Fraction(1, 2)), Stage(forward=Fraction(2), backward=Fraction(3)),
    Stage(backward=Fraction(1)), Stage(),
]  # fmt: skip


def test_figure_20():
    published = paper.figures()["speed_up_over_baseline"]["figure_20_pipelines_4_devices"]
    assert set(published) == {"gpipe", "dapple", "chimera"}
    for name, entry in published.items():
        found = steps(name, EVEN, 4)
        assert (found.batch, found.pair) == (entry["steps_per_batch"], entry["steps_gp_then_bp"])
    assert steps("chimera-in-order", EVEN, 4).pair == 22
    assert float(steps("gpipe", EVEN, 4).speed_up) == 1.68
    assert steps("gpipe", EVEN, 4).bubbles == Fraction(9, 21)


@pytest.mark.parametrize("stages", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rules(schedule, stages):
    """Everything is done once, nothing at the same time on a device, nothing before what it
    needs, and every stage does one batch after the other, so that weights are those that the batch
    before has left."""
    placed = pipeline(schedule, stages, 4, ["GP", "BP", "GP"])
    assert len({each.task.name for each in placed}) == len(placed) == 4 * 4 * (1 + 2 + 1)
    ends = {each.task.name: each.end for each in placed}
    for each in placed:
        assert all(ends[name] <= each.begin for name in each.task.needs), each.task.name
        stage = stages[each.task.stage]
        assert each.task.time == (stage.backward if each.task.kind == "backward" else stage.forward)
    for device in range(4):
        own = sorted((e for e in placed if e.task.device == device), key=lambda e: e.begin)
        assert all(a.end <= b.begin for a, b in pairwise(own))
    for number in range(4):
        batches = sorted((e.begin, e.task.batch) for e in placed if e.task.stage == number)
        order = [batch for _, batch in batches]
        assert order == sorted(order), f"stage {number}"


def test_long_pipelines_have_no_gain_beyond_that_of_one_device():
    """Of 64 micro-batches on two devices a pair takes two thirds of two batches."""
    found = steps("gpipe", [Stage()] * 2, 64)
    assert found.batch == 3 * 65
    assert 1.5 < found.speed_up < 1.51


def test_tasks_that_wait_for_each_other():
    def task(name, needs):
        return Task(name=name, device=0, time=Fraction(1), needs=needs, order=(0,), kind="GP",
                    batch=0, micro_batch=0, stage=0)  # fmt: skip

    with pytest.raises(ValueError, match="task a can never begin: it waits for"):
        simulate([task("a", ("b",)), task("b", ("a",))], strict=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pipe", EVEN, 4, ["BP"]), "schedule must be one of gpipe, .* not 'pipe'"),
        (("gpipe", EVEN[:1], 4, ["BP"]), "devices must be at least 2, not 1"),
        (("gpipe", EVEN, 0, ["BP"]), "micro_batches must be at least 1, not 0"),
        (("gpipe", EVEN, 4, ["FP"]), "a phase must be GP or BP, not 'FP'"),
        (("chimera", EVEN, 3, ["BP"]), "micro_batches must be even for chimera, not 3"),
    ],
)
def test_messages(arguments, message):
    with pytest.raises(ValueError, match=message):
        pipeline(*arguments)
