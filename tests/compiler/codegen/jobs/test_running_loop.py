"""When a loop of jobs has a period."""

import random
from functools import partial
from unittest.mock import Mock

import pytest

from compiler.codegen.dependencies import Recorder
from compiler.codegen.jobs.job import Job, JobLoop, Need
from compiler.codegen.jobs.running_loop import RunningLoop
from compiler.codegen.scratchpad import Scratch
from tests.compiler.codegen.jobs.machine import CONFIG, Machine, check


class Parted(Machine):
    """Each tile of an item has a result of its own."""

    def parts(self, x, y, count, tiles, *, size=30, part=5):
        jobs = [
            Job((Need(object(), part), self.need(x + item * size, size)),
                partial(self._tile, y + (item * tiles + tile) * part, part, 0, True),
                like=tile, at=(item,))
            for item in range(count) for tile in range(tiles)
        ]  # fmt: skip
        self.runner.run(jobs)


def test_what_the_first_items_find_there_does_not_disturb(seed):
    """The first items have been read before. Others take turns at two places, because one is loaded
    while the one in front is in use."""

    def layer(machine):
        parted = Parted(machine.recorder)
        parted.layer(0, 4000, 2, size=30, like=False)
        parted.parts(0, 5000, 60, tiles=6)

    commands = check([layer], random.Random(seed), loops=1)
    assert len(commands) < 120


@pytest.mark.parametrize(("lanes", "commands", "empty"), [
    (1, 40, False), (1, 100, True), (2, 20, False), (2, 40, True),
])  # fmt: skip
def test_long_iterations_begin_empty(lanes, commands, empty):
    """What one lane has loaded before would be loaded again; several lanes go on meanwhile, so that
    shorter iterations are worth it."""
    jobs = [Job((Need(item, 4, Mock()),), Mock(), like=0, at=(item,)) for item in range(20)]
    loop = RunningLoop(
        [Scratch(CONFIG) for _ in range(lanes)], Recorder(CONFIG, loops=True),
        JobLoop(first=0, size=1, count=20), jobs, "loop", 0, commands=commands,
    )  # fmt: skip
    assert (loop._common is not None) == empty
    assert loop.begins_empty(8) == (empty and lanes == 1)
