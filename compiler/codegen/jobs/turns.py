"""How jobs of two lanes take turns."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from .job import Job

__all__ = ["in_turns"]

#: Iterations of a loop at least.
_LEAST = 10
#: Where in a list a loop is looked for, and how many distances are tried there.
_SAMPLES, _TRIES = (0.5, 0.25, 0.75, 0.0), 400
#: A loop with such a share of the jobs is good enough.
_SHARE = 0.8
#: Iterations of a loop that are written.
_WRITTEN = 6
#: Iterations of the one loop beside so many of the other one, at most.
_MOST = 4
#: A lane is at most so many times as fast as the other one, or as fast as it likes. What is slower
#: by that still has enough to do if the other one is late.
_DENSE, _EVEN = 1.5, 1e9


@dataclass
class _Stretch:
    """Jobs that come again and again: ``size`` in an iteration, which takes so many ``cycles``;
    or jobs of which each is an iteration, where there is no ``loop``."""

    jobs: Sequence[Job]
    size: int
    cycles: float
    loop: bool = True

    @property
    def left(self) -> int:
        """Iterations."""
        return len(self.jobs) // self.size

    @property
    def time(self) -> float:
        """Cycles of all jobs."""
        return len(self.jobs) * self.cycles / self.size

    def take(self, count: int) -> Sequence[Job]:
        """The next jobs."""
        taken, self.jobs = self.jobs[:count], self.jobs[count:]
        if len(self.jobs) < self.size:
            self.cycles, self.size, self.loop = self.cycles / self.size, 1, False
        return taken

    def take_time(self, time: float) -> Sequence[Job]:
        """The next jobs, for about so many cycles."""
        return self.take(round(time * self.size / max(1, self.cycles)))


def in_turns(
    main: Sequence[Job], beside: Sequence[Job], cycles: Callable[[Job], int]
) -> tuple[list[Job], int]:
    """All jobs of both lanes, each in order, if a job takes so many ``cycles``; and how many are
    written where loops are. Both begin together. They may end together, or neither is much faster
    than the other one and what is left comes alone, in loops of its own: what writes fewer jobs.
    Where both lanes have loops, what becomes of them is one."""
    lanes = [_Likes(jobs) for jobs in (main, beside)]
    parts = [list(_stretches(jobs, 0, len(jobs.jobs), cycles)) for jobs in lanes]
    found = (
        _merged([list(map(replace, lane)) for lane in parts], most) for most in (_DENSE, _EVEN)
    )
    return min(found, key=lambda pair: pair[1])


def _merged(lanes: Sequence[list[_Stretch]], most: float) -> tuple[list[Job], int]:
    """The same; a lane is at most so many times as fast as the other one."""
    found: list[Job] = []
    left_out = 0
    while lanes[0] and lanes[1]:
        totals = [max(1, sum(part.time for part in lane)) for lane in lanes]
        # Cycles of the main lane for one of the other one.
        pace = min(max(totals[0] / totals[1], 1 / most), most)
        one, other = (lane[0] for lane in lanes)
        p, q = _fraction(pace * max(1, other.cycles) / max(1, one.cycles))
        times = min(one.left // p, other.left // q)
        if one.loop and other.loop and times > _WRITTEN:
            before = len(found)
            for _ in range(times):
                found += _spread(one.take(p * one.size), other.take(q * other.size))
            left_out += (len(found) - before) * (times - _WRITTEN) // times
        elif one.time < pace * other.time:
            share = one.time / pace
            found += _spread(one.take(len(one.jobs)), other.take_time(share))
        else:
            share = other.time * pace
            found += _spread(one.take_time(share), other.take(len(other.jobs)))
        for lane in lanes:
            if not lane[0].jobs:
                del lane[0]
    for lane in lanes:
        for part in lane:
            found += part.jobs
            if part.loop:
                left_out += max(0, part.left - _WRITTEN) * part.size
    return found, len(found) - left_out


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


class _Likes:
    """Jobs, and numbers for what they are like, which are compared faster."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        known: dict[Hashable, int] = {None: -1}
        self.numbers = [known.setdefault(job.like, len(known)) for job in jobs]

    def follows(self, number: int, size: int, step: dict[int, tuple[int, ...]]) -> bool:
        """Whether a job is like the one ``size`` behind it, as far away as others at its place."""
        like = self.numbers[number]
        if like < 0 or like != self.numbers[number + size]:
            return False
        pair = zip(self.jobs[number].at, self.jobs[number + size].at, strict=True)
        far = tuple(b - a for a, b in pair)
        return step.setdefault(number % size, far) == far

    def loop(self, place: int, size: int, begin: int, end: int) -> tuple[int, int]:
        """[first, last) job of the longest loop around ``place`` in [begin, end)."""
        step: dict[int, tuple[int, ...]] = {}
        last = place
        while last + size < end and self.follows(last, size, step):
            last += 1
        first = place
        if last > place:
            while first > begin and self.follows(first - 1, size, step):
                first -= 1
        count = (last + size - first) // size
        return first, first + count * size


def _stretches(
    likes: _Likes, begin: int, end: int, cycles: Callable[[Job], int]
) -> Iterator[_Stretch]:
    loop = _longest_loop(likes, begin, end)
    if loop is None:
        if end > begin:
            jobs = likes.jobs[begin:end]
            yield _Stretch(jobs, 1, sum(map(cycles, jobs)) / len(jobs), loop=False)
        return
    first, last, size = loop
    yield from _stretches(likes, begin, first, cycles)
    jobs = likes.jobs[first:last]
    yield _Stretch(jobs, size, sum(map(cycles, jobs[:size])))
    yield from _stretches(likes, last, end, cycles)


def _longest_loop(likes: _Likes, begin: int, end: int) -> tuple[int, int, int] | None:
    """[first, last) job and size of the loop with the most jobs in [begin, end), if any."""
    best: tuple[int, int, int] | None = None
    for sample in _SAMPLES:
        place = begin + int((end - begin) * sample)
        if place >= end or likes.numbers[place] < 0:
            continue
        tries = 0
        for other in range(place + 1, end):
            if likes.numbers[other] != likes.numbers[place]:
                continue
            size = other - place
            first, last = likes.loop(place, size, begin, end)
            if last - first >= _LEAST * size and (
                best is None or last - first > 1.1 * (best[1] - best[0])
            ):
                best = first, last, size
            tries += 1
            if tries == _TRIES or (best and best[1] - best[0] >= _SHARE * (end - begin)):
                break
        if best and best[1] - best[0] >= _SHARE * (end - begin):
            break
    return best
