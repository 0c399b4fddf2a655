"""Jobs one by one, in loops where the same jobs come again."""

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Sequence

from .dependencies import Recorder
from .jobs import Job, JobLoop, Need, find_loop
from .loops import AFTER, BEFORE, Loop
from .scratchpad import Block, NoRoom, Scratch

__all__ = ["JobRunner"]

#: Iterations that are written out before a period may begin: what stays is loaded then.
_WARM_UP = 1
#: Jobs in a period at least: commands of so many are under way at the same time.
_LEAST_JOBS = 4
#: Periods in which a loop must have become one.
_PATIENCE = 3
#: Iterations that a loop's own period has at most.
_MOST_OWN = 4
#: In a memory so many times as large as the blocks of an iteration they may come to the same places
#: only after many.
_ROOMY = 4


class JobRunner:
    """Acquires blocks for jobs, and does them.

    Parameters
    ----------
    scratch : Scratch
    recorder : Recorder
    """

    def __init__(self, scratch: Scratch, recorder: Recorder) -> None:
        self.scratch, self.recorder = scratch, recorder
        self._loop: _RunningLoop | None = None

    def run(self, jobs: Iterable[Job]) -> None:
        """Do jobs one by one; what one needs is loaded before the one in front is done, if there
        is room. A key that is in the memory already is not loaded again.
        """
        ready, queue = None, list(jobs)
        coming = find_loop(queue, 0, _least)
        number = 0
        while number < len(queue):
            if coming and number == coming.first:
                self._begin(coming, queue)
                coming = find_loop(queue, coming.end, _least)
            job = queue[number]
            blocks = ready or self._acquire_packed(job, number)
            ready = None
            if number + 1 < len(queue):
                with contextlib.suppress(NoRoom):
                    watched = _results(job, blocks) if job.watched else []
                    ready = self._acquire(queue[number + 1], number + 1, watched=watched)
            job.run(*blocks)
            for block in blocks:
                self.scratch.release(block)
            number += 1
            if self._loop:
                number += self._loop.done(number)
                if number >= self._loop.jobs.end:
                    self._loop = None

    def _begin(self, loop: JobLoop, queue: Sequence[Job]) -> None:
        number = self.recorder.begin_loop()
        if number is not None:
            self._loop = _RunningLoop(self.scratch, self.recorder, loop, queue, number)

    def _acquire_packed(self, job: Job, number: int) -> Sequence[Block]:
        """The same without regard to banks, from the first word on, if it does not fit else; what
        can be loaded does not stay where it is."""
        try:
            return self._acquire(job, number)
        except NoRoom:
            keys = {need.key for need in job.needs if need.load is not None}
            self.scratch.drop_keys(keys.__contains__)
            self.scratch.rewind()
            return self._acquire(job, number, packed=True)

    def _acquire(
        self, job: Job, number: int, *, packed: bool = False, watched: Sequence[Block] = ()
    ) -> Sequence[Block]:
        """Blocks of a job's needs; all loads come when all have room. What it reads should not be
        in a bank with ``watched`` either."""
        blocks: list[Block] = []
        missing: list[tuple[Need, Block]] = []
        loop = self._loop
        try:
            for index, need in enumerate(job.needs):
                block = need.place or self.scratch.find(need.key)
                if block is None and loop:
                    block = self._take_again(loop.places(number, index), need)
                    if block:
                        missing.append((need, block))
                if block is None:
                    block = self.scratch.take(
                        need.words,
                        apart=() if packed else _apart(job, blocks, watched),
                        key=need.key,
                    )
                    missing.append((need, block))
                blocks.append(block)
        except NoRoom:
            self.scratch.drop(block for _, block in missing)
            for block in blocks:
                self.scratch.release(block)
            raise
        for need, block in missing:
            if need.load is not None:
                need.load(block)
        if loop:
            loop.note(number, blocks, [block for _, block in missing])
        return blocks

    def _take_again(self, places: Iterable[int], need: Need) -> Block | None:
        """A block at the first of these addresses that nobody uses, if there is one."""
        for place in places:
            block = self.scratch.take_at(place, need.words, key=need.key)
            if block:
                return block
        return None


def _least(size: int) -> int:
    """Iterations that a loop of so many jobs has at least, to be one."""
    return _WARM_UP + _period(size) * (BEFORE + AFTER + 2)


