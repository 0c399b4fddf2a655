"""Lists of jobs that work on what others leave, all under way at the same time."""

import random
from functools import partial
from itertools import groupby

import pytest

from compiler.codegen.dependencies import Region
from compiler.codegen.jobs.job import Job, Need
from compiler.codegen.jobs.job_runner import JobRunner
from compiler.codegen.jobs.pipeline import Pipeline, Touched
from compiler.codegen.scratchpad import Scratch
from hw.isa.encoding import Opcode
from tests.compiler.codegen.jobs.machine import CONFIG, Machine, check, write

X, Y, Z = 0, 4000, 8000


def job(lane, number, loads=(), stores=(), cycles=1):
    """A job and what it touches."""
    touched = Touched(*([Region("dram", *part) for part in parts] for parts in (loads, stores)),
                      cycles)  # fmt: skip
    return Job((Need(number, 1),), touched, lane=lane, like=lane, at=(number,))


def pipeline(*lists):
    return Pipeline(lists, lambda job: job.run)


def order(found):
    return [(job.lane, job.needs[0].key) for job in found.jobs]


def test_no_earlier_than_necessary():
    """A job comes when those before it have left what the one behind it will load, too; what nobody
    needs comes last."""
    ahead = [job(1, n, stores=[(n, n + 1)]) for n in range(6)]
    main = [job(0, n, loads=[(n, n + 1)]) for n in range(4)]
    assert order(pipeline(ahead, main)) == [
        (1, 0), (1, 1), (0, 0), (1, 2), (0, 1), (1, 3), (0, 2), (0, 3), (1, 4), (1, 5),
    ]  # fmt: skip


def test_three_in_a_row():
    """What the last list needs of the first goes through the one between them."""
    first = [job(1, n, stores=[(n, n + 1)]) for n in range(8)]
    second = [job(2, n, loads=[(2 * n, 2 * n + 2)], stores=[(100 + n, 101 + n)]) for n in range(4)]
    last = [job(0, n, loads=[(100 + n, 101 + n)]) for n in range(4)]
    found = order(pipeline(first, second, last))
    place = {entry: number for number, entry in enumerate(found)}
    assert sorted(found) == sorted(place) and len(found) == 16
    for n in range(4):
        assert place[1, 2 * n + 1] < place[2, n] < place[0, n]
        # Loads come while the job in front is under way.
        assert place[2, n] < place[0, max(0, n - 1)]


