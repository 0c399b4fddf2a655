"""Commands one after another, and the semaphores that keep the order where it matters.

Whoever writes commands says what each reads and writes, and may think that they run one by one.
Queues run at the same time, though, so :meth:`Recorder.link` finds for every command those of other
queues that must have finished before it, and gives each pair of queues a semaphore: the one before
signals it, the one behind waits for it.

Commands of a core stay in the order in which they were written, unless some of them are recorded in
the background (:meth:`Recorder.background`): those make a second thread, which may fall behind.

Tokens of a pair are taken in the order in which they are given, because both queues work in order
and a command never waits for one that is older than what its queue has waited for. What follows
from other tokens takes none. There are more pairs of queues than semaphores: what happens now and
then takes a detour by commands in between.
"""

import contextlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from compiler.errors import CompileError
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .cost import Command, Fields, duration

__all__ = ["Recorder", "Region"]

#: Largest value of a semaphore.
_MAX_TOKENS = 15
#: Queues that have a semaphore of their own when a command of the second waits for the first.
_DIRECT = {
    (Opcode.LOAD, Opcode.WEIGHTS),
    (Opcode.LOAD, Opcode.MATMUL),
    (Opcode.LOAD, Opcode.VECTOR),
    (Opcode.LOAD, Opcode.LOSS),
    (Opcode.MATMUL, Opcode.POST),
    (Opcode.MATMUL, Opcode.LOAD),
    (Opcode.POST, Opcode.MATMUL),
    (Opcode.POST, Opcode.STORE),
    (Opcode.STORE, Opcode.POST),
    (Opcode.STORE, Opcode.LOAD),
    (Opcode.STORE, Opcode.VECTOR),
    (Opcode.VECTOR, Opcode.LOAD),
    (Opcode.VECTOR, Opcode.STORE),
    (Opcode.LOSS, Opcode.STORE),
}
#: What may be recorded in the background: WEIGHTS and MATMUL go in pairs, and share accumulators.
_BACKGROUND = (Opcode.LOAD, Opcode.VECTOR, Opcode.STORE)


@dataclass(frozen=True)
class Region:
    """Elements [begin, end) of a memory, which any hashable value may name."""

    memory: Hashable
    begin: int
    end: int


#: (core, opcode, background): a queue; while commands are collected, every thread has its own.
_Queue = tuple[int, Opcode, bool]


@dataclass
class _Entry:
    """A command, its queue and its place in it, and the commands it has to wait for."""

    command: Command
    queue: _Queue
    number: int
    position: int
    after: dict[_Queue, int] = field(default_factory=dict)
    #: MATMUL: the WEIGHTS whose tiles it takes, which has finished when it has; and vice versa.
    feeder: "_Entry | None" = None
    user: "_Entry | None" = None
    #: Queue -> how many of its commands have finished when this one starts, and when it ends.
    at_start: dict[_Queue, int] = field(default_factory=dict)
    at_end: dict[_Queue, int] = field(default_factory=dict)


#: The second command waits for the first.
_Token = tuple[_Entry, _Entry]


class _Segments:
    """Who last wrote each part of a memory, and who has read it since: queue -> number."""

    def __init__(self) -> None:
        self.edges = [0]
        self.parts: list[tuple[dict[_Queue, int], dict[_Queue, int]]] = [({}, {})]

    def _split(self, place: int) -> None:
        index = bisect_right(self.edges, place) - 1
        if self.edges[index] != place:
            writers, readers = self.parts[index]
            self.edges.insert(index + 1, place)
            self.parts.insert(index + 1, (dict(writers), dict(readers)))

    def _range(self, region: Region) -> tuple[int, int]:
        self._split(region.begin)
        self._split(region.end)
        return bisect_left(self.edges, region.begin), bisect_left(self.edges, region.end)

    def read(self, region: Region, entry: _Entry) -> None:
        first, last = self._range(region)
        for writers, readers in self.parts[first:last]:
            _latest(entry.after, writers)
            readers[entry.queue] = entry.number

    def write(self, region: Region, entry: _Entry) -> None:
        first, last = self._range(region)
        for part in self.parts[first:last]:
            for users in part:
                _latest(entry.after, users)
        self.edges[first:last] = [region.begin]
        self.parts[first:last] = [({entry.queue: entry.number}, {})]


def _thread(entry: _Entry) -> tuple[int, bool]:
    """(core, background) of an entry that has not been joined."""
    return entry.queue[0], entry.queue[2]


def _semaphore_name(source: _Queue, target: _Queue) -> str:
    """Name of the semaphore between two queues, (core, opcode) each."""
    names = [opcode.name.lower() for _, opcode, _ in (source, target)]
    there = "" if source[0] == target[0] else f"c{target[0]}."
    return f"c{source[0]}.{names[0]}->{there}{names[1]}"


def _latest(into: dict[_Queue, int], numbers: Mapping[_Queue, int]) -> None:
    for queue, number in numbers.items():
        if into.get(queue, -1) < number:
            into[queue] = number


