"""Which steps run beside each other: products, and work for the vector engine alone.

Steps of a batch depend on each other by the tensors that they read and write. As far as these allow
they may change places: the one in front of the longest chain of others comes next, and in the other
lane (:mod:`~compiler.codegen.lanes`) what may run at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.codegen.lanes import Lanes
from compiler.codegen.scratchpad import NoRoom
from compiler.errors import CompileError
from compiler.stages import stage
from compiler.tensors.tensor import Tensor

from .program import StepInfo
from .step import ARRAY, VECTOR, Step

__all__ = ["Group", "grouped", "write_groups"]

#: A product that covers as much of the work beside it is as good as one that covers all of it.
_ENOUGH = 0.9


@dataclass(frozen=True)
class Group:
    """Steps that are written together: ``main`` one after the other, those ``beside`` them, too."""

    main: tuple[Step, ...]
    beside: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.main + self.beside


def grouped(steps: Sequence[Step], owner: Callable[[str], str]) -> list[Group]:
    """``steps`` in groups; ``owner(name)`` is the tensor that a tensor's memory belongs to."""
    return _Grouping(steps, owner).groups()


class _Grouping:
    def __init__(self, steps: Sequence[Step], owner: Callable[[str], str]) -> None:
        self.steps = steps
        self.before = _dependencies(steps, owner)
        #: Cycles of the longest chain of steps that begins with each.
        self.heights = [step.cycles for step in steps]
        for number in range(len(steps) - 1, -1, -1):
            for source in self.before[number]:
                height = self.steps[source].cycles + self.heights[number]
                self.heights[source] = max(self.heights[source], height)
        self.done: set[int] = set()
        self.left = dict.fromkeys(range(len(steps)))
        self.lanes: dict[str, list[int]] = {}

    def groups(self) -> list[Group]:
        found = []
        while self.left:
            self.lanes = {ARRAY: [], VECTOR: []}
            first = self._highest(self._ready())
            unit = self.steps[first].unit
            self._take(first, self.lanes.setdefault(unit, []))
            if unit == VECTOR:
                self._follow()
                self._cover()
            if self.lanes[ARRAY]:
                self._fill()
            for part in self.lanes.values():
                self.done.update(part)
            parts = [tuple(self.steps[n] for n in part) for part in self.lanes.values() if part]
            found.append(Group(*parts))
        return found

    def _take(self, number: int, lane: list[int]) -> None:
        lane.append(number)
        del self.left[number]

    def _highest(self, numbers: Sequence[int]) -> int:
        return max(numbers, key=lambda number: (self.heights[number], -number))

    def _ready(self, unit: str | None = None) -> list[int]:
        """Steps whose turn it may be; only those of ``unit`` if there is one, behind those of its
        lane, too."""
        own = self.lanes[unit] if unit else []
        return [
            number
            for number in self.left
            if (unit is None or self.steps[number].unit == unit)
            and all(source in self.done or source in own for source in self.before[number])
        ]

    def _cycles(self, unit: str) -> int:
        return sum(self.steps[number].cycles for number in self.lanes[unit])

    def _follow(self) -> None:
        """What comes next behind the vector engine's work, as long as it is such work, too."""
        while ready := {*self._ready(VECTOR), *self._ready()}:
            number = self._highest(sorted(ready))
            if self.steps[number].unit != VECTOR:
                return
            self._take(number, self.lanes[VECTOR])

    def _cover(self) -> None:
        """Products that take as long as the work beside them, and no longer than necessary."""
        while ready := self._ready(ARRAY):
            rest = self._cycles(VECTOR) * _ENOUGH - self._cycles(ARRAY)
            if rest <= 0:
                return
            long = [number for number in ready if self.steps[number].cycles >= rest]
            number = min(long, key=lambda n: self.steps[n].cycles) if long else self._highest(ready)
            self._take(number, self.lanes[ARRAY])

    def _fill(self) -> None:
        """Work for the vector engine that takes no longer than the products beside it."""
        while True:
            room = self._cycles(ARRAY) - self._cycles(VECTOR)
            ready = [n for n in self._ready(VECTOR) if self.steps[n].cycles <= room]
            if not ready:
                return
            self._take(self._highest(ready), self.lanes[VECTOR])


def _dependencies(steps: Sequence[Step], owner: Callable[[str], str]) -> list[set[int]]:
    """For each step those that it has to come behind."""
    found: list[set[int]] = []
    writers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    fixed: int | None = None
    since: list[int] = []  # steps behind the last fixed one
    for number, step in enumerate(steps):
        before: set[int] = set()
        if step.direction != "update":
            before.update([] if fixed is None else [fixed], since if step.fixed else ())
            if step.fixed:
                fixed, since = number, []
            else:
                since.append(number)
        reads, writes = ({owner(name) for name in names} for names in (step.reads, step.writes))
        for name in reads | writes:
            if name in writers:
                before.add(writers[name])
        for name in writes:
            before.update(readers.pop(name, ()))
            writers[name] = number
        for name in reads - writes:
            readers.setdefault(name, []).append(number)
        found.append(before)
    return found


def write_groups(
    groups: Sequence[Group],
    recorder: Recorder,
    program_of: Callable[[Step], CoreProgram],
    tensors: Mapping[str, Tensor],
) -> list[StepInfo]:
    """Record ``groups``, each step by its program; what of the commands belongs to which. Where
    steps have no room beside each other they come one after the other."""
    infos = []
    for number, group in enumerate(groups):
        program = program_of(group.main[0])
        if group.beside and not recorder.is_apart(number):
            lanes = _listed(group, program, tensors)
            if lanes:
                first = len(recorder)
                recorder.begin_step()
                try:
                    with stage("beside each other"):
                        lanes.run()
                except NoRoom:
                    recorder.not_together(number)
                    raise
                step, *others = group.steps
                names = [other.name for other in others]
                infos.append(StepInfo.of(step, program, first, names))
                infos += [StepInfo.of(other, program, len(recorder)) for other in others]
                continue
        for step in group.steps:
            first, program = len(recorder), program_of(step)
            recorder.begin_step()
            step.write(program, tensors)
            infos.append(StepInfo.of(step, program, first))
    return infos


def _listed(group: Group, program: CoreProgram, tensors: Mapping[str, Tensor]) -> Lanes | None:
    """Lanes with the jobs of a group; None if these have no room there, or make no loops."""
    lanes = Lanes(program)
    try:
        for lane, steps in zip(lanes.lanes, (group.main, group.beside), strict=True):
            with lane.listing():
                for step in steps:
                    step.write(lane, tensors)
    except CompileError:
        return None
    return lanes if lanes.may_run() else None
