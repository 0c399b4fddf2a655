"""Work of a layer on blocks of the buffer, job by job, and where the same jobs come again."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compiler.codegen.scratchpad import Block

__all__ = ["Job", "JobLoop", "Need", "find_loops"]


class Need(NamedTuple):
    """Contents of a block: a ``key``, their size, and what loads them; None for results, which
    the jobs themselves write, and drop when they have been stored. With a ``place`` they are there
    already, and stay. ``changed``: the job in front has changed what it has loaded, so that loading
    it would not do."""

    key: Hashable
    words: int
    load: Callable[[Block], None] | None = None
    place: Block | None = None
    changed: bool = False

    @property
    def can_be_loaded(self) -> bool:
        """Whether what is there may go before the job begins."""
        return self.load is not None and not self.changed


class Job(NamedTuple):
    """Work on blocks: ``run(*blocks)`` is called when commands have loaded all ``needs``. With
    ``watched`` its results are read on chip while the next job runs.

    Jobs that are ``like`` each other emit the same commands on the same blocks, but for addresses
    in DRAM, and these move evenly with ``at``, numbers such as a first image and a first row. None
    if there is no other. Of those on the same blocks whose commands stay on chip one alone is run,
    unless :attr:`~compiler.codegen.scratchpad.Scratch.changes` says that it changes what is there.

    In a list of several ``lane`` s (:mod:`~compiler.codegen.lanes`) each works in a memory of its
    own. What comes behind an ``alone`` one in its lane has no blocks before that is done.
    """

    needs: tuple[Need, ...]
    run: Callable[..., object]
    watched: bool = False
    like: Hashable = None
    at: tuple[int, ...] = ()
    lane: int = 0
    alone: bool = False


@dataclass(frozen=True)
class JobLoop:
    """``count`` times ``size`` jobs from job ``first`` on, each like the one ``size`` before it and
    as far from it as that from the one before."""

    first: int
    size: int
    count: int

    @property
    def end(self) -> int:
        """The first job behind it."""
        return self.first + self.size * self.count


#: Distances to the next jobs that are like one, which are tried as the size of a loop. So is that
#: to the next one that differs in the first number of ``at`` alone: an image may have many jobs.
_TRIES = 3


def find_loops(
    jobs: Sequence[Job], start: int, stop: int, least: Callable[[int], int]
) -> Iterator[JobLoop]:
    """Loops among jobs [start, stop), one behind the other, that have at least ``least(size)``
    iterations."""
    places: dict[Hashable, list[int]] = {}
    further: dict[int, int] = {}
    last: dict[Hashable, int] = {}
    for number in range(start, stop):
        like, at = jobs[number].like, jobs[number].at
        if like is not None:
            places.setdefault(like, []).append(number)
            key = like, at[1:]
            if key in last:
                further[last[key]] = number
            last[key] = number
    tried: dict[int, int] = {}
    first = start
    while first < stop:
        like = jobs[first].like
        loops = []
        if like is not None:
            index = bisect_right(places[like], first)
            others = places[like][index : index + _TRIES]
            if first in further and further[first] not in others:
                others.append(further[first])
            for other in others:
                size = other - first
                # What ends a stretch that is too short ends it as well if it begins later.
                if first < tried.get(size, 0):
                    continue
                loop, tried[size] = _loop(jobs, first, stop, size)
                if loop.count >= least(size):
                    loops.append(loop)
        if loops:
            longest = max(loops, key=lambda loop: (loop.size * loop.count, -loop.size))
            yield longest
            first = longest.end
            tried.clear()
        else:
            first += 1


def _loop(jobs: Sequence[Job], first: int, stop: int, size: int) -> tuple[JobLoop, int]:
    """The longest loop there with iterations of ``size`` jobs; perhaps one alone. And the first job
    that may begin another one: what ends this one would end those that begin before, or nearly so
    where places do not move evenly."""
    steps: list[tuple[int, ...]] = []
    end = first + size
    while end < stop:
        job, before = jobs[end], jobs[end - size]
        if job.like is None or job.like != before.like:
            break
        step = tuple([b - a for a, b in zip(before.at, job.at, strict=True)])
        place = (end - first) % size
        if place == len(steps):
            steps.append(step)
        elif steps[place] != step:
            break
        end += 1
    return JobLoop(first, size, (end - first) // size), end - size + 1
