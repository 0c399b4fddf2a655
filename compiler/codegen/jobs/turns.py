"""How jobs of two lanes take turns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from math import ceil, floor
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
#: How far a loop may be from the paces that it should have, and how many loops are tried for one.
_TOLERANCE, _MOST_TRIED = 0.1, 32


def in_turns(main: Jobs, beside: Jobs) -> tuple[list[Job], int]:
    """All jobs of both lanes, each in order, and how many commands are written for that besides
    those that each lane would take by itself, in loops.

    Both begin together. They may end together, or neither is much faster than the other one and
    what is left comes alone, in loops of its own, or their pace changes between the two from loop
    to loop; loops of both lanes that become one may be long or short ones: what writes fewest
    commands."""
    lanes = main, beside
    ways = [_divided(lane) for lane in lanes]
    turns = [
        _Turns(lanes, parts, most, free=free)
        for parts in product(*ways)
        for most, free in ((_DENSE, False), (_DENSE, True), (_EVEN, False))
    ]
    best = min(turns, key=lambda found: found.written)
    alone = sum(
        min(map(lane.written_in, divided)) for lane, divided in zip(lanes, ways, strict=True)
    )
    return list(best.jobs()), best.written - alone


def _divided(lane: Jobs) -> list[list[Stretch]]:
    """The ways to divide a lane."""
    ways: list[list[Stretch]] = []
    for parts in (lane.long(), lane.middle(), lane.short()):
        if parts not in ways:
            ways.append(parts)
    return ways


class _Turns:
    """What comes beside what, and how many commands are ``written``.

    Parameters
    ----------
    lanes : the jobs of both
    parts : of each lane, in order
    most : times that a lane may be as fast as the other one
    free : a loop has the pace at which its commands do most, from this one to the one at which both
        lanes would end together
    """

    def __init__(
        self, lanes: Sequence[Jobs], parts: Sequence[Sequence[Stretch]], most: float, *, free: bool
    ) -> None:
        self._lanes, self._free = lanes, free
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
        even = totals[0] / totals[1]
        pace = min(max(even, 1 / most), most)
        one, other = (lane[-1] for lane in self._parts)
        if one.loop and other.loop and (found := self._loop(one, other, pace, even)):
            self._take(*found)
        elif one.time < pace * other.time:
            self._take(1, (one.jobs, other.within(one.time / pace)))
        else:
            self._take(1, (one.within(other.time * pace), other.jobs))

    def _loop(
        self, one: Stretch, other: Stretch, pace: float, even: float
    ) -> tuple[int, tuple[int, int]] | None:
        """How often so many jobs of both come, if that is more than what is written of it."""
        ratio = max(1, other.cycles) / max(1, one.cycles)
        pairs = _fractions(pace * ratio, even * ratio) if self._free else [_fraction(pace * ratio)]
        best, found = 0.0, None
        for p, q in pairs:
            times = min(one.iterations // p, other.iterations // q)
            counts = p * one.size, q * other.size
            written = Jobs.written_of(sum(counts))
            if times <= written:
                continue
            hidden = times * min(p * one.cycles, q * other.cycles)
            worth = hidden / max(1, written * self._commands(counts))
            if found is None or worth > best:
                best, found = worth, (times, counts)
        return found

    def _commands(self, counts: Sequence[int]) -> int:
        """Those of so many jobs of each lane that come next."""
        begins = (lane[-1].begin for lane in self._parts)
        return sum(
            jobs.commands(begin, begin + count)
            for jobs, begin, count in zip(self._lanes, begins, counts, strict=True)
        )

    def _take(self, times: int, counts: tuple[int, int]) -> None:
        self._turns.append((times, counts))
        written = min(times, Jobs.written_of(sum(counts)))
        self.written += self._commands([count * written for count in counts])
        for lane, count in zip(self._parts, counts, strict=True):
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


def _fractions(first: float, last: float) -> Iterator[tuple[int, int]]:
    """Pairs of whole numbers, one of them small, whose ratio is one of these or between them,
    about."""
    low, high = min(first, last) * (1 - _TOLERANCE), max(first, last) * (1 + _TOLERANCE)
    for n in range(1, _MOST + 1):
        yield from ((m, n) for m in _between(low * n, high * n))
        yield from ((n, m) for m in _between(n / high, n / low))


def _between(low: float, high: float) -> range:
    """Whole numbers from ``low`` to ``high``, at most so many."""
    return range(max(1, ceil(low)), floor(high) + 1)[:_MOST_TRIED]


def spread(main: Sequence[_T], beside: Sequence[_T]) -> Iterator[_T]:
    """Both begin and end together."""
    given = 0
    for place, job in enumerate(main, 1):
        yield job
        until = len(beside) * place // len(main)
        yield from beside[given:until]
        given = until
    yield from beside[given:]