def _period(size: int) -> int:
    """Iterations of a period: even, because accumulator banks alternate."""
    return max(2, -(-_LEAST_JOBS // size) // 2 * 2)


class _RunningLoop:
    """A loop while its jobs are done.

    Where blocks fill the memory, they come to the same places again soon. Else they are made to:
    every block takes the place of the one a period before. When periods have become equal, what is
    left is left out but for the last ones.
    """

    def __init__(
        self,
        scratch: Scratch,
        recorder: Recorder,
        jobs: JobLoop,
        queue: Sequence[Job],
        number: int,
    ) -> None:
        self.scratch, self.recorder, self.jobs, self.queue = scratch, recorder, jobs, queue
        self.number = number
        self._forced: int | None = None  # iteration from which on places are those of a period ago
        self._period = _period(jobs.size)
        self._places: dict[int, list[int | None]] = {}
        self._taken: dict[int, Sequence[Block]] = {}
        self._marks: list[int] = []  # commands in front of each iteration
        self._loop: Loop | None = None
        self._end = 0  # the job with which the periods behind the gap are over
        self._over = False

    @property
    def _size(self) -> int:
        """Jobs of a period."""
        return self._period * self.jobs.size

    def places(self, number: int, index: int) -> Iterator[int]:
        """Where a block of a job should lie, the best first: where that of the job a period before
        lay, or else those of jobs since, the last ones first."""
        first = number - self._size
        if self._over or self._forced is None or first not in self._places:
            return
        words = self.queue[number].needs[index].words
        for job in (first, *range(number - 1, first, -1)):
            places = self._places[job]
            if index < len(places) and self.queue[job].needs[index].words == words:
                place = places[index]
                if place is not None:
                    yield place
                elif job == first:
                    # It was there already.
                    return

    def note(self, number: int, blocks: Sequence[Block], taken: Sequence[Block]) -> None:
        """A job has got ``blocks``, of which ``taken`` are new."""
        if number < self.jobs.first + _WARM_UP * self.jobs.size or number >= self.jobs.end:
            return
        self._places[number] = [
            block.address if any(block is other for other in taken) else None for block in blocks
        ]
        self._taken[number] = taken

    def done(self, number: int) -> int:
        """The jobs in front of ``number`` are done; how many of those that follow are left out."""
        if self._over:
            return 0
        if self._loop:
            if number == self._end:
                self.recorder.end_loop(self._loop)
                self._over = True
            return 0
        count, rest = divmod(number - self.jobs.first, self.jobs.size)
        if rest:
            return 0
        self._marks.append(len(self.recorder))
        if self._forced is None:
            if count == _WARM_UP + 1 and self._is_roomy(number):
                self._forced = count
                return 0
            for period in range(1, _MOST_OWN + 1):
                skipped = self._leave_out(number, count, period)
                if skipped:
                    return skipped
            if count == _WARM_UP + BEFORE * _MOST_OWN:
                self._forced = count
            return 0
        self._over = count > self._forced + (BEFORE + _PATIENCE) * self._period
        return self._leave_out(number, count, self._period)

    def _is_roomy(self, number: int) -> bool:
        """Whether there is much more room than the blocks of an iteration take."""
        jobs = range(number - self.jobs.size, number)
        words = sum(block.words for job in jobs for block in self._taken.get(job, ()))
        return words * _ROOMY <= self.scratch.words

    def _leave_out(self, number: int, count: int, period: int) -> int:
        """The same behind iteration ``count``, for a period of so many iterations."""
        times = (self.jobs.count - count - 1) // period - AFTER
        begin = _WARM_UP if self._forced is None else self._forced
        if count < begin + BEFORE * period or times < 1 or self._over:
            return 0
        lengths = {self._marks[n - 1] - self._marks[n - 1 - period]
                   for n in range(count, count - BEFORE * period, -period)}  # fmt: skip
        if len(lengths) > 1:
            return 0
        moves = self.recorder.repeats(lengths.pop())
        if moves is None:
            return 0
        self._loop = self.recorder.leave_out(self.number, moves, times)
        if self._loop is None:
            self._over = True
            return 0
        self._period = period
        skipped = times * self._size
        self._rename(number, skipped)
        self._end = number + skipped + AFTER * self._size
        for job in range(number - self._size, number + 1):
            if job in self._places:
                self._places[job + skipped] = self._places[job]
        return skipped

    def _rename(self, number: int, skipped: int) -> None:
        """Blocks hold what they would hold if all jobs had been done."""
        keys: dict[Hashable, Hashable] = {}
        for job in range(number - self._size, number + 1):
            pairs = zip(self.queue[job].needs, self.queue[job + skipped].needs, strict=True)
            keys |= {need.key: later.key for need, later in pairs}
        blocks = [block for job in range(number - 2 * self._size, number + 1)
                  for block in self._taken.get(job, ())]  # fmt: skip
        self.scratch.rename(blocks, keys)


def _apart(
    job: Job, blocks: Sequence[Block], watched: Sequence[Block]
) -> tuple[list[Block], list[Block]]:
    """Blocks that another one should not share a bank with: above all what is read, whose streams
    last as long as the job; then the results."""
    results = _results(job, blocks)
    return [*(block for block in blocks if block not in results), *watched], results


def _results(job: Job, blocks: Sequence[Block]) -> list[Block]:
    pairs = zip(job.needs, blocks, strict=False)
    return [block for need, block in pairs if need.load is None and need.place is None]
