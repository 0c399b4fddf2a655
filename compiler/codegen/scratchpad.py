"""The on-chip memory while commands are written: blocks, and what may stay in them."""

from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from compiler.errors import CompileError
from compiler.tensors.intervals import Interval, round_up
from compiler.tensors.tensor import PREDICTOR_MEMORY
from hw.config import AdaGPConfig

from .dependencies import Region

__all__ = ["Block", "NoRoom", "Scratch", "arrange"]


#: Names of the memories in regions.
_BUFFERS = ("buffer", 0), ("buffer", 1)


class NoRoom(CompileError):
    """What is in use leaves no room for a block."""


@dataclass(eq=False)
class Block:
    """Words [address, address + words) of a memory; ``key`` names contents that may be used again.

    ``users`` counts those who need it; a block without users goes when room is wanted. A ``fixed``
    one is held or part of one that stays, and ``release`` does not take it back.
    """

    memory: int
    address: int
    words: int
    key: Hashable = None
    users: int = 1
    used: int = 0
    fixed: bool = False

    def part(self, first: int, words: int) -> "Block":
        """Some of its words as a block, for commands that touch no others."""
        return Block(self.memory, self.address + first, words)

    def region(self, first: int = 0, words: int | None = None) -> Region:
        """The whole of it, or ``words`` from word ``first`` on."""
        begin = self.address + first
        end = begin + (self.words - first if words is None else words)
        return Region(_BUFFERS[self.memory], begin, end)


def arrange(
    config: AdaGPConfig, memory: int, sizes: Sequence[int]
) -> tuple[list[int], bool] | None:
    """First words of blocks of ``sizes`` that are side by side in a memory, each from the start of
    a bank of its own where there is room for that, and whether there is; None where they do not
    fit."""
    depths = config.memory_banks[memory]
    for unit in (depths[0], 1):
        begins = [0, *accumulate(round_up(size, unit) for size in sizes)]
        if begins[-1] <= sum(depths):
            return begins[:-1], unit > 1
    return None


