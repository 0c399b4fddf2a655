"""About when recorded commands start, thread by thread."""

from collections.abc import Iterable

from compiler.codegen.cost import Command, Fields, duration
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .entries import Entry, Queue, Thread

__all__ = ["MAIN", "MOST_CYCLES", "Clock"]

#: The thread that others work beside.
MAIN: Thread = (0, False)
#: How long a loop of another thread may be: about as long as what is in the main thread's queues.
MOST_CYCLES = 20_000


class Clock:
    """Estimates when commands start while they are recorded: when what they wait for has finished
    and their queue is free. Threads are taken not to disturb each other.

    Parameters
    ----------
    config : AdaGPConfig
    """

    def __init__(self, config: AdaGPConfig) -> None:
        self.config = config
        self._free: dict[Queue, int] = {}
        self._ends: dict[Queue, list[int]] = {}
        self._now: dict[Thread, int] = {}
        #: Cycles of commands, once for all that take as long: a program has millions.
        self._alike: dict[tuple[int, int], tuple[int, int]] = {}
        #: Those of LOADs and STOREs, by what they depend on.
        self._transfers: dict[tuple[int, ...], tuple[int, int]] = {}
        #: Those of commands with the same fields, which many have in common, by their identity.
        self._known: dict[tuple[int, int], tuple[Fields, tuple[int, int]]] = {}

    def note(self, entry: Entry) -> None:
        """``entry`` is the last command so far."""
        queue = entry.queue
        core, _, behind = queue
        thread = core, behind
        start = self._free.get(queue, 0)
        for source, number in entry.after.items():
            end = self._ends[source][number]
            if end > start:
                start = end
        busy, latency = entry.cycles = self._duration(entry.command)
        self._free[queue] = start + busy
        if entry.feeder is not None:
            # Weight tiles are brought while they are used.
            feeder = entry.feeder.queue
            self._free[feeder] = max(self._free[feeder], start + busy)
        self._ends.setdefault(queue, []).append(start + busy + latency)
        entry.start = start
        if start > self._now.get(thread, -1):
            self._now[thread] = start

    def _duration(self, command: Command) -> tuple[int, int]:
        fields = command.fields
        if command.opcode in (Opcode.LOAD, Opcode.STORE):
            place = fields["dram_address"] % self.config.beat_bytes
            size = fields["run_bytes"], fields["run_count"], fields["run_stride"]
            transfer = command.core, place, *size, fields["row_bytes"]
            if transfer not in self._transfers:
                self._transfers[transfer] = duration(command, self.config)
            return self._transfers[transfer]
        key = id(fields), command.core
        if key not in self._known:
            cycles = duration(command, self.config)
            self._known[key] = fields, self._alike.setdefault(cycles, cycles)
        return self._known[key][1]

    def skip(self, thread: Thread, cycles: int) -> None:
        """So much later nothing has changed for ``thread``."""
        for queue in self._free:
            if (queue[0], queue[2]) == thread:
                self._free[queue] += cycles
        self._now[thread] += cycles

    def now(self, thread: Thread) -> int:
        """When the last command of ``thread`` so far starts."""
        return self._now.get(thread, 0)

    def is_behind(self, thread: Thread) -> bool:
        """Whether other threads have commands that start later than all of ``thread`` so far."""
        now = self.now(thread)
        return any(other > now for key, other in self._now.items() if key != thread)

    @staticmethod
    def between(first: Iterable[Entry], second: Iterable[Entry]) -> int:
        """Cycles from the last of some commands to the last of others."""
        one, other = (max(entry.start for entry in part) for part in (first, second))
        return max(0, other - one)
