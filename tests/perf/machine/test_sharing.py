"""Who waits for whom.

Covers: perf/machine/kernels/sharing.py.
"""

import numpy as np
import pytest

from perf.machine.events.work import WORK
from perf.machine.kernels.event_state import QUEUE
from perf.machine.kernels.queues import LOAD, MATMUL, POST, QUEUES, STORE, VECTOR
from perf.machine.plain import plain_kernel


def rates(*running, cores=1):
    """Rates of (queue, work of 100 cycles) that are at work together."""
    works, queues = np.zeros(len(running), WORK), np.zeros(cores * QUEUES, QUEUE)
    queues["running"], queues["rate"] = -1, 1
    for number, (queue, fields) in enumerate(running):
        works[number]["cycles"] = 100
        for name, value in fields.items():
            works[number][name] = value
        queues[queue]["running"] = number
    plain_kernel("sharing", "share")(
        works.view(np.recarray), np.arange(len(running)), queues.view(np.recarray), cores, 0.0
    )
    return [float(queues[queue]["rate"]) for queue, _ in running]


def test_one_alone_is_not_slowed_down():
    for queue in (LOAD, STORE, VECTOR):
        assert rates((queue, {"words": 100, "reads": 100, "read_beats": 100})) == [1]


def test_words_are_written_one_after_the_other():
    """POST before VECTOR before LOAD."""
    post, load = (POST, {"words": 40}), (LOAD, {"words": 100})
    vector = (VECTOR, {"words": 25})
    assert rates(post, load) == [1, pytest.approx(0.6)]
    assert rates(load, vector) == [pytest.approx(0.75), 1]
    assert rates(post, load, vector) == [1, pytest.approx(0.35), 1]
    assert rates((POST, {"words": 90}), vector) == [1, pytest.approx(0.1 / 0.25)]
    assert rates(load, (VECTOR, {"words": 100})) == [0.01, 1]


def test_words_are_read_once_per_bank():
    """The array before VECTOR before STORE, where they read the same bank."""
    array = (MATMUL, {"reads": 90, "banks": 1})
    store = {"reads": 100, "write_beats": 75}
    assert rates(array, (STORE, {**store, "banks": 2})) == [1, 1]
    assert rates(array, (STORE, {**store, "banks": 1}))[1] == pytest.approx(0.1)
    vector = {"reads": 60, "words": 2}
    assert rates((STORE, {**store, "banks": 4}), (VECTOR, {**vector, "banks": 2})) == [1, 1]
    found = rates((STORE, {**store, "banks": 4}), (VECTOR, {**vector, "banks": 4}))
    assert found == [pytest.approx(0.4), 1]
    # Half of its words are in another bank.
    found = rates((STORE, {**store, "banks": 4}), (VECTOR, {**vector, "banks": 6}))
    assert found == [pytest.approx(0.7), 1]
    found = rates((MATMUL, {"reads": 70, "banks": 4}), (VECTOR, {**vector, "banks": 4}))
    assert found == [1, pytest.approx(0.3 / 0.6)]


def test_cores_share_the_bus():
    """By beats, or by the words that these wait for."""
    words = {"read_beats": 60, "words": 80}
    assert rates((LOAD, words), (QUEUES + LOAD, words), cores=2) == pytest.approx([1 / 1.6] * 2)
    beats = {"read_beats": 80, "words": 60}
    assert rates((LOAD, beats), (QUEUES + LOAD, beats), cores=2) == pytest.approx([1 / 1.6] * 2)
