"""Groups of steps become commands: in lanes beside each other, or one step after the other."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.codegen.lanes import Lanes, Turns, most_jobs
from compiler.codegen.replay import Likeness, StepCall
from compiler.codegen.scratchpad import NoRoom
from compiler.errors import CompileError
from compiler.stages import stage
from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig, CoreConfig

from .groups import Group, step_cycles
from .program import StepInfo
from .step import Step
from .units import UNITS

__all__ = ["Decisions", "least_hidden", "write_groups"]

#: The part of the buffer for work beside products. Sums of a map may come in pieces of any size,
#: and leave more room for a product's weights; maps that go through the vector engine may not.
_SHARE, _SMALL_SHARE = 0.5, 0.25
_LARGE = "forward", "backward"
#: The part of it for steps ahead of products.
_AHEAD_SHARE = 0.25
#: Cycles that every command hides that is written for it in a program with loops, at least; and
#: what share of the batch that is, so that a program grows by so much and not with the network; of
#: so many images, since more of them hide more behind as many commands.
_WORTH, _WORTH_SHARE, _WORTH_IMAGES = 200, 1 / 2_000_000, 128


@dataclass
class Decisions:
    """What is known of groups from when they have been written before.

    Members
    -------
    unfit : what groups are like that are not worth it
    turns : by number of a group, and what matters besides
    """

    unfit: set[Hashable] = field(default_factory=set)
    turns: dict[Hashable, Turns] = field(default_factory=dict)


def least_hidden(groups: Sequence[Group], images: int = 1) -> float:
    """Cycles that a command has to hide where these are the steps of a batch of so many images with
    backpropagation: the same in both phases, and on all variants."""
    steps = (step for group in groups for step in group.steps)
    # The predictor's steps are those of its core and, where it shares one, others besides.
    own = (step.cycles for step in steps if not step.predictor and step.direction not in UNITS)
    return max(_WORTH, sum(own) * _WORTH_SHARE * min(1, _WORTH_IMAGES / images))


def write_groups(
    groups: Sequence[Group],
    recorder: Recorder,
    program_of: Callable[[Step], CoreProgram],
    tensors: Mapping[str, Tensor],
    known: Decisions,
    *,
    worth: float,
) -> list[StepInfo]:
    """Record ``groups``, each step by its program; what of the commands belongs to which. Where
    steps have no room beside each other, or a command that is written for it in loops hides less
    than ``worth`` cycles, they come one after the other; what is ``known`` of groups comes to be
    more."""
    worth = worth * recorder.hides if recorder.loops else 0
    writer = _Writer(recorder, program_of, tensors, known, worth)
    for number, group in enumerate(groups):
        several = group.ahead or group.beside
        if not (several and writer.write_lanes(number, group)):
            writer.write(group.steps)
    return writer.infos


class _Writer:
    """Arguments as those of :func:`write_groups`."""

    def __init__(
        self, recorder: Recorder, program_of: Callable[[Step], CoreProgram],
        tensors: Mapping[str, Tensor], known: Decisions, worth: float,
    ) -> None:  # fmt: skip
        self.recorder, self.program_of, self.tensors = recorder, program_of, tensors
        self.known, self.worth = known, worth
        self.infos: list[StepInfo] = []

    def write(self, steps: Iterable[Step]) -> None:
        """One after the other."""
        for step in steps:
            first, program = len(self.recorder), self.program_of(step)
            self.recorder.begin_step()
            step.write(program, self.tensors)
            self.infos.append(StepInfo.of(step, program, first))

    def write_lanes(self, number: int, group: Group) -> bool:
        """Steps of a group of this number at the same time, if they have room, and are worth it.
        One that is like an earlier one is replayed (:mod:`~compiler.codegen.replay`)."""
        recorder = self.recorder
        kind = _kind(group, self.tensors)
        if recorder.hides == inf or kind in self.known.unfit or recorder.is_apart(number):
            return False
        program = self.program_of(group.main[0])
        like, touched = self._like(group, program)
        known = recorder.recordings.find(recorder, like) if recorder.recordings and like else None
        lanes = None if known else self._lanes(number, group, program)
        if not known and not lanes:
            if recorder.loops:
                self.known.unfit.add(kind)
            return False
        first = len(recorder)
        recorder.begin_step()
        recorder.together += 1
        with stage("beside each other"):
            if known:
                known.replay(recorder, touched)
            elif lanes:
                self._run(number, lanes, like, touched)
        step, *others = group.main + group.ahead + group.beside
        self.infos.append(StepInfo.of(step, program, first, [other.name for other in others]))
        self.infos += [StepInfo.of(other, program, len(recorder)) for other in others]
        return True

    def _like(self, group: Group, program: CoreProgram) -> tuple[Hashable, Sequence[Tensor]]:
        """What groups have in common that differ in the places of their tensors alone, None if it
        is not known or nothing is recorded; and the tensors that this one touches in DRAM."""
        if self.recorder.recordings is None:
            return None, ()
        calls = _Calls(program.config, program.core, self.recorder)
        for step in group.steps:
            step.write(calls, self.tensors)
        touched = list({t.name: t for call in calls.noted for t in call.tensors}.values())
        likeness = Likeness(touched)
        likes = [likeness.of(call) for call in calls.noted]
        if None in likes:
            return None, touched
        shape = [len(part) for part in (group.main, group.beside, group.ahead)]
        core = program.core.index, program.scratch.memory
        return (*shape, *likes, *core, self.worth, self.recorder.state), touched

    def _run(self, number: int, lanes: Lanes, like: Hashable, touched: Sequence[Tensor]) -> None:
        """Write lanes of the group of this number."""
        recorder = self.recorder
        try:
            if recorder.recordings and like:
                recorder.recordings.record(recorder, like, touched, lanes.run)
            else:
                lanes.run()
        except NoRoom:
            recorder.not_together(number)
            raise
        finally:
            lanes.close()

    def _lanes(self, number: int, group: Group, program: CoreProgram) -> Lanes | None:
        """Those of a group of this number, which takes known turns; None if it has no room there,
        or is not worth it."""
        key = number, self.recorder.loops, self.worth
        lanes = self._listed(group, program, self.known.turns.get(key))
        if lanes:
            self.known.turns[key] = lanes.turns
        return lanes

    def _listed(self, group: Group, program: CoreProgram, turns: Turns | None) -> Lanes | None:
        """Lanes with the jobs of a group, which take known ``turns``; None if these have no room
        there, or are not worth it."""
        ahead, beside = group.ahead, group.beside
        directions = {step.direction for step in beside}
        small = "reorganize" in directions and directions.isdisjoint(_LARGE)
        shares = [_AHEAD_SHARE / len(ahead) for _ in ahead] or [_SMALL_SHARE if small else _SHARE]
        cycles = min(step_cycles(group.main), step_cycles(ahead or beside))
        most = most_jobs(cycles, self.worth)
        lanes = Lanes(program, shares, ahead=bool(ahead), most=most)
        parts = group.main, *([step] for step in ahead), *filter(None, [beside])
        try:
            for lane, steps in zip(lanes.lanes, parts, strict=True):
                with lane.listing():
                    for step in steps:
                        step.write(lane, self.tensors)
        except CompileError:
            lanes.close()
            return None
        if (turns and lanes.take_turns(turns)) or lanes.may_run(self.worth):
            return lanes
        lanes.close()
        return None


def _kind(group: Group, tensors: Mapping[str, Tensor]) -> Hashable:
    """The same of groups for which the same holds."""
    return tuple(
        (step.direction, tuple(tensors[name].shape for name in (*step.reads, *step.writes)))
        for step in group.steps
    ) + (len(group.ahead),)


class _Calls(CoreProgram):
    """Notes the steps that are written, and does nothing."""

    def __init__(self, config: AdaGPConfig, core: CoreConfig, recorder: Recorder) -> None:
        super().__init__(config, core, recorder)
        self.noted: list[StepCall] = []

    def write_step(self, call: StepCall) -> None:
        self.noted.append(call)