def test_evenly_where_a_job_needs_many():
    """The first job of each eight needs four others, which come among the seven before."""
    ahead = [job(1, n, stores=[(n, n + 1)]) for n in range(16)]
    main = [job(0, n, loads=[(n // 8 * 4, n // 8 * 4 + 4)])._replace(like=n % 8) for n in range(32)]
    found = [lane for lane, _ in order(pipeline(ahead, main))]
    assert found[:4] == [1] * 4
    parts = [(lane, len(list(part))) for lane, part in groupby(found[4:])]
    assert max(count for lane, count in parts[:-1] if lane) == 1
    assert max(count for lane, count in parts[:-1] if not lane) <= 3


def test_what_is_written_again():
    """What a product writes over must have been read, and written, before."""
    ahead = [job(1, n, loads=[(50 - n, 51 - n)], stores=[(90 - n, 91 - n)]) for n in range(4)]
    read = order(pipeline(ahead, [job(0, 0, stores=[(48, 49)])]))
    written = order(pipeline(ahead, [job(0, 0, stores=[(89, 90)])]))
    assert (read.index((0, 0)), written.index((0, 0))) == (3, 2)


@pytest.mark.parametrize(("cycles", "hidden"), [((1, 3), 3), ((3, 1), 3)])
def test_what_is_hidden(cycles, hidden):
    """All but the first of the shorter jobs, or the last."""
    ahead = [job(1, n, stores=[(n, n + 1)], cycles=cycles[0]) for n in range(4)]
    main = [job(0, n, loads=[(n, n + 1)], cycles=cycles[1]) for n in range(4)]
    assert pipeline(ahead, main).hidden == hidden


def test_few_of_the_jobs_that_are_like_each_other_are_looked_at():
    """The others touch what follows from these: an image, a row, and a place that moves with it."""
    looked = []

    def touched(job):
        looked.append(job.at)
        image, row, late = job.at
        return Touched([], [Region("dram", *(image + 2 * row - late + n for n in (0, 1)))], 1)

    places = [(10 * image, row, 2 * row) for image in range(5) for row in range(2)]
    ahead = [Job((Need(place, 1),), None, lane=1, like="ahead", at=place) for place in places]
    main = [job(0, n, loads=[(n, n + 1)]) for n in (30, 40)]
    found = Pipeline([ahead, main], lambda job: touched(job) if job.lane else job.run)
    assert [job.at for job in found.jobs if job.lane] == places
    assert [n for n, job in enumerate(found.jobs) if not job.lane] == [10, 11]
    assert looked == [(0, 0, 0), (0, 1, 2), (10, 0, 0)]


def test_nothing_is_hidden_behind_what_needs_everything():
    ahead = [job(1, n, stores=[(n, n + 1)], cycles=5) for n in range(4)]
    main = [job(0, n, loads=[(0, 4)], cycles=5) for n in range(4)]
    found = pipeline(ahead, main)
    assert found.hidden == 0 and [lane for lane, _ in order(found)] == [1] * 4 + [0] * 4


class Lanes(Machine):
    """A lane of products, and one ahead of them, each with half of the memory."""

    def __init__(self, recorder):
        super().__init__(recorder)
        words = self.scratch.words
        self.scratches = [
            Scratch(CONFIG, 0, part) for part in ((0, words // 2), (words // 2, words))
        ]
        self.runner = JobRunner(self.scratches, recorder)

    def two(self, items, *, pieces, tiles, size=4):
        """``y = f(x)`` in pieces of an item, and ``z = g(y)`` in tiles of all of an item."""
        part = size * pieces
        ahead, main, touched = [], [], {}
        for item in range(items):
            for piece in range(pieces):
                offset = item * part + piece * size
                needs = Need(object(), size), self.need(X + offset, size)
                run = partial(self._do, 1, Y + offset, size)
                ahead.append(Job(needs, run, lane=1, like=("ahead", piece), at=(item,)))
                touched[id(run)] = Touched(
                    [Region("dram", X + offset, X + offset + size)],
                    [Region("dram", Y + offset, Y + offset + size)],
                    1,
                )
            for tile in range(tiles):
                place = Y + item * part
                goal = Z + (item * tiles + tile) * 2
                needs = Need(object(), 2), self.need(place, part)
                run = partial(self._do, 0, goal, 2)
                main.append(Job(needs, run, like=("main", tile), at=(item,)))
                touched[id(run)] = Touched(
                    [Region("dram", place, place + part)], [Region("dram", goal, goal + 2)], 4
                )
        found = Pipeline([ahead, main], lambda job: touched[id(job.run)])
        self.runner.run(found.jobs)

    def _do(self, lane, address, size, out, block):
        self.scratch = self.scratches[lane]
        self._tile(address, size, 0, True, out, block)


@pytest.mark.parametrize(("pieces", "tiles"), [(1, 1), (2, 3), (3, 20), (2, 40)])
def test_loops_of_what_others_leave(pieces, tiles, seed):
    """What an iteration loads the one before has stored: a loop all the same, in which nothing is
    loaded too soon."""

    def layer(machine):
        Lanes(machine.recorder).two(60, pieces=pieces, tiles=tiles)

    loops = sum(command.opcode is Opcode.REPEAT for command in write([layer]))
    assert loops
    commands = check([layer], random.Random(seed), loops=loops)
    assert len(commands) < 15 * (4 * pieces + 4 * tiles)
