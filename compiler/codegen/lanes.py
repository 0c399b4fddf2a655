"""Lists of jobs that run beside each other, each in a part of the memory of its own.

Queues of a core run at the same time, but each takes its commands in the order in which they were
written. So what is to run at the same time has to be written in turns: a few jobs of one *lane*,
then a few of the other one.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, pairwise
from math import inf

from compiler.errors import CompileError
from hw.config import AdaGPConfig, CoreConfig
from hw.isa.encoding import Opcode

from .core_builder import CoreProgram
from .cost import Command, Fields, duration
from .dependencies import Recorder
from .jobs.job import Job
from .jobs.job_runner import JobRunner
from .jobs.loops_of_jobs import Cost, Jobs
from .jobs.pipeline import Pipeline, Touched
from .jobs.turns import in_turns
from .linking.entries import Region, dram_region
from .replay import StepCall
from .scratchpad import Block, NoRoom, Scratch

__all__ = ["Lanes", "Turns", "most_jobs"]

#: What is hidden at least: a share of the products, which have less room than by themselves.
_LEAST_SHARE = 0.05
#: A share of the work ahead of products that is hidden at least.
_LEAST_HIDDEN = 0.5
#: Commands that a job takes, and of how many one is written in the best of loops.
_COMMANDS, _BEST = 4, 8

#: The lane of every job, and how many jobs at the beginning are in no loop.
Turns = tuple[bytes, int]


def most_jobs(cycles: float, worth: float) -> float:
    """Jobs that may be worth it to hide so many cycles, if each of their commands has to hide
    ``worth``."""
    return _BEST * cycles / (_COMMANDS * worth) if worth else inf


class _ListedScratch(Scratch):
    """A part of a memory in which what happens between jobs is a job itself while ``later`` is
    there, which takes it."""

    later: Callable[[Callable[[], None]], None] | None = None

    def forget(self, *owners: Hashable) -> None:
        if self.later:
            self.later(partial(self.forget, *owners))
        else:
            super().forget(*owners)

    def hold(self, words: int) -> Block:
        if not self.later:
            return super().hold(words)
        if words > self.words:
            raise NoRoom(f"{words} words do not fit into a part of {self.words}")
        block = Block(self.memory, self.base, words, fixed=True)
        self.later(partial(self.insert_held, block))
        return block

    def let_go(self, block: Block) -> None:
        if self.later:
            self.later(partial(self.let_go, block))
        else:
            super().let_go(block)


class _Noted(Recorder):
    """Notes the commands that are emitted, and nothing else of them."""

    def __init__(self, config: AdaGPConfig) -> None:
        super().__init__(config)
        self.noted: list[Command] = []

    def emit(
        self, opcode: Opcode, fields: Fields, *, reads: Iterable[Region] = (),
        writes: Iterable[Region] = (), core: int = 0,
    ) -> None:  # fmt: skip
        self.noted.append(Command(opcode, core, fields=fields))


class Lane(CoreProgram):
    """Lists the jobs of steps.

    Parameters
    ----------
    number : of the lane
    part : words [begin, end) of the core's first memory
    most : jobs that are listed; more raise a :class:`~compiler.errors.CompileError`
    """

    #: Products leave time for loads and stores, and fewer jobs are fewer commands.
    pieces = 2
    in_turns = True

    def __init__(
        self, config: AdaGPConfig, core: CoreConfig, recorder: Recorder, number: int,
        part: tuple[int, int], most: float = inf,
    ) -> None:  # fmt: skip
        super().__init__(config, core, recorder)
        self.number, self._most = number, most
        self.scratch: _ListedScratch = _ListedScratch(config, core.memories[0], part)
        self._memories = {self.scratch.memory: self.scratch}
        #: Jobs, list by list.
        self.lists: list[list[Job]] = []

    def use(self, runner: JobRunner) -> None:
        """``runner`` does the jobs."""
        self._runner = runner

    def write_step(self, call: StepCall) -> None:
        call.write(self)

    @contextmanager
    def listing(self) -> Iterator[None]:
        """A context in which jobs are listed."""
        self.scratch.later = self._later
        written = len(self.recorder)
        try:
            yield
        finally:
            self.scratch.later = None
        assert len(self.recorder) == written, "commands that belong to no job"

    def _later(self, action: Callable[[], None]) -> None:
        self.lists.append([Job((), action, lane=self.number, alone=True)])

    def expect(self, jobs: int) -> None:
        """Raises a :class:`~compiler.errors.CompileError` if so many more are too many."""
        if sum(map(len, self.lists)) + jobs > self._most:
            raise CompileError(f"more than {self._most:.0f} jobs beside others")

    def run(self, jobs: Iterable[Job]) -> None:
        place = len(self.lists)
        number = self.number
        # Without _replace(): there are a hundred thousand of them.
        listed = [
            Job(
                needs,
                run,
                watched,
                None if like is None else (number, place, like),
                at,
                number,
                alone,
            )
            for needs, run, watched, like, at, _, alone in jobs
        ]
        if listed:
            # The next list begins when nobody uses anything, as it would by itself.
            listed[-1] = listed[-1]._replace(alone=True)
            self.lists.append(listed)
        self.expect(0)

    def _vector(self, fields: Fields, reads: Sequence[Region], writes: Sequence[Region]) -> None:
        noted = fields.get("watch") or fields.get("guarded")
        assert self.number or not noted, "both lanes might watch numbers"
        super()._vector(fields, reads, writes)

    def weights(self, fields: Fields, *blocks: Block) -> None:
        assert not self.number, "a product beside products"
        super().weights(fields, *blocks)

    def cost(self, job: Job) -> Cost:
        """How long the unit of this lane takes for a job, about, if what is loaded is there; and
        its commands, if it is not."""
        if not job.needs:
            return 0, 0
        commands = self._commands(job)
        return self._cycles(commands), len(commands) + sum(
            need.load is not None for need in job.needs
        )

    def touched(self, job: Job) -> Touched:
        """What a job touches in DRAM, and how long the unit of this lane takes for it."""
        if not job.needs:
            return Touched((), (), 0)
        commands = self._commands(job, load=True)
        loads, stores = (
            [dram_region(c.fields) for c in commands if c.opcode is opcode]
            for opcode in (Opcode.LOAD, Opcode.STORE)
        )
        return Touched(loads, stores, self._cycles(commands))

    def _commands(self, job: Job, *, load: bool = False) -> list[Command]:
        """Those of a job, somewhere in the memory; with those that ``load`` what it needs."""
        noted = _Noted(self.config)
        recorder, self.recorder = self.recorder, noted
        banks = self._runner.banks
        try:
            first = self.scratch.base
            blocks = [
                need.place or Block(self.scratch.memory, first, need.words) for need in job.needs
            ]
            for need, block in zip(job.needs, blocks, strict=True):
                if load and need.load is not None:
                    need.load(block)
            job.run(*blocks)
            return noted.noted
        finally:
            self._runner.banks = banks
            self.recorder = recorder

    def _cycles(self, commands: Sequence[Command]) -> int:
        unit = Opcode.MATMUL if self.number == 0 else Opcode.VECTOR
        return sum(duration(c, self.config)[0] for c in commands if c.opcode is unit)


class Lanes:
    """Lanes of a core: of products, and of work beside them; or of steps ahead of them, each of
    which works on what the one before leaves, and the products on what the last one leaves.

    Parameters
    ----------
    program : of the whole core, whose memory they share from now on
    shares : parts of the memory that the other lanes have
    ahead : these are of steps ahead
    most : jobs that a lane lists; more raise a :class:`~compiler.errors.CompileError`

    Members
    -------
    lanes : of products, then the others, steps ahead in order
    """

    def __init__(
        self, program: CoreProgram, shares: Sequence[float] = (0.5,), *, ahead: bool = False,
        most: float = inf,
    ) -> None:  # fmt: skip
        program.scratch.forget_idle(())
        config, core, recorder = program.config, program.core, program.recorder
        words = program.scratch.words
        others = [int(words * share) for share in shares]
        ends = accumulate([words - sum(others), *others], initial=0)
        self.lanes = [
            Lane(config, core, recorder, number, part, most)
            for number, part in enumerate(pairwise(ends))
        ]
        self._ahead = self.lanes[0].shares_vector = ahead
        self._runner = JobRunner([lane.scratch for lane in self.lanes], recorder, core.index)
        self._jobs: list[Job] = []
        self._unlike = 0  # jobs at the beginning that are in no loop
        for lane in self.lanes:
            lane.use(self._runner)

    def may_run(self, worth: float) -> bool:
        """Whether it is worth the commands of jobs that have been listed, which are more in loops
        than those of each lane by itself: every one has to hide ``worth`` cycles; 0 where there are
        no loops."""
        costs: dict[Hashable, Cost] = {}

        def cost(job: Job) -> Cost:
            if job.like is None:
                return self.lanes[job.lane].cost(job)
            if job.like not in costs:
                costs[job.like] = self.lanes[job.lane].cost(job)
            return costs[job.like]

        main, *others = (Jobs(list(chain(*lane.lists)), cost) for lane in self.lanes)
        rest = sum(jobs.cycles for jobs in others)
        hidden = min(main.cycles, rest)
        count = sum(len(jobs.jobs) for jobs in (main, *others))
        if hidden < main.cycles * _LEAST_SHARE or count > most_jobs(hidden, worth):
            return False
        if self._ahead:
            lists = [*others, main]
            pipeline = Pipeline(
                [jobs.jobs for jobs in lists], lambda job: self.lanes[job.lane].touched(job)
            )
            self._jobs, hidden = pipeline.jobs, pipeline.hidden
            self._unlike = pipeline.first
            if hidden < rest * _LEAST_HIDDEN:
                return False
            alone = sum(jobs.written(0, len(jobs.jobs)) for jobs in lists)
            more = Jobs(self._jobs, cost).written(0, count) - alone
        else:
            self._jobs, more = in_turns(main, *others)
        return worth * more <= hidden

    @property
    def turns(self) -> Turns:
        """How jobs take turns where they may run."""
        return bytes(job.lane for job in self._jobs), self._unlike

    def take_turns(self, turns: Turns) -> bool:
        """The same jobs have been listed before and taken turns so; whether that can be."""
        order, self._unlike = turns
        lists = [list(chain(*lane.lists)) for lane in self.lanes]
        if [order.count(number) for number in range(len(lists))] != [*map(len, lists)]:
            return False
        jobs = [*map(iter, lists)]
        self._jobs = [next(jobs[number]) for number in order]
        self._jobs[: self._unlike] = [j._replace(like=None) for j in self._jobs[: self._unlike]]
        return True

    def run(self) -> None:
        """Do all jobs that have been listed."""
        self._runner.run(self._jobs)

    def close(self) -> None:
        """Forget the jobs, which know their lanes, so that all of it is freed."""
        self._jobs = []
        for lane in self.lanes:
            lane.lists = []
