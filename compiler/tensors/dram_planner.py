"""The memory plan of DRAM: blocks that are never alive at the same time share space."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from compiler.errors import CompileError

from .intervals import Interval, round_up

__all__ = ["MOST_BYTES", "Arena", "Block", "MemoryPlan"]

#: Offsets in the memory window have 32 bits.
MOST_BYTES = 1 << 32
#: Blocks put first in turn because they end too high, at most this often, and as often as there
#: are no more pairs of blocks than so many in all.
_ROUNDS, _MOST_PAIRS = 32, 1 << 22


@dataclass(frozen=True, kw_only=True)
class Block:
    """Bytes that are needed for some time.

    Members
    -------
    name : unique in its arena
    size : bytes
    steps : (first, last) step in which it is alive, both included; None: always, also from one run
        of the program to the next
    kind, shape : for people: what lies there
    """

    name: str
    size: int
    steps: tuple[int, int] | None = None
    kind: str = "bytes"
    shape: tuple[int, ...] = ()

    def meets(self, other: "Block") -> bool:
        """Whether both are alive in some step."""
        if self.steps is None or other.steps is None:
            return True
        return self.steps[0] <= other.steps[1] and other.steps[0] <= self.steps[1]


class Arena:
    """Collects blocks and gives them places.

    Parameters
    ----------
    alignment : bytes; every offset is a multiple
    """

    def __init__(self, alignment: int = 64) -> None:
        if alignment < 1:
            raise ValueError(f"alignment must be at least 1 byte, not {alignment!r}")
        self.alignment = alignment
        self.blocks: dict[str, Block] = {}

    def add(
        self,
        name: str,
        size: int,
        *,
        steps: Interval | None = None,
        kind: str = "bytes",
        shape: Sequence[int] = (),
    ) -> Block:
        """A block, as :class:`Block` describes it.

        Raises
        ------
        ValueError
            for a name that exists, a size below 1, or steps that end before they begin.
        """
        if name in self.blocks:
            raise ValueError(f"block {name} exists already")
        if size < 1:
            raise ValueError(f"block {name} must have at least 1 byte, not {size!r}")
        if steps is not None and steps[0] > steps[1]:
            raise ValueError(f"block {name} must not end before it begins: steps {steps}")
        block = Block(name=name, size=size, steps=steps, kind=kind, shape=tuple(shape))
        self.blocks[name] = block
        return block

    def plan(self) -> "MemoryPlan":
        """Places of all blocks; the same for the same blocks in the same order.

        Permanent blocks lie at the bottom, in order. The others are placed one by one, each into
        the smallest or the lowest gap that the blocks placed before it leave in its steps; of
        several orders the best is taken. While the plan is larger than the bytes that are alive
        at once, blocks that end too high are moved to the front of the order, as often as time
        allows: a placement of n blocks takes time of order n².
        """
        offsets, floor = {}, 0
        rest = []
        for block in self.blocks.values():
            if block.steps is not None:
                rest.append(block)
                continue
            offsets[block.name] = floor
            floor += round_up(block.size, self.alignment)
        sizes = {block.name: round_up(block.size, self.alignment) for block in rest}
        goal = _peak(rest, sizes)
        orders: tuple[Callable[[Block], Any], ...] = (
            lambda b: (-sizes[b.name], _steps(b)),
            lambda b: (-sizes[b.name] * (_steps(b)[1] - _steps(b)[0] + 1), _steps(b)),
            lambda b: (_steps(b)[0] - _steps(b)[1], -sizes[b.name]),
            lambda b: (_steps(b)[0], -sizes[b.name]),
        )
        best: tuple[int, dict[str, int]] | None = None
        for order, tightest in product(orders, (True, False)):
            found = _improve(sorted(rest, key=order), sizes, goal, tightest)
            if best is None or found[0] < best[0]:
                best = found
            if best[0] == goal:
                break
        assert best is not None
        offsets |= {name: floor + offset for name, offset in best[1].items()}
        return MemoryPlan(
            blocks=tuple(self.blocks.values()), offsets=offsets, alignment=self.alignment
        )


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Blocks and where they lie.

    Members
    -------
    blocks : in the order in which they were added
    offsets : bytes from the arena's start, by name
    alignment : bytes
    """

    blocks: tuple[Block, ...]
    offsets: dict[str, int]
    alignment: int

    @cached_property
    def size(self) -> int:
        """Bytes up to the end of the highest block, aligned."""
        ends = (self.offsets[block.name] + block.size for block in self.blocks)
        return round_up(max(ends, default=0), self.alignment)

    def require_room(self, program_bytes: int = 0) -> None:
        """Raise a :class:`~compiler.errors.CompileError` with the sizes if the blocks and a program
        behind them are larger than a memory window can be."""
        total = self.size + program_bytes
        if total <= MOST_BYTES:
            return
        largest = sorted(self.blocks, key=lambda block: -block.size)[:3]
        names = ", ".join(f"{block.name} {block.size:,} bytes" for block in largest)
        program = f" and {program_bytes:,} bytes of program" if program_bytes else ""
        raise CompileError(
            f"the network takes {self.size:,} bytes of tensors{program} in DRAM, more than the "
            f"{MOST_BYTES:,} that a memory window can have; the largest are {names}; fewer images "
            "in a batch take less"
        )

    @cached_property
    def unshared(self) -> int:
        """Bytes that the blocks would take one behind the other, aligned."""
        return sum(self._sizes.values())

    @cached_property
    def peak(self) -> int:
        """The most bytes, aligned, that are alive in one step: no plan can be smaller."""
        return _peak(self.blocks, self._sizes)

    @property
    def _sizes(self) -> dict[str, int]:
        return {block.name: round_up(block.size, self.alignment) for block in self.blocks}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Names of the blocks that use some of the same bytes, in order of their steps."""
        own = next(block for block in self.blocks if block.name == name)
        first, end = self.offsets[name], self.offsets[name] + own.size
        found = [
            block
            for block in self.blocks
            if block is not own
            and self.offsets[block.name] < end
            and first < self.offsets[block.name] + block.size
        ]
        return tuple(block.name for block in sorted(found, key=_steps))

    def check(self) -> None:
        """Verify the plan: alignment, and blocks alive at the same time do not overlap.

        Raises
        ------
        ValueError
            naming the first blocks that are wrong.
        """
        placed = sorted(self.blocks, key=lambda block: self.offsets[block.name])
        for index, block in enumerate(placed):
            first = self.offsets[block.name]
            if first < 0 or first % self.alignment:
                raise ValueError(f"{block.name} at {first} is not aligned to {self.alignment}")
            for other in placed[index + 1 :]:
                if self.offsets[other.name] >= first + block.size:
                    break
                if block.meets(other):
                    raise ValueError(
                        f"{block.name} at {first}, {block.size} bytes, overlaps {other.name} at "
                        f"{self.offsets[other.name]} while both are alive"
                    )


def _steps(block: Block) -> Interval:
    """Those of a block that is not permanent."""
    assert block.steps is not None
    return block.steps


def _peak(blocks: Iterable[Block], sizes: Mapping[str, int]) -> int:
    """The most bytes alive in one step."""
    changes: dict[int, int] = {}
    permanent = 0
    for block in blocks:
        if block.steps is None:
            permanent += sizes[block.name]
            continue
        first, last = block.steps
        changes[first] = changes.get(first, 0) + sizes[block.name]
        changes[last + 1] = changes.get(last + 1, 0) - sizes[block.name]
    alive = most = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return permanent + most


def _improve(
    order: Sequence[Block], sizes: Mapping[str, int], goal: int, tightest: bool
) -> tuple[int, dict[str, int]]:
    """(size, offsets) of the best of some orders, each made of the one before by moving the block
    that ends highest to the front."""
    best: tuple[int, dict[str, int]] | None = None
    seen: set[tuple[str, ...]] = set()
    for _ in range(max(1, min(_ROUNDS, _MOST_PAIRS // max(1, len(order)) ** 2))):
        size, offsets = _place(order, sizes, tightest)
        if best is None or size < best[0]:
            best = size, offsets
        if size == goal:
            break
        highest = max(order, key=lambda block: offsets[block.name] + sizes[block.name])
        order = [highest] + [block for block in order if block is not highest]
        key = tuple(block.name for block in order)
        if key in seen:
            break
        seen.add(key)
    assert best is not None
    return best


def _place(
    order: Sequence[Block], sizes: Mapping[str, int], tightest: bool
) -> tuple[int, dict[str, int]]:
    """(size, offsets) when blocks get the smallest (or lowest) gap, one after the other."""
    # Offset, number in the order, end, steps: in order of offsets.
    placed: list[tuple[int, int, int, int, int]] = []
    offsets: dict[str, int] = {}
    total = 0
    for number, block in enumerate(order):
        (first, last), size = _steps(block), sizes[block.name]
        top, chosen = 0, None
        for offset, _, end, begins, ends in placed:
            if begins > last or ends < first:
                continue
            gap = offset - top
            if gap >= size and (chosen is None or gap < chosen[0]):
                chosen = gap, top
                if not tightest:
                    break
            if end > top:
                top = end
        offsets[block.name] = place = top if chosen is None else chosen[1]
        insort(placed, (place, number, place + size, first, last))
        total = max(total, place + size)
    return total, offsets
