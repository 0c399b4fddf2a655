"""The order of commands of several threads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from compiler.codegen.cost import duration
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .clock import MAIN
from .entries import Entry, Queue, Thread, threads_of
from .loops import BEFORE, Loop

__all__ = ["interleaved"]

#: (core, opcode).
_Key = tuple[int, Opcode]


def interleaved(
    entries: Sequence[Entry], config: AdaGPConfig, loops: Iterable[Loop] = ()
) -> list[Entry]:
    """``entries`` of several threads in order of the time at which they can start: all are
    dispatched in turn, so one that waits long keeps those behind it from their queues.

    Commands of a thread, which is a core's or its background, stay in order, and behind those of
    others that they wait for. Nothing comes between those of a loop. What the main thread has to do
    until other threads' loops are dispatched comes in front of these.
    """
    loops = list(loops)
    gaps = {
        loop.period(BEFORE).start: (
            {entries[number].queue[:2] for number in loop.period(0)}, loop.cycles
        )
        for loop in loops
    }  # fmt: skip
    owners = threads_of(entries)
    left = {thread: _units(entries, owners, loops, thread) for thread in dict.fromkeys(owners)}
    first = {thread: next(units) for thread, units in left.items()}
    times = _Times(config, gaps)
    order: list[Entry] = []
    #: When those can start that are ready.
    keys: dict[Thread, int] = {}
    #: Threads of a core have queues in common.
    neighbours = {one: [two for two in left if two[0] == one[0]] for one in left}
    while first:
        for thread, unit in first.items():
            if thread not in keys and (start := times.ready(unit)) is not None:
                keys[thread] = start + (0 if thread == MAIN else unit.cycles)
        thread = min(keys, key=keys.__getitem__)
        entries = first[thread].entries
        start = keys[thread] if len(entries) == 1 else None
        for entry in entries:
            times.take(entry, start)
        order += entries
        for other in neighbours[thread]:
            keys.pop(other, None)
        if (unit := next(left[thread], None)) is not None:
            first[thread] = unit
        else:
            del first[thread]
    return order


class _Unit:
    """Commands that stay together: one, or those of a loop; ``cycles`` that are left out in it."""

    def __init__(self, entries: Sequence[Entry], cycles: int = 0) -> None:
        self.entries, self.cycles = entries, cycles

    @cached_property
    def sources(self) -> list[tuple[Queue, int]]:
        """Commands outside that it waits for."""
        first: dict[Queue, int] = {}
        for entry in self.entries:
            first.setdefault(entry.queue, entry.number)
        return [
            (queue, number)
            for entry in self.entries
            for queue, number in entry.after.items()
            if queue not in first or number < first[queue]
        ]


def _units(
    entries: Sequence[Entry], owners: Sequence[Thread], loops: Iterable[Loop], thread: Thread
) -> Iterator[_Unit]:
    """Those of a thread; ``owners`` are the threads of the entries."""

    def single(first: int, last: int) -> Iterator[_Unit]:
        for place in range(first, last):
            if owners[place] == thread:
                yield _Unit([entries[place]])

    done = 0
    for loop in sorted(loops, key=lambda loop: (loop.first, -loop.end)):
        if loop.first < done or owners[loop.first] != thread:
            continue  # inside another one, or another thread's
        yield from single(done, loop.first)
        yield _Unit(entries[loop.first : loop.end], loop.cycles)
        done = loop.end
    yield from single(done, len(entries))


class _Times:
    """When commands start and end, one after the other."""

    def __init__(self, config: AdaGPConfig, gaps: Mapping[int, tuple[set[_Key], int]]) -> None:
        self.config, self._gaps = config, gaps
        self._free: dict[_Key, int] = {}
        #: Of the commands of a queue so far, in order.
        self._ends: dict[Queue, list[int]] = {}

    def ready(self, unit: _Unit) -> int | None:
        """When its first command can start; None if not all that it waits for has been taken."""
        if len(unit.entries) > 1 and any(
            number >= len(self._ends.get(queue, ())) for queue, number in unit.sources
        ):
            return None
        return self._start(unit.entries[0])

    def _start(self, entry: Entry) -> int | None:
        """When it can start; None if not all that it waits for has been taken."""
        start = self._free.get(entry.queue[:2], 0)
        for queue, number in entry.after.items():
            ends = self._ends.get(queue, ())
            if number >= len(ends):
                return None
            if ends[number] > start:
                start = ends[number]
        return start

    def take(self, entry: Entry, start: int | None = None) -> None:
        """It is the next one; ``start``: when it can start, if that is known."""
        if entry.position in self._gaps:
            queues, cycles = self._gaps[entry.position]
            for key in queues:
                self._free[key] += cycles
        queue = entry.queue[:2]
        start = self._start(entry) if start is None else start
        assert start is not None, "a command before one that it waits for"
        busy, latency = entry.cycles or duration(entry.command, self.config)
        self._free[queue] = start + busy
        if entry.feeder is not None:
            # Weight tiles are brought while they are used.
            feeder = entry.feeder.queue[:2]
            self._free[feeder] = max(self._free[feeder], start + busy)
        self._ends.setdefault(entry.queue, []).append(start + busy + latency)