def _add_token(tokens: list[_Token], first: _Entry, second: _Entry) -> None:
    """``second``, the last command of its queue so far, waits for ``first``."""
    if tokens and tokens[-1][1] is second:
        # It can take one token only, and the later one says more.
        first = max(first, tokens.pop()[0], key=lambda entry: entry.number)
    tokens.append((first, second))


class Recorder:
    """Collects commands.

    Parameters
    ----------
    config : AdaGPConfig

    Members
    -------
    semaphores : number -> name of those that :meth:`link` has used: the queue that signals and the
        one that waits, as in ``c0.load->matmul`` or, between cores, ``c0.store->c1.load``
    """

    def __init__(self, config: AdaGPConfig) -> None:
        self.config = config
        self.semaphores: dict[int, str] = {}
        self._entries: list[_Entry] = []
        self._queues: dict[_Queue, list[_Entry]] = {}
        self._memories: dict[Hashable, _Segments] = {}
        self._background = False

    def __len__(self) -> int:
        return len(self._entries)

    def commands(self, first: int, last: int) -> list[Command]:
        """Commands [first, last), as they were emitted."""
        return [entry.command for entry in self._entries[first:last]]

    @contextlib.contextmanager
    def background(self) -> Iterator[None]:
        """Commands that are emitted in this context may fall behind those that follow, as far as
        what they touch allows; LOAD, VECTOR and STORE alone."""
        self._background = True
        try:
            yield
        finally:
            self._background = False

    def emit(
        self, opcode: Opcode, fields: Fields, *, reads: Iterable[Region] = (),
        writes: Iterable[Region] = (), core: int = 0,
    ) -> None:  # fmt: skip
        """Append a command that touches these :class:`Region` s."""
        assert not self._background or opcode in _BACKGROUND, f"{opcode!r} in the background"
        queue = (core, Opcode(opcode), self._background)
        members = self._queues.setdefault(queue, [])
        entry = _Entry(
            Command(queue[1], core, fields=fields), queue, len(members), len(self._entries)
        )
        for region in reads:
            if region.begin < region.end:
                self._memories.setdefault(region.memory, _Segments()).read(region, entry)
        for region in writes:
            if region.begin < region.end:
                self._memories.setdefault(region.memory, _Segments()).write(region, entry)
        if opcode == Opcode.MATMUL and (core, Opcode.WEIGHTS, False) in self._queues:
            entry.feeder = self._queues[core, Opcode.WEIGHTS, False][-1]
            entry.feeder.user = entry
        entry.after.pop(queue, None)
        members.append(entry)
        self._entries.append(entry)

    def link(self) -> list[Command]:
        """The commands with their semaphores, and HALT.

        Raises
        ------
        CompileError
            if there are more pairs of queues than semaphores, or tokens than one can hold that
            cannot become fewer.
        """
        if len({_thread(entry) for entry in self._entries}) > 1:
            self._interleave()
        self._join()
        tokens: dict[tuple[_Queue, _Queue], list[_Token]] = {}
        done: dict[_Queue, _Entry] = {}
        for entry in self._entries:
            self._start(entry)
            for source in self._sources(entry):
                for first, second in self._detour(source, entry, done):
                    _add_token(tokens.setdefault((first.queue, second.queue), []), first, second)
                    _latest(second.at_start, first.at_end)
                    self._end(second)
            self._end(entry)
            done[entry.queue] = entry
        for number, pair in self._numbers(tokens).items():
            self.semaphores[number] = _semaphore_name(*pair)
            self._merge_tokens(tokens[pair])
            for source, entry in tokens[pair]:
                source.command.signal |= 1 << number
                entry.command.wait |= 1 << number
        return [*(entry.command for entry in self._entries), Command(Opcode.HALT)]

    def _interleave(self) -> None:
        """Order the commands of several threads by the time at which they can start: all are
        dispatched in turn, so one that waits long keeps those behind it from their queues.

        Commands of a thread, which is a core's or its background, stay in order, and behind those
        of others that they wait for.
        """
        waiting: dict[tuple[int, bool], deque[_Entry]] = {}
        for entry in self._entries:
            waiting.setdefault(_thread(entry), deque()).append(entry)
        free: dict[tuple[int, Opcode], int] = {}
        ends: dict[tuple[_Queue, int], int] = {}
        order = []
        while waiting:
            times = {}
            for thread, entries in waiting.items():
                first = entries[0]
                sources = first.after.items()
                if all((queue, number) in ends for queue, number in sources):
                    known = [ends[source] for source in sources]
                    times[thread] = max([free.get(first.queue[:2], 0), *known])
            thread = min(times, key=lambda thread: times[thread])
            entry = waiting[thread].popleft()
            queue = entry.queue[:2]
            busy, latency = duration(entry.command, self.config)
            free[queue] = times[thread] + busy
            if entry.feeder is not None:
                # Weight tiles are brought while they are used.
                feeder = entry.feeder.queue[:2]
                free[feeder] = max(free[feeder], free[queue])
            ends[entry.queue, entry.number] = times[thread] + busy + latency
            order.append(entry)
            if not waiting[thread]:
                del waiting[thread]
        self._entries = order

    def _join(self) -> None:
        """From queues of threads to those that there are."""
        places, self._queues = {}, {}
        for position, entry in enumerate(self._entries):
            queue = (*entry.queue[:2], False)
            members = self._queues.setdefault(queue, [])
            places[entry.queue, entry.number] = queue, len(members)
            entry.queue, entry.number, entry.position = queue, len(members), position
            members.append(entry)
            before, entry.after = entry.after, {}
            for source in before.items():
                _latest(entry.after, dict([places[source]]))
            # The queue itself sees to it that its commands are in order.
            entry.after.pop(queue, None)

    def _start(self, entry: _Entry) -> None:
        if entry.number:
            entry.at_start = dict(self._queues[entry.queue][entry.number - 1].at_start)

    def _end(self, entry: _Entry) -> None:
        """Note what has finished when ``entry`` has, which may have learnt of more."""
        _latest(entry.at_end, entry.at_start)
        entry.at_end[entry.queue] = entry.number
        if entry.number:
            _latest(entry.at_end, self._queues[entry.queue][entry.number - 1].at_end)
        if entry.feeder is not None:
            _latest(entry.at_end, entry.feeder.at_end)

    def _sources(self, entry: _Entry) -> Iterator[_Entry]:
        """Commands that ``entry`` has to wait for, without those that follow from others."""
        sources = [self._queues[queue][number] for queue, number in entry.after.items()]
        # Weights are out of the buffer when what they were for is done: few care for less.
        for number, source in enumerate(sources):
            if source.user is not None and source.user.position < entry.position:
                sources[number] = source.user
        sources.sort(key=lambda source: source.position, reverse=True)
        for source in sources:
            if entry.at_start.get(source.queue, -1) < source.number:
                yield source

    def _detour(
        self, source: _Entry, entry: _Entry, done: Mapping[_Queue, _Entry]
    ) -> Iterator[_Token]:
        """Pairs of commands, each waiting for the one before it, from ``source`` to ``entry``.

        The shortest way by queues with semaphores for it, and by the last command of each so far;
        none if there is no such way.
        """
        ways = deque([[source]])
        seen = {source.queue}
        way = [source]
        while ways and way[-1] is not entry:
            way = ways.popleft()
            for queue in (entry.queue, *done):
                stop = entry if queue == entry.queue else done[queue]
                if (
                    (way[-1].queue[1], queue[1]) in _DIRECT
                    and way[-1].queue[0] == queue[0]
                    and queue not in seen
                    and stop.position > way[-1].position
                ):
                    seen.add(queue)
                    ways.append([*way, stop])
        if way[-1] is not entry:
            way = [source, entry]
        for first, second in pairwise(way):
            if second.at_start.get(first.queue, -1) < first.number:
                yield first, second

    def _numbers(self, tokens: Iterable[tuple[_Queue, _Queue]]) -> dict[int, tuple[_Queue, _Queue]]:
        """Semaphore -> pair of queues; a pair's semaphore is one of the core that waits while that
        has any, then another core's."""
        own, count = self.config.semaphores, self.config.semaphore_count
        result, left = {}, []
        for source, target in tokens:
            first = target[0] * own
            free = [number for number in range(first, first + own) if number not in result]
            if free:
                result[free[0]] = (source, target)
            else:
                left.append((source, target))
        free = [number for number in range(count) if number not in result]
        if len(left) > len(free):
            pairs = [f"{a[1].name} to {b[1].name}" for a, b in tokens]
            raise CompileError(
                f"the program needs {len(pairs)} semaphores, not {count}: {', '.join(pairs)}"
            )
        return result | dict(zip(free, left, strict=False))

    def _merge_tokens(self, tokens: list[_Token]) -> None:
        """Make tokens fewer where a semaphore may come to hold more than it can: of two commands
        that wait, the first waits for what the second has to wait for.

        While a command waits at the head of its queue, commands can be dispatched until the queue
        is full and one more of its kind comes.
        """
        queue = self._queues[tokens[0][1].queue]
        first = 0
        while first < len(tokens):
            waiting = tokens[first][1]
            stop = waiting.number + self.config.command_queue_depth + 1
            limit = queue[stop].position if stop < len(queue) else len(self._entries)
            end = first
            while end < len(tokens) and end - first <= _MAX_TOKENS:
                if tokens[end][0].position >= limit:
                    break
                end += 1
            if end - first <= _MAX_TOKENS:
                first += 1
                continue
            # A command may wait for what ends before it, if all run one by one.
            for place in range(end - 2, first - 1, -1):
                source, target = tokens[place + 1][0], tokens[place][1]
                if (source.user or source).position < target.position:
                    tokens[place : place + 2] = [(source, target)]
                    break
            else:
                source, target = tokens[0][0].queue, tokens[0][1].queue
                raise CompileError(
                    f"more than {_MAX_TOKENS} tokens may wait between {source[1].name} and "
                    f"{target[1].name} at command {waiting.position}, more than a semaphore holds"
                )
