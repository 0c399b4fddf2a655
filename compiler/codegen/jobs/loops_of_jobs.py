"""Where the same jobs come again in a list, and how many of them are written then."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from .job import Job

__all__ = ["Cost", "Jobs", "Stretch"]

#: Cycles and commands of a job.
Cost = tuple[int, int]

#: Bits in which a number of where a job is, and any difference of two of them, has room.
_PLACE_BITS = 40
#: Iterations of a loop at least, and of one of so many jobs, which are seen to be the same
#: afterwards.
_LEAST, _LEAST_LONG, _LONG = 10, 3, 64
#: Jobs of a loop that is not very long.
_MIDDLE = 512
#: Iterations of a loop that are written, and of a long one.
_WRITTEN, _WRITTEN_LONG = 6, 3
#: Where in a list a loop is looked for, and how many distances are tried there.
_SAMPLES, _TRIES = (0.5, 0.25, 0.75, 0.0), 400
#: Jobs of a short loop, of which the shortest come first; how many distances are tried for it.
_SHORT = (8, _LONG - 1)
_SHORT_TRIES = 4
#: A loop with such a share of the jobs is good enough.
_SHARE = 0.8


@dataclass
class Stretch:
    """Jobs [begin, end) that come again and again: ``size`` in an iteration, which takes so many
    ``cycles``; or jobs of which each is an iteration, where there is no ``loop``."""

    begin: int
    end: int
    size: int
    cycles: float
    loop: bool = True

    @property
    def jobs(self) -> int:
        return self.end - self.begin

    @property
    def iterations(self) -> int:
        return self.jobs // self.size

    @property
    def time(self) -> float:
        """Cycles of all jobs."""
        return self.jobs * self.cycles / self.size

    def within(self, time: float) -> int:
        """Jobs for about so many cycles."""
        return min(self.jobs, round(time * self.size / max(1, self.cycles)))

    def take(self, count: int) -> None:
        """The next jobs go."""
        self.begin += count
        if self.jobs < self.size:
            self.cycles, self.size, self.loop = self.cycles / self.size, 1, False


class Jobs:
    """A list of jobs, and what each takes."""

    def __init__(self, jobs: Sequence[Job], cost: Callable[[Job], Cost]) -> None:
        self.jobs = jobs
        cycles, commands = zip(*map(cost, jobs), strict=True) if jobs else ((), ())
        #: Of all jobs before each.
        self._cycles: list[int] = list(accumulate(cycles, initial=0))
        self._commands: list[int] = list(accumulate(commands, initial=0))
        known: dict[Hashable, int] = {None: -1}
        #: What they are like, in numbers, which are compared faster.
        self._likes = [known.setdefault(job.like, len(known)) for job in jobs]
        #: The same for where they are; differences are equal where those of all numbers are.
        self._at = [sum(n << _PLACE_BITS * axis for axis, n in enumerate(job.at)) for job in jobs]
        self._written: dict[tuple[int, int], int] = {}

    @property
    def cycles(self) -> int:
        """Those of all jobs."""
        return self._cycles[-1]

    @staticmethod
    def written_of(size: int) -> int:
        """Iterations that are written of a loop of so many jobs."""
        return _WRITTEN_LONG if size >= _LONG else _WRITTEN

    def long(self) -> list[Stretch]:
        """All jobs in the longest loops, which may have loops in them."""
        return list(self._long(0, len(self.jobs)))

    def middle(self) -> list[Stretch]:
        """The same in loops that are not very long."""
        return list(self._long(0, len(self.jobs), _MIDDLE))

    def short(self) -> list[Stretch]:
        """All jobs in the shortest loops."""
        return list(self._short(0, len(self.jobs)))

    def commands(self, begin: int, end: int) -> int:
        """Those of jobs [begin, end)."""
        return self._commands[end] - self._commands[begin]

    def written(self, begin: int, end: int) -> int:
        """How many commands of jobs [begin, end) are written, with loops in loops."""
        if (begin, end) not in self._written:
            self._written[begin, end] = self.written_in(self._long(begin, end))
        return self._written[begin, end]

    def written_in(self, parts: Iterable[Stretch]) -> int:
        """The same of jobs that are divided into ``parts``."""
        count = 0
        for part in parts:
            if part.loop:
                once = self.written(part.begin, part.begin + part.size)
                count += min(part.iterations, self.written_of(part.size)) * once
            else:
                count += self.commands(part.begin, part.end)
        return count

    def _long(self, begin: int, end: int, most: int | None = None) -> Iterator[Stretch]:
        loop = self._longest(begin, end, most)
        if loop is None:
            yield from self._single(begin, end)
            return
        first, last, size = loop
        yield from self._long(begin, first, most)
        yield self._loop(first, last, size)
        yield from self._long(last, end, most)

    def _short(self, begin: int, end: int, most: Sequence[int] = _SHORT) -> Iterator[Stretch]:
        """Jobs [begin, end) in loops of at most ``most[0]`` jobs, what is between them in longer
        ones."""
        if not most:
            yield from self._long(begin, end)
            return
        places: dict[int, list[int]] = {}
        for place in range(end - 1, begin - 1, -1):
            places.setdefault(self._likes[place], []).append(place)
        single = place = begin
        while place < end:
            known = places[self._likes[place]]
            known.pop()
            found = self._shortest(place, known, end, most[0])
            if found is None:
                place += 1
                continue
            yield from self._short(single, place, most[1:])
            yield self._loop(place, *found)
            for passed in range(place + 1, found[0]):
                places[self._likes[passed]].pop()
            single = place = found[0]
        yield from self._short(single, end, most[1:])

    def _shortest(
        self, place: int, others: Sequence[int], end: int, most: int
    ) -> tuple[int, int] | None:
        """The end of the shortest loop that begins at ``place``, and its size, if any; ``others``
        are jobs like the one there, the next one last."""
        if self._likes[place] < 0:
            return None
        for other in others[: -_SHORT_TRIES - 1 : -1]:
            size = other - place
            if size > most:
                return None
            _, last = self._around(place, size, place, end)
            if last - place >= _LEAST * size:
                return last, size
        return None

    def _loop(self, first: int, last: int, size: int) -> Stretch:
        return Stretch(first, last, size, self._cycles[first + size] - self._cycles[first])

    def _single(self, begin: int, end: int) -> Iterator[Stretch]:
        if end > begin:
            mean = (self._cycles[end] - self._cycles[begin]) / (end - begin)
            yield Stretch(begin, end, 1, mean, loop=False)

    @staticmethod
    def _least(size: int) -> int:
        return _LEAST_LONG if size >= _LONG else _LEAST

    def _longest(self, begin: int, end: int, most: int | None) -> tuple[int, int, int] | None:
        """[first, last) job and size of the loop with the most jobs in [begin, end), if any; it has
        at most so many jobs."""
        best: tuple[int, int, int] | None = None
        for sample in _SAMPLES:
            place = begin + int((end - begin) * sample)
            if place >= end or self._likes[place] < 0:
                continue
            tries = 0
            for other in range(place + 1, end):
                if self._likes[other] != self._likes[place]:
                    continue
                size = other - place
                if most is not None and size > most:
                    break
                # A loop that is there already has none of the sizes that fit into it twice.
                if best and 2 * size <= best[1] - best[0] and best[0] <= place < best[1]:
                    continue
                if not self._comes_again(place, size, begin, end):
                    continue
                first, last = self._around(place, size, begin, end)
                if last - first >= self._least(size) * size and (
                    best is None or last - first > 1.1 * (best[1] - best[0])
                ):
                    best = first, last, size
                tries += 1
                if tries == _TRIES or (best and best[1] - best[0] >= _SHARE * (end - begin)):
                    break
            if best and best[1] - best[0] >= _SHARE * (end - begin):
                break
        return best

    def _comes_again(self, place: int, size: int, begin: int, end: int) -> bool:
        """Whether a job is one of three in [begin, end) that are like each other and evenly far
        apart, as in a loop."""
        for first in (place, place - size, place - 2 * size):
            if first >= begin and first + 2 * size < end:
                far = self._far(first, size)
                if far is not None and far == self._far(first + size, size):
                    return True
        return False

    def _far(self, number: int, size: int) -> int | None:
        """How far the job ``size`` behind one is from it, if it is like it."""
        like = self._likes[number]
        if like < 0 or like != self._likes[number + size]:
            return None
        return self._at[number + size] - self._at[number]

    def _around(self, place: int, size: int, begin: int, end: int) -> tuple[int, int]:
        """[first, last) job of the longest loop around ``place`` in [begin, end)."""
        far: dict[int, int] = {}
        last = place + self._even(range(place, end - size), size, far)
        first = place
        if last > place:
            first -= self._even(range(place - 1, begin - 1, -1), size, far)
        count = (last + size - first) // size
        return first, first + count * size

    def _even(self, numbers: range, size: int, far: dict[int, int]) -> int:
        """How many of ``numbers``, from the first one on, have a job like themselves ``size``
        behind, as far as others ``far`` says by their number in a loop, which learns of more."""
        likes, at = self._likes, self._at
        count = 0
        for number in numbers:
            # As _far() says, without its call: it is asked millions of times.
            like, other = likes[number], number + size
            if like < 0 or like != likes[other]:
                break
            found = at[other] - at[number]
            if far.setdefault(number % size, found) != found:
                break
            count += 1
        return count
