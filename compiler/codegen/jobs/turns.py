"""How jobs of two lanes take turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .job import Job
from .loops_of_jobs import Cost, Jobs, Stretch

__all__ = ["in_turns"]

#: Iterations of the one loop beside so many of the other one, at most.
_MOST = 4
#: A lane is at most so many times as fast as the other one, or as fast as it likes. What is slower
#: by that still has enough to do if the other one is late.
_DENSE, _EVEN = 1.5, 1e9


def in_turns(
    main: Sequence[Job], beside: Sequence[Job], cost: Callable[[Job], Cost]
) -> tuple[list[Job], int]:
    """All jobs of both lanes, each in order, and how many commands are written for that besides
    those that each lane would take by itself, in loops.

    Both begin together. They may end together, or neither is much faster than the other one and
    what is left comes alone, in loops of its own; loops of both lanes that become one may be long
    or short ones: what writes fewest commands."""
    lanes = [Jobs(jobs, cost) for jobs in (main, beside)]
    turns = [
        _Turns(lanes, parts, most)
        for parts in product(*((lane.long(), lane.middle(), lane.short()) for lane in lanes))
        for most in (_DENSE, _EVEN)
    ]
    best = min(turns, key=lambda found: found.written)
    alone = sum(lane.written(0, len(lane.jobs)) for lane in lanes)
    return list(best.jobs()), best.written - alone


@dataclass(frozen=True)
class _Turn:
    """``times`` a turn of so many jobs of each lane."""

    times: int
    counts: tuple[int, int]


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
        self._turns: list[_Turn] = []
        self.written = 0
        while all(self._parts):
            self._take_turns(most)
        for lane, left, number in zip(lanes, self._parts, (0, 1), strict=True):
            if left:
                begin, end = left[-1].begin, left[0].end
                self.written += lane.written(begin, end)
                self._turns.append(_Turn(1, _pair(number, end - begin)))

    def _take_turns(self, most: float) -> None:
        totals = [max(1, sum(part.time for part in lane)) for lane in self._parts]
        # Cycles of the main lane for one of the other one.
        pace = min(max(totals[0] / totals[1], 1 / most), most)
        one, other = (lane[-1] for lane in self._parts)
        p, q = _fraction(pace * max(1, other.cycles) / max(1, one.cycles))
        times = min(one.iterations // p, other.iterations // q)
        counts = p * one.size, q * other.size
        if one.loop and other.loop and times > Jobs.written_of(sum(counts)):
            self._take(times, *counts)
        elif one.time < pace * other.time:
            self._take(1, one.jobs, other.within(one.time / pace))
        else:
            self._take(1, one.within(other.time * pace), other.jobs)

    def _take(self, times: int, *counts: int) -> None:
        self._turns.append(_Turn(times, (counts[0], counts[1])))
        written = min(times, Jobs.written_of(sum(counts)))
        for jobs, lane, count in zip(self._lanes, self._parts, counts, strict=True):
            begin = lane[-1].begin
            self.written += jobs.commands(begin, begin + count * written)
            lane[-1].take(count * times)
            if not lane[-1].jobs:
                del lane[-1]

    def jobs(self) -> Iterator[Job]:
        """All of them."""
        place = [0, 0]
        for turn in self._turns:
            for _ in range(turn.times):
                ends = [begin + count for begin, count in zip(place, turn.counts, strict=True)]
                yield from _spread(
                    *(
                        lane.jobs[begin:end]
                        for lane, begin, end in zip(self._lanes, place, ends, strict=True)
                    )
                )
                place = ends


def _pair(number: int, count: int) -> tuple[int, int]:
    return (0, count) if number else (count, 0)


def _fraction(ratio: float) -> tuple[int, int]:
    """Two whole numbers, one of them small, whose ratio it is, about."""
    pairs = [(max(1, round(ratio * n)), n) for n in range(1, _MOST + 1)]
    pairs += [(n, max(1, round(n / ratio))) for n in range(1, _MOST + 1)]
    # Those with the smaller numbers come first.
    pairs.sort(key=sum)
    return min(pairs, key=lambda pair: round(abs(pair[0] / pair[1] / ratio - 1), 1))


def _spread(main: Sequence[Job], beside: Sequence[Job]) -> Iterator[Job]:
    """Both begin and end together."""
    given = 0
    for place, job in enumerate(main, 1):
        yield job
        until = len(beside) * place // len(main)
        yield from beside[given:until]
        given = until
    yield from beside[given:]
