"""The order of commands of several threads."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from compiler.codegen.cost import duration
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .clock import MAIN
from .entries import Entry, Queue, Thread, thread_of
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
    waiting: dict[Thread, deque[_Unit]] = {}
    loops = list(loops)
    gaps = {
        loop.period(BEFORE).start: (
            {entries[number].queue[:2] for number in loop.period(0)}, loop.cycles
        )
        for loop in loops
    }  # fmt: skip
    for unit in _units(entries, loops):
        waiting.setdefault(thread_of(unit.entries[0]), deque()).append(unit)
    times = _Times(config, gaps)
    order: list[Entry] = []
    while waiting:
        keys = {
            thread: times.start(units[0].entries[0]) + (0 if thread == MAIN else units[0].cycles)
            for thread, units in waiting.items()
            if times.is_ready(units[0])
        }
        thread = min(keys, key=lambda thread: keys[thread])
        unit = waiting[thread].popleft()
        for entry in unit.entries:
            times.take(entry)
        order += unit.entries
        if not waiting[thread]:
            del waiting[thread]
    return order


class _Unit:
    """Commands that stay together: one, or those of a loop; ``cycles`` that are left out in it."""

    def __init__(self, entries: Sequence[Entry], cycles: int = 0) -> None:
        self.entries, self.cycles = entries, cycles

    @cached_property
    def sources(self) -> list[tuple[Queue, int]]:
        """Commands outside that it waits for."""
        if len(self.entries) == 1:
            return list(self.entries[0].after.items())
        first: dict[Queue, int] = {}
        for entry in self.entries:
            first.setdefault(entry.queue, entry.number)
        return [
            (queue, number)
            for entry in self.entries
            for queue, number in entry.after.items()
            if queue not in first or number < first[queue]
        ]


def _units(entries: Sequence[Entry], loops: Iterable[Loop]) -> Iterator[_Unit]:
    done = 0
    for loop in sorted(loops, key=lambda loop: (loop.first, -loop.end)):
        if loop.first < done:
            continue  # inside another one
        yield from (_Unit([entry]) for entry in entries[done : loop.first])
        yield _Unit(entries[loop.first : loop.end], loop.cycles)
        done = loop.end
    yield from (_Unit([entry]) for entry in entries[done:])


class _Times:
    """When commands start and end, one after the other."""

    def __init__(self, config: AdaGPConfig, gaps: Mapping[int, tuple[set[_Key], int]]) -> None:
        self.config, self._gaps = config, gaps
        self._free: dict[_Key, int] = {}
        self._ends: dict[tuple[Queue, int], int] = {}

    def is_ready(self, unit: _Unit) -> bool:
        """Whether all that it waits for has been taken."""
        return all(source in self._ends for source in unit.sources)

    def start(self, entry: Entry) -> int:
        """When it can start."""
        known = (self._ends[source] for source in entry.after.items())
        return max(self._free.get(entry.queue[:2], 0), *known, 0)

    def take(self, entry: Entry) -> None:
        """It is the next one."""
        if entry.position in self._gaps:
            queues, cycles = self._gaps[entry.position]
            for key in queues:
                self._free[key] += cycles
        queue, start = entry.queue[:2], self.start(entry)
        busy, latency = entry.cycles or duration(entry.command, self.config)
        self._free[queue] = start + busy
        if entry.feeder is not None:
            # Weight tiles are brought while they are used.
            feeder = entry.feeder.queue[:2]
            self._free[feeder] = max(self._free[feeder], start + busy)
        self._ends[entry.queue, entry.number] = start + busy + latency
