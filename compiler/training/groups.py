"""Which steps run beside each other: products, and work for the vector engine alone.

Steps of a batch depend on each other by the tensors that they read and write. As far as these allow
they may change places: the one in front of the longest chain of others comes next, and in the other
lane (:mod:`~compiler.codegen.lanes`) what may run at the same time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .step import ARRAY, VECTOR, Step

__all__ = ["Group", "grouped", "product_cycles", "step_cycles"]

#: A product that covers as much of the work beside it is as good as one that covers all of it.
_ENOUGH = 0.9
#: How many steps ahead of a product there are at most; of all products forward the part that each
#: of them takes as long as, at least.
_MOST_AHEAD, _LEAST_AHEAD = 2, 1 / 150


@dataclass(frozen=True)
class Group:
    """Steps that are written together: ``main`` one after the other, those ``beside`` them, too.
    Steps ``ahead`` come before, or each begins as soon as it has what it needs of those before."""

    main: tuple[Step, ...]
    beside: tuple[Step, ...] = ()
    ahead: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.ahead + self.main + self.beside


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
        #: Steps that nobody waits for.
        self.ends = set(range(len(steps))).difference(*self.before)
        #: Cycles of products forward.
        self.forward = product_cycles(steps)
        self.done: set[int] = set()
        self.left = dict.fromkeys(range(len(steps)))
        self.lanes: dict[str, list[int]] = {}

    def groups(self) -> list[Group]:
        found = []
        while self.left:
            self.lanes = {ARRAY: [], VECTOR: []}
            first = self._next()
            unit = self.steps[first].unit
            self._take(first, self.lanes.setdefault(unit, []))
            ahead: list[int] = []
            if unit == VECTOR:
                self._follow()
                self._cover()
                ahead = [] if self.lanes[ARRAY] else self._lead()
            if self.lanes[ARRAY] and not ahead:
                self._fill()
            for part in (ahead, *self.lanes.values()):
                self.done.update(part)
            main, beside, *_ = *(part for part in self.lanes.values() if part), []
            found.append(Group(*map(self._steps, (main, beside, ahead))))
        return found

    def _steps(self, numbers: Iterable[int]) -> tuple[Step, ...]:
        return tuple(self.steps[number] for number in numbers)

    def _lead(self) -> list[int]:
        """The vector engine's steps forward, which leave their lane, if a product follows that
        needs their results, which is taken: they are ahead of it. Where there is work that might be
        beside the product instead, they have to take long."""
        ahead = self.lanes[VECTOR]
        steps = [self.steps[number] for number in ahead]
        if len(ahead) > _MOST_AHEAD or {step.direction for step in steps} != {"forward"}:
            return []
        if any(self.steps[number].unit == VECTOR for number in self._ready()):
            if step_cycles(steps) < _LEAST_AHEAD * len(ahead) * self.forward:
                return []
        products = [
            number
            for number in self._ready(*ahead)
            if self.steps[number].unit == ARRAY and not self.steps[number].predictor
        ]
        if not products:
            return []
        self.lanes[VECTOR] = []
        self._take(self._highest(products), self.lanes[ARRAY])
        return ahead

    def _next(self) -> int:
        """The step in front of the longest chain; but the predictor's come first, as work for the
        vector engine follows from them that may run beside products that come later."""
        ready = self._ready()
        early = [n for n in ready if self.steps[n].predictor and self.steps[n].unit != VECTOR]
        return self._highest(early or ready)

    def _take(self, number: int, lane: list[int]) -> None:
        lane.append(number)
        del self.left[number]

    def _highest(self, numbers: Sequence[int]) -> int:
        return max(numbers, key=lambda number: (self.heights[number], -number))

    def _ready(self, *behind: int) -> list[int]:
        """Steps whose turn it may be when these are done, too."""
        return [
            number
            for number in self.left
            if all(source in self.done or source in behind for source in self.before[number])
        ]

    def _ready_in(self, unit: str) -> list[int]:
        """Those of a unit, behind those of its lane."""
        return [n for n in self._ready(*self.lanes[unit]) if self.steps[n].unit == unit]

    def _cycles(self, unit: str) -> int:
        return step_cycles(self.steps[number] for number in self.lanes[unit])

    def _follow(self) -> None:
        """What comes next behind the vector engine's work, as long as it is such work, too. What
        others wait for comes even if it might be beside the next product, where products are
        few."""
        while ready := self._ready(*self.lanes[VECTOR]):
            number = self._highest(ready)
            if self.steps[number].unit != VECTOR:
                aside = [n for n in ready if self.steps[n].unit == VECTOR and n not in self.ends]
                if not aside or self._has_room(number):
                    return
                number = self._highest(aside)
            self._take(number, self.lanes[VECTOR])

    def _has_room(self, product: int) -> bool:
        """Whether products behind ``product`` take longer than the work that nobody waits for."""
        left = {number: self.steps[number] for number in self.left if number != product}
        return sum(
            step.cycles for step in left.values() if step.unit == ARRAY and not step.predictor
        ) >= sum(step.cycles for n, step in left.items() if step.unit == VECTOR and n in self.ends)

    def _cover(self) -> None:
        """Products that take as long as the work beside them, and no longer than necessary."""
        while ready := self._ready_in(ARRAY):
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
            ready = [n for n in self._ready_in(VECTOR) if self.steps[n].cycles <= room]
            if not ready:
                # Groups of both phases are alike more often then, and need not be recorded again.
                self.lanes[VECTOR].sort()
                return
            self._take(self._highest(ready), self.lanes[VECTOR])


def _dependencies(steps: Sequence[Step], owner: Callable[[str], str]) -> list[set[int]]:
    """For each step those that it has to come behind."""
    found: list[set[int]] = []
    writers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        before: set[int] = set()
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


def product_cycles(steps: Iterable[Step]) -> int:
    """Cycles of products forward."""
    return step_cycles(step for step in steps if (step.direction, step.unit) == ("forward", ARRAY))


def step_cycles(steps: Iterable[Step]) -> int:
    """Cycles of steps one after the other, roughly."""
    return sum(step.cycles for step in steps)
