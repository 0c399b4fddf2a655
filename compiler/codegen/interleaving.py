"""The order of commands of several threads."""

from collections import deque
from collections.abc import Iterable

from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .cost import duration
from .entries import Entry, Queue

__all__ = ["interleaved", "thread_of"]


def thread_of(entry: Entry) -> tuple[int, bool]:
    """(core, background) of an entry that has not been joined."""
    return entry.queue[0], entry.queue[2]


def interleaved(entries: Iterable[Entry], config: AdaGPConfig) -> list[Entry]:
    """``entries`` of several threads in order of the time at which they can start: all are
    dispatched in turn, so one that waits long keeps those behind it from their queues.

    Commands of a thread, which is a core's or its background, stay in order, and behind those of
    others that they wait for.
    """
    waiting: dict[tuple[int, bool], deque[Entry]] = {}
    for entry in entries:
        waiting.setdefault(thread_of(entry), deque()).append(entry)
    free: dict[tuple[int, Opcode], int] = {}
    ends: dict[tuple[Queue, int], int] = {}
    order = []
    while waiting:
        times = {}
        for thread, members in waiting.items():
            first = members[0]
            sources = first.after.items()
            if all((queue, number) in ends for queue, number in sources):
                known = [ends[source] for source in sources]
                times[thread] = max([free.get(first.queue[:2], 0), *known])
        thread = min(times, key=lambda thread: times[thread])
        entry = waiting[thread].popleft()
        queue = entry.queue[:2]
        busy, latency = duration(entry.command, config)
        free[queue] = times[thread] + busy
        if entry.feeder is not None:
            # Weight tiles are brought while they are used.
            feeder = entry.feeder.queue[:2]
            free[feeder] = max(free[feeder], free[queue])
        ends[entry.queue, entry.number] = times[thread] + busy + latency
        order.append(entry)
        if not waiting[thread]:
            del waiting[thread]
    return order
