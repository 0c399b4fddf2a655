"""How jobs of two lanes take turns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import TypeVar

from .job import Job
from .loops_of_jobs import Jobs, Stretch

__all__ = ["in_turns", "spread"]

_T = TypeVar("_T")

#: Iterations of the one loop beside so many of the other one, at most.
_MOST = 4
#: A lane is at most so many times as fast as the other one, or as fast as it likes. What is slower
#: by that still has enough to do if the other one is late.
_DENSE, _EVEN = 1.5, 1e9


def in_turns(main: Jobs, beside: Jobs) -> tuple[list[Job], int]:
    """All jobs of both lanes, each in order, and how many commands are written for that besides
    those that each lane would take by itself, in loops.

    Both begin together. They may end together, or neither is much faster than the other one and
    what is left comes alone, in loops of its own; loops of both lanes that become one may be long
    or short ones: what writes fewest commands."""
    lanes = main, beside
    turns = [
        _Turns(lanes, parts, most)
        for parts in product(*((lane.long(), lane.middle(), lane.short()) for lane in lanes))
        for most in (_DENSE, _EVEN)
    ]
    best = min(turns, key=lambda found: found.written)
    alone = sum(lane.written(0, len(lane.jobs)) for lane in lanes)
    return list(best.jobs()), best.written - alone


class _Turns:
    """What comes beside what, and how many commands are ``written``.

    Parameters
    ----------
    lanes : the jobs of both
    parts : of each lane, in order
    most : times that a lane may be as fast as the other one
    """

    def __init__(
        self, lanes: Sequence[Jobs], parts: Sequence[Sequence[Stretch]], most: float
    ) -> None:
        self._lanes = lanes
        self._parts = [[replace(part) for part in lane[::-1]] for lane in parts]
        #: (How often, jobs of each lane in a turn).
        self._turns: list[tuple[int, Sequence[int]]] = []
        self.written = 0
        while all(self._parts):
            self._take_turns(most)
        for lane, left in zip(lanes, self._parts, strict=True):
            if left:
                self.written += lane.written(left[-1].begin, left[0].end)
        self._turns.append((1, [sum(part.jobs for part in left) for left in self._parts]))

    def _take_turns(self, most: float) -> None:
        totals = [max(1, sum(part.time for part in lane)) for lane in self._parts]
        # Cycles of the main lane for one of the other one.
        pace = min(max(totals[0] / totals[1], 1 / most), most)
        one, other = (lane[-1] for lane in self._parts)
        p, q = _fraction(pace * max(1, other.cycles) / max(1, one.cycles))
        times = min(one.iterations // p, other.iterations // q)
        counts = p * one.size, q * other.size
        if one.loop and other.loop and times > Jobs.written_of(sum(counts)):
            self._take(times, counts)
        elif one.time < pace * other.time:
            self._take(1, (one.jobs, other.within(one.time / pace)))
        else:
            self._take(1, (one.within(other.time * pace), other.jobs))

    def _take(self, times: int, counts: tuple[int, int]) -> None:
        self._turns.append((times, counts))
        written = min(times, Jobs.written_of(sum(counts)))
        for jobs, lane, count in zip(self._lanes, self._parts, counts, strict=True):
            begin = lane[-1].begin
            self.written += jobs.commands(begin, begin + count * written)
            lane[-1].take(count * times)
            if not lane[-1].jobs:
                del lane[-1]

    def jobs(self) -> Iterator[Job]:
        """All of them."""
        main, beside = (iter(lane.jobs) for lane in self._lanes)
        for times, (one, other) in self._turns:
            for _ in range(times):
                yield from spread(list(islice(main, one)), list(islice(beside, other)))


def _fraction(ratio: float) -> tuple[int, int]:
    """Two whole numbers, one of them small, whose ratio it is, about."""
    pairs = [(max(1, round(ratio * n)), n) for n in range(1, _MOST + 1)]
    pairs += [(n, max(1, round(n / ratio))) for n in range(1, _MOST + 1)]
    # Those with the smaller numbers come first.
    pairs.sort(key=sum)
    return min(pairs, key=lambda pair: round(abs(pair[0] / pair[1] / ratio - 1), 1))


def spread(main: Sequence[_T], beside: Sequence[_T]) -> Iterator[_T]:
    """Both begin and end together."""
    given = 0
    for place, job in enumerate(main, 1):
        yield job
        until = len(beside) * place // len(main)
        yield from beside[given:until]
        given = until
    yield from beside[given:]
