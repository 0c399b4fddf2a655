"""The order of commands of several threads."""

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
    loops = list(loops)
    gaps = {
        loop.period(BEFORE).start: (
            {entries[number].queue[:2] for number in loop.period(0)}, loop.cycles
        )
        for loop in loops
    }  # fmt: skip
    threads = dict.fromkeys(map(thread_of, entries))
    left = {thread: _units(entries, loops, thread) for thread in threads}
    first = {thread: next(units) for thread, units in left.items()}
    times = _Times(config, gaps)
    order: list[Entry] = []
    while first:
        keys = {
            thread: times.start(unit.entries[0]) + (0 if thread == MAIN else unit.cycles)
            for thread, unit in first.items()
            if times.is_ready(unit)
        }
        thread = min(keys, key=lambda thread: keys[thread])
        for entry in first[thread].entries:
            times.take(entry)
        order += first[thread].entries
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


def _units(entries: Sequence[Entry], loops: Iterable[Loop], thread: Thread) -> Iterator[_Unit]:
    """Those of a thread."""

    def single(first: int, last: int) -> Iterator[_Unit]:
        for place in range(first, last):
            if thread_of(entries[place]) == thread:
                yield _Unit([entries[place]])

    done = 0
    for loop in sorted(loops, key=lambda loop: (loop.first, -loop.end)):
        if loop.first < done or thread_of(entries[loop.first]) != thread:
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

    def is_ready(self, unit: _Unit) -> bool:
        """Whether all that it waits for has been taken."""
        return all(number < len(self._ends.get(queue, ())) for queue, number in unit.sources)

    def start(self, entry: Entry) -> int:
        """When it can start."""
        known = (self._ends[queue][number] for queue, number in entry.after.items())
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
        self._ends.setdefault(entry.queue, []).append(start + busy + latency)
