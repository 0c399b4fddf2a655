"""Jobs one by one, in loops where the same jobs come again."""

from collections.abc import Hashable, Iterable, Sequence

from compiler.codegen.dependencies import Recorder
from compiler.codegen.replay import Emitted
from compiler.codegen.scratchpad import Block, NoRoom, Scratch

from .job import Job, JobLoop, Need, find_loops
from .running_loop import (
    LEAST_AGAIN,
    MANY_COMMANDS,
    RunningLoop,
    least,
    least_again,
    least_left_out,
)

__all__ = ["JobRunner"]


class JobRunner:
    """Acquires blocks for jobs, and does them.

    Parameters
    ----------
    scratches : the memory of every lane of jobs
    recorder : Recorder
    core : whose commands the jobs emit
    """

    def __init__(self, scratches: Sequence[Scratch], recorder: Recorder, core: int = 0) -> None:
        self.scratches, self.recorder, self.core = scratches, recorder, core
        #: Accumulator banks: the one used last, and the next one.
        self.banks = 0, 1
        self._queue: list[Job] = []
        self._ready: dict[int, Sequence[Block]] = {}  # those of the next job of a lane
        self._next: list[int | None] = []  # which job that is, behind each
        self._loops: list[RunningLoop] = []  # those around it, the outermost first
        #: Commands of jobs that are like each other, as far as they are known.
        self._lengths: dict[Hashable, int] = {}
        #: Lanes whose blocks lie side by side; whether they do so already.
        self._tight: dict[int, bool] = {}
        #: Commands of jobs that only emit some that touch no DRAM, by what these follow from.
        self._emitted: dict[Hashable, Sequence[Emitted]] = {}
        self._written: set[Hashable] = set()  # keys of results that have got room
        self._apart: set[int] = set()  # jobs for which nothing is loaded before they begin
        #: What jobs are like -> a number, which is compared and found faster.
        self._likes: dict[Hashable, int] = {}

    def next_bank(self) -> int:
        """The accumulator bank that has been free for longer; the same one where an iteration
        begins with an empty memory, so that it does not matter how many there were before."""
        _, bank = self.banks
        self.banks = bank, bank ^ 1
        return bank

    def begin_step(self) -> None:
        """What follows does not depend on jobs in front of it; nothing is in a memory."""
        self.banks = 0, 1
        self._lengths, self._likes = {}, {}

    def run(self, jobs: Iterable[Job]) -> None:
        """Do jobs one by one; what one needs is loaded before the one in front is done, if there
        is room. A key that is in the memory already is not loaded again.
        """
        self._queue, self._ready = [self._numbered(job) for job in jobs], {}
        self._written, self._emitted = set(), {}
        self._next = _next_of_lane(self._queue)
        self._apart = {
            there
            for job, there in zip(self._queue, self._next, strict=True)
            if job.alone and there is not None
        }
        self._tight = {}
        path = (self.recorder.begin_run(),)
        try:
            self._do_queue(path)
        finally:
            # Jobs know the program, which knows this: so they would stay until Python looks for
            # cycles.
            self._queue, self._next = [], []

    def _do_queue(self, path: tuple[int, ...]) -> None:
        """Do all jobs that have been queued."""
        if self.recorder.is_gathered():
            for scratch in self.scratches:
                scratch.forget_idle({need.key for job in self._queue for need in job.needs})
                scratch.rewind()
        if self.recorder.loops:
            self._do_all(0, len(self._queue), path)
        else:
            for job in range(len(self._queue)):
                self._do(job)

    def _numbered(self, job: Job) -> Job:
        """``job`` with a number for what it is like."""
        needs, run, watched, like, at, lane, alone = job
        if like is None:
            return job
        number = self._likes.setdefault(like, len(self._likes))
        return Job(needs, run, watched, number, at, lane, alone)

    def _do_all(self, first: int, last: int, path: tuple[int, ...]) -> None:
        """Do jobs [first, last); ``path`` tells them from others, but not from those of another
        iteration."""
        number = first
        for loop in find_loops(self._queue, first, last, least):
            if self._commands(loop) >= MANY_COMMANDS:
                self._apart.add(loop.first)
            self._do_few(number, loop.first, path, first)
            self._do_loop(loop, (*path, loop.first - first, loop.size))
            number = loop.end
        self._do_few(number, last, path, first)

    def _do_few(self, number: int, last: int, path: tuple[int, ...], first: int) -> None:
        """The same where no loop has enough iterations to leave some out: each of them works at the
        same places, so that it is seen to be the same afterwards."""
        for loop in find_loops(self._queue, number, last, least_again):
            for job in range(number, loop.first):
                self._do(job)
            self._do_loop(loop, (*path, loop.first - first, loop.size))
            number = loop.end
        for job in range(number, last):
            self._do(job)

    def _commands(self, loop: JobLoop) -> int:
        """Commands of an iteration, as far as they are known."""
        jobs = self._queue[loop.first : loop.first + loop.size]
        return sum(self._lengths.get(job.like, 0) for job in jobs)

    def _do_loop(self, loop: JobLoop, path: tuple[int, ...]) -> None:
        running: RunningLoop | None = None
        count = begun = pace = 0
        while count < loop.count:
            if running is None:
                running, begun = self._running(loop, count, path, pace), count
            begin, now = loop.first + count * loop.size, self.recorder.now(self.core)
            self._do_all(begin, begin + loop.size, path)
            count, pace = count + 1, self.recorder.now(self.core) - now
            if running:
                count += running.done(count - begun)
                if count == begun + running.jobs.count:
                    self._loops.pop()
                    running = None

    def _running(
        self, loop: JobLoop, done: int, path: tuple[int, ...], pace: int
    ) -> RunningLoop | None:
        """The iterations of a loop that begin now, behind so many that are done, where some may be
        left out; each takes about ``pace`` cycles."""
        count = loop.count - done
        if len(self._loops) == self.recorder.levels or not self.recorder.may_loop(path):
            return None
        most = self.recorder.most_cycles(self.core)
        if most is not None:
            count = min(count, most // pace if pace else 0)
        if count < (LEAST_AGAIN if most is None else least_left_out(loop.size)):
            return None
        jobs = JobLoop(loop.first + done * loop.size, loop.size, count)
        level = len(self._loops)
        running = RunningLoop(
            self.scratches,
            self.recorder,
            jobs,
            self._queue,
            path,
            level,
            commands=0 if self._ready else self._commands(jobs),
        )
        self._loops.append(running)
        return running

    def _do(self, number: int) -> None:
        job, there = self._queue[number], self._next[number]
        blocks = self._ready.pop(job.lane, None)
        for loop in self._loops:
            loop.begin(number)
        if blocks is None:
            for loop in self._loops:
                if loop.before(number):
                    # Products that are under way keep theirs.
                    self.banks = self.banks[0], 1
            if self._tight.get(job.lane) is False:
                self._tighten(job)
            blocks = self._acquire_packed(job, number)
        before = len(self.recorder)
        if there is not None and not self._is_apart(there):
            try:
                watched = _results(job, blocks) if job.watched else []
                self._ready[job.lane] = self._acquire(
                    self._queue[there], there, packed=self._packed(job.lane), watched=watched
                )
            except NoRoom:
                self._note_no_room(job, self._queue[there])
        self._emit(job, blocks)
        if job.like is not None:
            self._lengths[job.like] = len(self.recorder) - before
        for block in blocks:
            self.scratches[job.lane].release(block)

    def _emit(self, job: Job, blocks: Sequence[Block]) -> None:
        """Run ``job``; or emit the commands again of one that is like it, on the same blocks, which
        has done nothing but emit commands that touch no DRAM."""
        if job.like is None:
            job.run(*blocks)
            return
        key = (job.like, self.banks[0], *[block.address for block in blocks])
        known = self._emitted.get(key)
        if known:
            self.recorder.emit_again(known)
            return
        scratch, first = self.scratches[job.lane], len(self.recorder)
        before = scratch.changes, self.banks
        job.run(*blocks)
        if known is None:
            alone = before == (scratch.changes, self.banks)
            self._emitted[key] = self.recorder.on_chip(first) if alone else ()

    def _packed(self, lane: int) -> bool:
        """Whether blocks lie side by side, without regard to banks."""
        return self.recorder.is_gathered() or lane in self._tight

    def _note_no_room(self, job: Job, other: Job) -> None:
        """Nothing could be loaded for a job while the one in front is done. If both have room, the
        blocks lie side by side from now on."""
        if self._packed(job.lane):
            return
        words = {need.key: need.words for need in (*job.needs, *other.needs) if not need.place}
        if sum(words.values()) <= self.scratches[job.lane].words:
            self._tight[job.lane] = False

    def _tighten(self, job: Job) -> None:
        """Nobody uses a block: what can be loaded again, and ``job`` does not need, goes, so that
        there are fewer gaps."""
        results = {
            need.key
            for other in self._queue
            for need in other.needs
            if not need.can_be_loaded and other.lane == job.lane
        }
        scratch = self.scratches[job.lane]
        scratch.forget_idle(results | {need.key for need in job.needs})
        scratch.rewind()
        self._tight[job.lane] = True

    def _is_apart(self, number: int) -> bool:
        """Whether nothing is loaded for a job before it begins."""
        return number in self._apart or any(loop.begins_empty(number) for loop in self._loops)

    def _acquire_packed(self, job: Job, number: int) -> Sequence[Block]:
        """The same without regard to banks, from the first word on, if it does not fit else; what
        can be loaded does not stay where it is."""
        scratch = self.scratches[job.lane]
        try:
            return self._acquire(job, number, packed=self._packed(job.lane))
        except NoRoom:
            keys = {need.key for need in job.needs if need.can_be_loaded}
            scratch.drop_keys(keys.__contains__)
            scratch.rewind()
        try:
            return self._acquire(job, number, packed=True)
        except NoRoom:
            self.recorder.scattered()
            raise

    def _acquire(
        self, job: Job, number: int, *, packed: bool = False, watched: Sequence[Block] = ()
    ) -> Sequence[Block]:
        """Blocks of a job's needs; all loads come when all have room. What it reads should not be
        in a bank with ``watched`` either."""
        blocks: list[Block] = []
        missing: list[tuple[Need, Block]] = []
        scratch = self.scratches[job.lane]
        # What is there does not go to make room for something else.
        there = [need.place or scratch.find(need.key) for need in job.needs]
        try:
            for index, need in enumerate(job.needs):
                # What another need of the job has just taken is there, too.
                block = there[index] or scratch.find(need.key)
                if block is None:
                    block = self._take_again(scratch, number, index, need)
                    if block:
                        missing.append((need, block))
                if block is None:
                    block = scratch.take(
                        need.words,
                        apart=() if packed else _apart(job, blocks, watched),
                        key=need.key,
                        edge=need.load is None and self.recorder.is_gathered(),
                    )
                    missing.append((need, block))
                blocks.append(block)
                if type(need.key) is object and any(block is other for _, other in missing):
                    # Others may be given up, and be written anew.
                    assert need.key not in self._written, "results of jobs before are gone"
        except NoRoom:
            scratch.drop(block for _, block in missing)
            for block in (*blocks, *filter(None, there[len(blocks) :])):
                scratch.release(block)
            raise
        for need, block in missing:
            if need.load is not None:
                need.load(block)
            elif type(need.key) is object:
                self._written.add(need.key)
        for loop in self._loops:
            loop.note(number, blocks, [block for _, block in missing])
        return blocks

    def _take_again(self, scratch: Scratch, number: int, index: int, need: Need) -> Block | None:
        """A block where loops want it to be, if nobody uses a word there."""
        for loop in reversed(self._loops):
            for place in loop.places(number, index):
                block = scratch.take_at(place, need.words, key=need.key)
                if block:
                    return block
        return None


def _next_of_lane(jobs: Sequence[Job]) -> list[int | None]:
    """For every job the next one of its lane."""
    found: list[int | None] = []
    later: dict[int, int] = {}
    for number in range(len(jobs) - 1, -1, -1):
        found.append(later.get(jobs[number].lane))
        later[jobs[number].lane] = number
    return found[::-1]


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
