"""When a loop of jobs has a period."""

import random
from functools import partial

from compiler.codegen.jobs.job import Job, Need
from tests.compiler.codegen.jobs.machine import Machine, check


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