class Scratch:
    """Allocates blocks of one memory.

    Room is given out in turns through the whole memory, so that what was freed last is written
    last, and as little as possible waits for those who still read it. Contents stay until their
    room is needed, the longest unused first.

    Parameters
    ----------
    config : AdaGPConfig
    memory : 0 global buffer, 1 predictor memory
    part : words [begin, end) of it that may be used; None for all

    Members
    -------
    changes : how often blocks have come or gone, or what is in them has become other contents
    """

    def __init__(self, config: AdaGPConfig, memory: int = 0, part: Interval | None = None) -> None:
        depths = config.memory_banks[memory]
        begin, end = part or (0, sum(depths))
        self.memory, self._config = memory, config
        self.bank_depth = depths[0]
        self.base = begin + (PREDICTOR_MEMORY if memory else 0)
        self.words = end - begin
        self._reserved = begin
        self._blocks: list[Block] = []  # by address
        self._known: dict[Hashable, Block] = {}
        self._cursor = 0
        self._time = 0
        self.changes = 0

    def take(
        self, words: int, *, apart: Sequence[Sequence[Block]] = (), key: Hashable = None,
        edge: bool = False,
    ) -> Block:  # fmt: skip
        """A new block with one user, in other banks than ``apart`` (groups of blocks, the most
        important first) if there is room. ``edge``: it lies at an edge of the smallest free place,
        so that what is left is in one piece, since it stays for long.

        Raises :class:`NoRoom` if there is none.
        """
        find = self._find_edge if edge else self._find
        place = find(words, apart)
        while place is None:
            idle = [block for block in self._blocks if not block.users]
            if not idle:
                used = sum(block.words for block in self._blocks)
                raise NoRoom(
                    f"{words} more words do not fit into a memory of {self.words}, of which {used} "
                    "are in use"
                )
            self._remove(min(idle, key=lambda block: block.used))
            place = find(words, apart)
        return self._insert(place, words, key)

    def take_at(self, address: int, words: int, *, key: Hashable = None) -> Block | None:
        """A new block at ``address``, where nobody may be using a word; else None. Contents that
        lie there go."""
        there = [
            block
            for block in self._blocks
            if block.address < address + words and address < block.address + block.words
        ]
        if any(block.users or block.fixed for block in there):
            return None
        for block in there:
            self._remove(block)
        return self._insert(address - self.base, words, key)

    def take_side_by_side(self, sizes: Sequence[int]) -> list[Block]:
        """Blocks of ``sizes`` as :func:`arrange` places them, behind what was taken last if there
        is room. Nobody may be using a word there."""
        found = arrange(self._config, self.memory, sizes)
        if found is None or self._reserved:
            raise NoRoom(f"{sum(sizes)} words do not fit into a memory of {self.words}")
        begins, apart = found
        first = round_up(self._cursor, self.bank_depth if apart else 1)
        if first + begins[-1] + sizes[-1] > self.words:
            first = 0
        blocks = []
        for begin, size in zip(begins, sizes, strict=True):
            block = self.take_at(self.base + first + begin, size)
            assert block is not None
            blocks.append(block)
        return blocks

    def _insert(self, place: int, words: int, key: Hashable) -> Block:
        self.changes += 1
        block = Block(self.memory, self.base + place, words, key)
        self._cursor = (place + words) % self.words
        index = bisect_left(self._blocks, block.address, key=lambda other: other.address)
        self._blocks.insert(index, block)
        if key is not None:
            self._known[key] = block
        return block

    def reserve(self, words: int) -> Block:
        """The first words as a block that stays; before any other is taken. There is that much
        less room then."""
        assert not self._blocks and words < self.words
        block = Block(self.memory, self.base, words, fixed=True)
        self.base += words
        self.words -= words
        self._reserved += words
        return block

    def hold(self, words: int) -> Block:
        """The first words as a block that stays until ``let_go``. Nobody may be using any of them;
        contents that lie there go."""
        block = Block(self.memory, self.base, words, fixed=True)
        self.insert_held(block)
        return block

    def insert_held(self, block: Block) -> None:
        """``hold`` for a block of those words."""
        for other in [b for b in self._blocks if b.address < block.address + block.words]:
            assert not other.users
            self._remove(other)
        self.changes += 1
        self._blocks.insert(0, block)

    def let_go(self, block: Block) -> None:
        """The end of ``hold``."""
        self._remove(block)

    def find(self, key: Hashable) -> Block | None:
        """The block with these contents, with one more user, or None."""
        block = self._known.get(key)
        if block is not None:
            block.users += 1
        return block

    def release(self, block: Block) -> None:
        """One user less; without a key and users the block is gone."""
        if block.fixed:
            return
        block.users -= 1
        self._time += 1
        block.used = self._time
        if not block.users and block.key is None:
            self._remove(block)

    def drop(self, blocks: Iterable[Block]) -> None:
        """Contents of these blocks are old, or of no further use."""
        for block in list(blocks):
            if block.key is not None:
                del self._known[block.key]
                block.key = None
                self.changes += 1
                if not block.users:
                    self._remove(block)

    def rename(self, blocks: Iterable[Block], keys: Mapping[Hashable, Hashable]) -> None:
        """``blocks`` hold other contents than their keys say: those that ``keys`` gives for them.
        Older copies of these are forgotten."""
        known = [block for block in blocks if self._known.get(block.key) is block]
        changed = {block: keys.get(block.key, block.key) for block in known}
        for block in changed:
            del self._known[block.key]
        for block, key in changed.items():
            if key in self._known:
                self.drop([self._known[key]])
            block.key = key
            self._known[key] = block

    def drop_keys(self, wanted: Callable[[Any], bool], *, apart_from: Block | None = None) -> None:
        """The same for all contents whose key is ``wanted``, a function; but not for one block."""
        blocks = [block for key, block in self._known.items() if wanted(key)]
        self.drop(block for block in blocks if block is not apart_from)

    def forget(self, *owners: Hashable) -> None:
        """The same for all contents whose keys begin with one of these: the name of a tensor, or
        who has made them."""
        self.drop_keys(lambda key: isinstance(key, tuple) and key[0] in owners)

    def forget_idle(self, but: Container[Hashable]) -> None:
        """Contents that nobody uses go, but for those with these keys."""
        self.drop([block for block in self._blocks if not block.users and block.key not in but])

    def note_change(self) -> None:
        """The commands of the job under way follow from more than where its blocks are."""
        self.changes += 1

    def rewind(self) -> None:
        """The next turn begins at the first word."""
        self._cursor = 0

    def _remove(self, block: Block) -> None:
        self.changes += 1
        self._blocks.remove(block)
        if block.key is not None:
            del self._known[block.key]

    def _gaps(self, words: int) -> list[tuple[int, int]]:
        """Free places [begin, end) of so many words or more."""
        gaps, end = [], 0
        for block in self._blocks:
            begin = block.address - self.base
            if begin - end >= words:
                gaps.append((end, begin))
            end = begin + block.words
        if self.words - end >= words:
            gaps.append((end, self.words))
        return gaps

    def _find_edge(self, words: int, _apart: Sequence[Sequence[Block]]) -> int | None:
        """The same at an edge of the smallest place, that of the memory before others."""
        found = [
            (end - begin, edge not in (0, self.words), start)
            for begin, end in self._gaps(words)
            for edge, start in ((begin, begin), (end, end - words))
        ]
        return min(found)[2] if found else None

    def _find(self, words: int, apart: Sequence[Sequence[Block]]) -> int | None:
        """First word of a free place: the next one in turn of those that share the fewest banks."""
        gaps = self._gaps(words)
        places: list[int] = []
        banks = range(-self._reserved, self.words, self.bank_depth)
        for begin, end in gaps:
            starts = {begin, self._cursor, *banks}
            places += [start for start in starts if begin <= start <= end - words]
        if not places:
            return None
        busy = [self._banks_of(blocks) for blocks in apart]

        def cost(start: int) -> tuple[int, ...]:
            own = self._banks(start, words)
            shared = [(own & group).bit_count() for group in busy]
            return *shared, (start - self._cursor) % self.words

        return min(places, key=cost)

    def _banks_of(self, blocks: Iterable[Block]) -> int:
        """The same of all these."""
        found = 0
        for block in blocks:
            found |= self._banks(block.address - self.base, block.words)
        return found

    def _banks(self, begin: int, words: int) -> int:
        """A bit for each bank that has some of these words."""
        begin += self._reserved
        first, last = begin // self.bank_depth, (begin + max(words, 1) - 1) // self.bank_depth
        return (2 << last) - (1 << first)
