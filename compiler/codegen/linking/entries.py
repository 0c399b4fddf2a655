"""Commands as they are recorded, and who has touched which part of a memory."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from compiler.codegen.cost import Command, Fields
from hw.isa.encoding import Opcode

__all__ = [
    "DRAM", "Entry", "Finished", "PagedSegments", "Queue", "Region", "Segments", "Thread",
    "dram_region", "joined", "latest", "thread_of", "threads_of",
]  # fmt: skip


#: The memory off chip, and the bits of an address in a page of it.
DRAM = "dram"
_PAGE_BITS = 22


class Region(NamedTuple):
    """Elements [begin, end) of a memory, which any hashable value may name."""

    memory: Hashable
    begin: int
    end: int


def dram_region(fields: Fields) -> Region:
    """What a LOAD or STORE touches in DRAM, from its first byte to its last one."""
    begin = fields["dram_address"]
    size = (fields["run_count"] - 1) * fields["run_stride"] + fields["run_bytes"]
    return Region(DRAM, begin, begin + size)


#: (core, opcode, background): a queue; while commands are collected, every thread has its own.
Queue = tuple[int, Opcode, bool]
#: (core, background): commands that stay in order.
Thread = tuple[int, bool]


#: Of every queue the last of its commands that has finished, -1 for none; the queues of a program
#: have an order for that.
Finished = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Entry:
    """A command, its queue and its place in it, and the commands it has to wait for."""

    command: Command
    queue: Queue
    number: int
    position: int
    after: dict[Queue, int] = field(default_factory=dict)
    #: MATMUL: the WEIGHTS whose tiles it takes, which has finished when it has; and vice versa.
    feeder: "Entry | None" = None
    user: "Entry | None" = None
    #: What has finished when this one starts, and when it ends, without this one; empty as long as
    #: that is not known. Neighbours have it in common.
    at_start: Finished = ()
    at_end: Finished = ()
    #: The cycle in which it starts, about; how long its queue is busy, and until it has finished.
    start: int = 0
    cycles: tuple[int, int] | None = None


def thread_of(entry: Entry) -> Thread:
    """The thread of an entry that has not been joined."""
    return entry.queue[0], entry.queue[2]


def threads_of(entries: Iterable[Entry]) -> list[Thread]:
    """The same of every entry; most have the same queues."""
    known: dict[Queue, Thread] = {}
    return [known.get(e.queue) or known.setdefault(e.queue, thread_of(e)) for e in entries]


def latest(into: dict[Queue, int], numbers: Mapping[Queue, int]) -> None:
    """Raise the numbers of ``into`` to those of ``numbers``."""
    if not into:
        into.update(numbers)
        return
    for queue, number in numbers.items():
        if into.get(queue, -1) < number:
            into[queue] = number


def joined(one: Finished, other: Finished) -> Finished:
    """What has finished after both: ``one`` itself where it has ``other`` already."""
    if one is other:
        return one
    # Without max(): it is asked a million times.
    both = tuple([a if a > b else b for a, b in zip(one, other, strict=True)])
    return one if both == one else both


class _Part:
    """Part of a memory: its last writer, and queue -> number of those that have read it since."""

    __slots__ = ("number", "queue", "readers")

    def __init__(self, queue: Queue | None, number: int, readers: dict[Queue, int]) -> None:
        self.queue, self.number, self.readers = queue, number, readers


class Segments:
    """Who last wrote each part of a memory, and who has read it since: queue -> number."""

    def __init__(self) -> None:
        self.edges = [0]
        self.parts = [_Part(None, -1, {})]

    def _split(self, index: int, place: int) -> None:
        """A part that has this index begins at ``place``."""
        part = self.parts[index - 1]
        self.edges.insert(index, place)
        self.parts.insert(index, _Part(part.queue, part.number, dict(part.readers)))

    def _range(self, region: Region) -> tuple[int, int]:
        """Indices [first, last) of the parts of a region, which begin and end with it."""
        _, begin, end = region
        edges = self.edges
        first = bisect_left(edges, begin)
        if first == len(edges) or edges[first] != begin:
            self._split(first, begin)
        last = first + 1
        if last < len(edges) and edges[last] < end:
            last = bisect_left(edges, end, last)
        if last == len(edges) or edges[last] != end:
            self._split(last, end)
        return first, last

    def read(self, region: Region, entry: Entry) -> None:
        """``entry`` reads ``region``, and has to wait for who wrote it."""
        first, last = self._range(region)
        after, queue, number = entry.after, entry.queue, entry.number
        for part in self.parts[first:last]:
            writer = part.queue
            if writer is not None and after.get(writer, -1) < part.number:
                after[writer] = part.number
            part.readers[queue] = number

    def write(self, region: Region, entry: Entry) -> None:
        """``entry`` writes ``region``, and has to wait for who wrote and read it."""
        first, last = self._range(region)
        self._add_users(entry.after, first, last, readers=True)
        self._written(first, last, region, entry)

    def note(self, region: Region, entry: Entry, *, writes: bool) -> None:
        """The same as :meth:`write` or :meth:`read`, but ``entry`` has nothing to wait for."""
        first, last = self._range(region)
        if writes:
            self._written(first, last, region, entry)
        else:
            for part in self.parts[first:last]:
                part.readers[entry.queue] = entry.number

    def users(self, region: Region, *, readers: bool) -> dict[Queue, int]:
        """Who last wrote a part of ``region``, with ``readers`` also who has read it since."""
        found: dict[Queue, int] = {}
        self._add_users(found, *self._range(region), readers=readers)
        return found

    def _written(self, first: int, last: int, region: Region, entry: Entry) -> None:
        self.edges[first:last] = [region.begin]
        self.parts[first:last] = [_Part(entry.queue, entry.number, {})]

    def _add_users(self, into: dict[Queue, int], first: int, last: int, *, readers: bool) -> None:
        for part in self.parts[first:last]:
            writer = part.queue
            if writer is not None and into.get(writer, -1) < part.number:
                into[writer] = part.number
            if readers and part.readers:
                latest(into, part.readers)


class PagedSegments:
    """The same of a large memory, page by page: with a list for all of it, each new part would move
    a hundred thousand others."""

    def __init__(self) -> None:
        self._pages: defaultdict[int, Segments] = defaultdict(Segments)

    def _parts(self, region: Region) -> Iterator[tuple[Segments, Region]]:
        """The pages that a region is in, each with its part of the region."""
        memory, begin, end = region
        first, last = begin >> _PAGE_BITS, (end - 1) >> _PAGE_BITS
        if first == last:
            yield self._pages[first], region
            return
        for page in range(first, last + 1):
            edge = page << _PAGE_BITS
            part = Region(memory, max(begin, edge), min(end, edge + (1 << _PAGE_BITS)))
            yield self._pages[page], part

    def read(self, region: Region, entry: Entry) -> None:
        """As :meth:`Segments.read`."""
        for page, part in self._parts(region):
            page.read(part, entry)

    def write(self, region: Region, entry: Entry) -> None:
        """As :meth:`Segments.write`."""
        for page, part in self._parts(region):
            page.write(part, entry)

    def note(self, region: Region, entry: Entry, *, writes: bool) -> None:
        """As :meth:`Segments.note`."""
        for page, part in self._parts(region):
            page.note(part, entry, writes=writes)

    def users(self, region: Region, *, readers: bool) -> dict[Queue, int]:
        """As :meth:`Segments.users`."""
        found: dict[Queue, int] = {}
        for page, part in self._parts(region):
            latest(found, page.users(part, readers=readers))
        return found
