"""Lists of jobs of which each works on what those before leave in DRAM, all of them under way at
the same time."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.linking.entries import Region

from .job import Job
from .turns import spread

__all__ = ["Pipeline", "Touched"]

#: Numbers of places that differ less are the same, which are integers.
_ROUNDING = 1e-3
#: List and number of a job in it.
Place = tuple[int, int]


class Touched(NamedTuple):
    """What a job touches in DRAM, and how long it takes."""

    loads: Sequence[Region]
    stores: Sequence[Region]
    cycles: int

    def moved(self, distances: Sequence[int]) -> "Touched":
        """The same, so far away: the regions that it loads, and then those that it stores."""
        regions = [
            Region(region.memory, region.begin + far, region.end + far)
            for region, far in zip((*self.loads, *self.stores), distances, strict=True)
        ]
        loads = len(self.loads)
        return Touched(regions[:loads], regions[loads:], self.cycles)


class Pipeline:
    """An order in which every job comes behind those of lists before that it has to come behind,
    and no earlier than necessary.

    Parameters
    ----------
    lists : of jobs, the first ones first; the last one is of products, the others of the vector
        engine
    touched : of a job

    Members
    -------
    jobs : all of them
    first : the first job that may be in a loop
    hidden : cycles by which they take less than one list after the other, about
    """

    def __init__(self, lists: Sequence[Sequence[Job]], touched: Callable[[Job], Touched]) -> None:
        self._lists = lists
        touches = [_touches(jobs, touched) for jobs in lists]
        #: For each list and each before it, how many of its jobs come before every job.
        self._behind = [
            [_counts(touches[number], touches[first]) for first in range(number)]
            for number in range(len(lists))
        ]
        self._done = [0] * len(lists)
        last = len(lists) - 1
        places, self.first = _evenly(self._emit(last, len(lists[-1])), last)
        for number, jobs in enumerate(lists):
            places += self._emit(number, len(jobs))
        self.jobs = [lists[number][place] for number, place in places]
        # In a loop that began before, products would load what was stored two iterations before.
        self.jobs[: self.first] = [job._replace(like=None) for job in self.jobs[: self.first]]
        cycles = [touches[number][place].cycles for number, place in places]
        self.hidden = sum(cycles) - self._time(places, cycles)

    def _emit(self, number: int, count: int) -> Iterator[Place]:
        """Jobs of a list until so many are done, and what has to come before."""
        while self._done[number] < count:
            place = self._done[number]
            # What a job needs is loaded while the one before is under way.
            ahead = min(place + 1, len(self._lists[number]) - 1)
            for first in range(number - 1, -1, -1):
                yield from self._emit(first, self._behind[number][first][ahead])
            self._done[number] = place + 1
            yield number, place

    def _time(self, places: Sequence[Place], cycles: Sequence[int]) -> int:
        """How long all of them take, about: the vector engine, and products, each one by one."""
        last = len(self._lists) - 1
        vector = product = 0
        ends: dict[Place, int] = {}
        for (number, place), length in zip(places, cycles, strict=True):
            if number < last:
                vector += length
                ends[number, place] = vector
                continue
            begin = product
            for first in range(number):
                count = self._behind[number][first][place]
                if count:
                    begin = max(begin, ends[first, count - 1])
            product = begin + length
        return max(vector, product)


def _touches(jobs: Sequence[Job], touched: Callable[[Job], Touched]) -> list[Touched]:
    """What every job touches. Of jobs that are like each other it moves evenly with ``at``: so they
    are asked until the differences of their places are sums of those seen."""
    alike: dict[Hashable, list[int]] = {}
    for number, job in enumerate(jobs):
        alike.setdefault(number if job.like is None else (job.like,), []).append(number)
    found: dict[int, Touched] = {}
    for numbers in alike.values():
        first = touched(jobs[numbers[0]])
        places = np.array([jobs[number].at for number in numbers], dtype=np.int64)
        moves = places - places[0]
        seen, far, shares = moves[:0], [], np.zeros((len(numbers), 0))
        while (new := np.abs(moves - shares @ seen).max(axis=1, initial=0) > _ROUNDING).any():
            number = int(new.argmax())
            seen = np.vstack([seen, moves[number]])
            far.append(_begins(touched(jobs[numbers[number]])) - _begins(first))
            shares = np.linalg.lstsq(seen.T, moves.T, rcond=None)[0].T
        if not far:
            found |= dict.fromkeys(numbers, first)
            continue
        distances = np.rint(shares @ np.array(far)).astype(np.int64)
        for number, row in zip(numbers, distances.tolist(), strict=True):
            found[number] = first.moved(row)
    return [found[number] for number in range(len(jobs))]


def _begins(touched: Touched) -> NDArray[np.int64]:
    return np.array([region.begin for region in (*touched.loads, *touched.stores)], dtype=np.int64)


def _evenly(places: Iterable[Place], last: int) -> tuple[list[Place], int]:
    """What comes between two jobs of the ``last`` list comes between others before, too, so that
    it is spread over all from where something came before; what comes first stays. And how many
    come before the first job whose turn it is again and again."""
    found: list[Place] = []
    waiting: list[Place] = []  # of the last list
    between: list[Place] = []
    starts: list[int] = []
    for place in places:
        if place[0] < last:
            between.append(place)
            continue
        if between:
            # What was waited for is for the job behind the first of these: an iteration of a loop
            # begins with that.
            count = 1 if starts else 0
            found += waiting[:count]
            starts.append(len(found))
            found += spread(waiting[count:], between)
            waiting, between = [], []
        waiting.append(place)
    found += spread(waiting, between)
    return found, starts[2] if len(starts) > 2 else 0


def _counts(jobs: Sequence[Touched], others: Sequence[Touched]) -> list[int]:
    """For every job how many of ``others`` come before it and those in front of it."""
    loads = _Regions([job.loads for job in others])
    stores = _Regions([job.stores for job in others])
    found, most = [], 0
    for job in jobs:
        for region in job.loads:
            most = stores.last(region, most)
        for region in job.stores:
            most = loads.last(region, stores.last(region, most))
        found.append(most)
    return found


class _Regions:
    """What each of some jobs touches."""

    def __init__(self, touched: Sequence[Sequence[Region]]) -> None:
        rows = [(region.begin, region.end, number)
                for number, regions in enumerate(touched, 1) for region in regions]  # fmt: skip
        self._begins, self._ends, self._numbers = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        counts = np.array([0, *map(len, touched)])
        self._rows = np.cumsum(counts).tolist()  # of the first so many jobs

    def last(self, region: Region, most: int) -> int:
        """The last job behind the first ``most`` that touches a part of ``region``, from 1 on;
        ``most`` if none does."""
        first = self._rows[most]
        meets = (self._begins[first:] < region.end) & (self._ends[first:] > region.begin)
        found = self._numbers[first:][meets]
        return int(found[-1]) if len(found) else most
