"""A loop while its jobs are done: when it has a period, and what is left out then."""

from collections.abc import Hashable, Iterator, Sequence

from compiler.codegen.dependencies import Recorder
from compiler.codegen.linking.loops import AFTER, BEFORE, Loop
from compiler.codegen.scratchpad import Block, Scratch

from .job import Job, JobLoop, find_loops

__all__ = ["LEAST_AGAIN", "MANY_COMMANDS", "RunningLoop", "least", "least_again", "least_left_out"]

#: Iterations that are written out before a period may begin: what stays is loaded then.
_WARM_UP = 1
#: Jobs in a period at least: what one needs is loaded while the one in front is done.
_LEAST_JOBS = 2
#: Jobs of an iteration whose blocks lie in turn at so many places that it may be a period.
_IN_TURN = 4
#: Periods that are left out, at least: with one it would not be worth it that all is written
#: again where those behind turn out to be others.
_LEAST_TIMES = 2
#: Periods in which a loop must have become one.
_PATIENCE = 3
#: How often that is tried.
_TRIES = 3
#: Iterations that a loop's own period has at most.
_MOST_OWN = 4
#: Jobs before whose places are tried where another one is in use.
_OTHERS = 8
#: An iteration of so many jobs, or commands, may begin without what was left by the one before; in
#: several lanes, where loads do not wait for that, one of fewer commands.
_MANY_JOBS, MANY_COMMANDS, _MANY_IN_LANES = 32, 96, 32
#: Iterations of a loop in which nothing is left out, and jobs in all of them, at least.
LEAST_AGAIN, _LEAST_AGAIN_JOBS = 2, 16
#: What all long iterations need stays where two jobs have room beside it, but for one part of the
#: memory in so many, which is in pieces.
_SPARE = 8


def least(size: int) -> int:
    """Iterations that a loop of so many jobs has at least, to be one. Long ones are worth it even
    if none is left out."""
    return LEAST_AGAIN if size >= _MANY_JOBS else least_left_out(size)


def least_left_out(size: int) -> int:
    """Iterations of a loop of so many jobs of which some can be left out, at least."""
    return _WARM_UP + _period(size) * (BEFORE + AFTER + 2)


def least_again(size: int) -> int:
    """The same for a loop in which none is left out: it has to be worth it."""
    return max(LEAST_AGAIN, -(-_LEAST_AGAIN_JOBS // size))


def _period(size: int) -> int:
    """Iterations of a period: even, because accumulator banks alternate, unless they are long."""
    return 1 if size >= _MANY_JOBS else max(2, -(-_LEAST_JOBS // size) // 2 * 2)


class RunningLoop:
    """A loop while its jobs are done.

    Blocks are made to come to the same places again: each takes the place of the one a period
    before. When periods have become equal, what is left is left out but for the last ones. What is
    equal besides is seen afterwards (:mod:`~compiler.codegen.linking.folding`), so loops of few
    iterations are worth it, too.

    Parameters
    ----------
    scratches : the memory of every lane of jobs
    recorder : Recorder
    jobs : JobLoop
    queue : all jobs
    name : of the loop, the same whenever the program is written
    level : loops around it
    commands : of an iteration, as far as they are known
    """

    def __init__(
        self,
        scratches: Sequence[Scratch],
        recorder: Recorder,
        jobs: JobLoop,
        queue: Sequence[Job],
        name: Hashable,
        level: int,
        *,
        commands: int = 0,
    ) -> None:
        self.scratches, self.recorder, self.jobs, self.queue = scratches, recorder, jobs, queue
        self.name, self.level = name, level
        self._begin = _WARM_UP  # iterations in front of the first period that may be one
        self._forced = False  # places are those of a period ago
        self._tries = 0  # at a period, which have failed
        self._period = _period(jobs.size)
        #: Keys of what all iterations need, if these begin with nothing else; else None.
        self._common: frozenset[Hashable] | None = None
        first, size = jobs.first, jobs.size
        self._first = first + 1  # from which job on
        self._start = len(recorder)  # commands in front of it
        #: Commands of a long iteration.
        self._many = MANY_COMMANDS if len(scratches) == 1 else _MANY_IN_LANES
        many = size >= _MANY_JOBS or commands >= self._many
        if many or any(find_loops(queue, first, first + size, least)):
            self._clear()
            self._first = first
        self._places: dict[int, Sequence[int | None]] = {}
        self._taken: dict[int, Sequence[Block]] = {}
        self._marks: list[int] = []  # commands in front of each iteration
        self._loop: Loop | None = None
        self._end = 0  # iterations with which the periods behind the gap are over
        self._over = False

    @property
    def _size(self) -> int:
        """Jobs of a period."""
        return self._period * self.jobs.size

    def places(self, number: int, index: int) -> Iterator[int]:
        """Where a block of a job should lie, the best first: where that of the job a period before
        lay, or else those of jobs since, the last ones first; in a long iteration where that of the
        same job one iteration before lay, or two."""
        if self._over or number >= self.jobs.end:
            return
        words = self.queue[number].needs[index].words
        if self._common is not None:
            # What is left for the iteration behind has to lie elsewhere in that one.
            for job in (number - self.jobs.size, number - 2 * self.jobs.size):
                places = self._places.get(job, ())
                if index < len(places) and self.queue[job].needs[index].words == words:
                    place = places[index]
                    if place is not None:
                        yield place
            return
        first = number - self._size
        if not self._forced or first not in self._places:
            return
        for job in (first, *range(number - 1, max(first, number - _OTHERS), -1)):
            places = self._places.get(job, ())
            if self.queue[job].lane != self.queue[number].lane:
                continue
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

    def begins_empty(self, number: int) -> bool:
        """Whether nothing is in the memory when a job begins but what iterations have in common and
        what jobs before have left for it: the first one of a long iteration, in which there may be
        loops."""
        first, size = self.jobs.first, self.jobs.size
        if self._common is None and number == first + _WARM_UP * size and not self._marks:
            if len(self.recorder) - self._start >= self._many:
                self._clear()
        return self._begins(number) and len(self.scratches) == 1

    def _begins(self, number: int) -> bool:
        """Whether a job is the first one of a long iteration."""
        if self._common is None or self._over or not self._first <= number <= self.jobs.end:
            return False
        return (number - self.jobs.first) % self.jobs.size == 0

    def before(self, number: int) -> bool:
        """Blocks for a job are about to be taken, and nobody uses any; whether it begins with an
        empty memory (:meth:`begins_empty`)."""
        if not self.begins_empty(number):
            return False
        self._forget(number)
        return True

    def begin(self, number: int) -> None:
        """A job begins. Lanes of a long iteration go on, but what nobody needs is gone then: so it
        does not matter what there was."""
        if len(self.scratches) > 1 and self._begins(number):
            self._forget(number)

    def _forget(self, number: int) -> None:
        """What is there is forgotten, unless the next jobs need it, and what iterations have in
        common."""
        assert self._common is not None
        for lane, scratch in enumerate(self.scratches):
            # The next job of another lane may be in the middle of something.
            there = next(self._of_lane(lane, number, len(self.queue)), number)
            needs = self.queue[there].needs
            own = {need.key for need in needs if there != number or not need.can_be_loaded}
            scratch.forget_idle(self._common | own)
            scratch.rewind()

    def _clear(self) -> None:
        """Iterations begin with an empty memory, but for what all of them need if jobs have room
        beside it."""
        first, size = self.jobs.first, self.jobs.size
        words = [
            {need.key: need.words for job in self.queue[begin : begin + size] for need in job.needs}
            for begin in (first, first + size)
        ]
        common = frozenset(words[0].keys() & words[1].keys())
        room = sum(scratch.words for scratch in self.scratches)
        others = max(
            sum(need.words for need in job.needs if need.key not in common)
            for job in self.queue[first : first + size]
        )
        fits = sum(words[0][key] for key in common) + 2 * others <= room - room // _SPARE
        self._period, self._common = 1, common if fits else frozenset()

    def done(self, count: int) -> int:
        """So many iterations are done; how many of those that follow are left out."""
        if self._over:
            return 0
        if self._loop:
            if count == self._end:
                self.recorder.end_loop(self._loop)
                self._over = True
            return 0
        number = self.jobs.first + count * self.jobs.size
        self._marks.append(len(self.recorder))
        if self._common is not None:
            # Twice as long where accumulator banks alternate.
            if count > _WARM_UP + BEFORE * _MOST_OWN:
                return 0
            return self._leave_out(number, count, 1) or self._leave_out(number, count, 2)
        if not self._forced:
            if count > _WARM_UP:
                self._force(count)
            return 0
        for period in range(1, _MOST_OWN + 1):
            skipped = self._leave_out(number, count, period)
            if skipped:
                return skipped
        if count == self._begin + BEFORE * _MOST_OWN + _PATIENCE:
            # More blocks take turns at more places, or what was there before has to go first.
            self._tries += 1
            self._over, self._period = self._tries == _TRIES, _MOST_OWN
            self._begin = count
        return 0

    def _force(self, count: int) -> None:
        """Behind iteration ``count`` blocks take the places of those a period before; of those an
        iteration before where each is one of several in turn."""
        self._begin, self._forced = count, True
        counts: dict[int, int] = {}
        # Of an iteration behind the first job, for which what was there before has been of use.
        end = self.jobs.first + count * self.jobs.size + 1
        for job in range(end - self.jobs.size, end):
            for index, place in enumerate(self._places.get(job, ())):
                counts[index] = counts.get(index, 0) + (place is not None)
        if all(count >= _IN_TURN for count in counts.values() if count):
            self._period = 1

    def _leave_out(self, number: int, count: int, period: int) -> int:
        """The same behind iteration ``count``, in front of job ``number``, for a period of so many
        iterations."""
        # Unless what follows begins empty, too, in all lanes, the last one loads for it.
        loads = self._common is None or len(self.scratches) > 1
        times = (self.jobs.count - count - loads) // period - AFTER
        if count < self._begin + BEFORE * period or times < _LEAST_TIMES or self._over:
            return 0
        lengths = {self._marks[n - 1] - self._marks[n - 1 - period]
                   for n in range(count, count - BEFORE * period, -period)}  # fmt: skip
        if len(lengths) > 1:
            return 0
        moves = self.recorder.repeats(lengths.pop())
        if moves is None:
            return 0
        loop = Loop(name=self.name, level=self.level, strides=moves, times=times,
                    first=len(self.recorder) - BEFORE * len(moves))  # fmt: skip
        self._loop = self.recorder.leave_out(loop)
        if self._loop is None:
            self._over = True
            return 0
        self._period = period
        skipped = times * self._size
        self._rename(number, skipped)
        self._end = count + (times + AFTER) * period
        for job in range(number - self._size, self._reached(number) + 1):
            if job in self._places:
                self._places[job + skipped] = self._places[job]
        return times * period

    def _reached(self, number: int) -> int:
        """The last job that has blocks; ``number`` is the next one."""
        return max([number, *self._taken])

    def _rename(self, number: int, skipped: int) -> None:
        """Blocks hold what they would hold if all jobs had been done."""
        last = self._reached(number)
        for lane, scratch in enumerate(self.scratches):
            keys: dict[Hashable, Hashable] = {}
            for job in self._of_lane(lane, number - self._size, last + 1):
                pairs = zip(self.queue[job].needs, self.queue[job + skipped].needs, strict=True)
                keys |= {need.key: later.key for need, later in pairs}
            blocks = [block for job in self._of_lane(lane, number - 2 * self._size, last + 1)
                      for block in self._taken.get(job, ())]  # fmt: skip
            scratch.rename(blocks, keys)
            # What is there from before the loop is not found in the periods left out either.
            there = {block.key for block in blocks} | set(keys.values())
            first, end = number + skipped, number + skipped + (AFTER + 1) * self._size
            old = {
                need.key
                for job in self._of_lane(lane, first, min(end, self.jobs.end))
                for need in self.queue[job].needs
            }
            scratch.drop_keys((old - there).__contains__)

    def _of_lane(self, lane: int, first: int, last: int) -> Iterator[int]:
        """Those of jobs [first, last) that are of a lane."""
        return (job for job in range(first, last) if self.queue[job].lane == lane)
