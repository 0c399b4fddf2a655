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
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from compiler.errors import CompileError
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .cost import Command, Fields
from .entries import Entry, Queue, Region, Segments, latest
from .interleaving import interleaved, thread_of
from .loops import AFTER, BEFORE, Loop, Unsettled, roll, strides
from .tokens import Token, add_token, fits, merge_tokens

__all__ = ["MOST_WRITTEN_OUT", "Recorder", "Region", "write_program"]

#: Commands of a program that is written out without looking for loops: 4 MiB.
MOST_WRITTEN_OUT = 1 << 16

_T = TypeVar("_T")

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


def _semaphore_name(source: Queue, target: Queue) -> str:
    """Name of the semaphore between two queues, (core, opcode) each."""
    names = [opcode.name.lower() for _, opcode, _ in (source, target)]
    there = "" if source[0] == target[0] else f"c{target[0]}."
    return f"c{source[0]}.{names[0]}->{there}{names[1]}"


class _TooLong(Exception):
    """More commands than a recorder may collect."""


def write_program(
    config: AdaGPConfig, write: Callable[["Recorder"], _T], *, loops: bool | None
) -> _T:
    """What ``write(recorder)`` returns, which emits and links a program. It may be called again.

    Parameters
    ----------
    loops : True, for programs of one thread: commands that come again are written once; loops whose
        periods turn out to be different are written out. False: all commands are. None: all are as
        long as these are no more than :data:`MOST_WRITTEN_OUT`.
    """
    if loops is None:
        with contextlib.suppress(_TooLong):
            return write(Recorder(config, most=MOST_WRITTEN_OUT))
    elif not loops:
        return write(Recorder(config))
    written_out: frozenset[Hashable] = frozenset()
    while True:
        try:
            return write(Recorder(config, loops=True, written_out=written_out))
        except Unsettled as error:
            written_out |= error.loops


class Recorder:
    """Collects commands.

    Parameters
    ----------
    config : AdaGPConfig
    loops : periods may be left out (:meth:`leave_out`); for programs of one thread
    written_out : names of loops in which nothing is left out
    most : commands, of which one more ends :func:`write_program`'s attempt; None for any number

    Members
    -------
    semaphores : number -> name of those that :meth:`link` has used: the queue that signals and the
        one that waits, as in ``c0.load->matmul`` or, between cores, ``c0.store->c1.load``
    """

    def __init__(
        self, config: AdaGPConfig, *, loops: bool = False, written_out: Collection[Hashable] = (),
        most: int | None = None,
    ) -> None:  # fmt: skip
        self.config, self._most = config, most
        self._may_loop, self._written_out = loops, written_out
        self._loops: list[Loop] = []
        self._runs = 0
        self._places: list[int] = []
        self._size = 0
        self.semaphores: dict[int, str] = {}
        self._entries: list[Entry] = []
        self._queues: dict[Queue, list[Entry]] = {}
        self._memories: dict[Hashable, Segments] = {}
        self._background = False

    def __len__(self) -> int:
        return len(self._entries)

    def commands(self, first: int, last: int) -> list[Command]:
        """Commands [first, last), as they were emitted."""
        return [entry.command for entry in self._entries[first:last]]

    def times(self, first: int, last: int) -> Iterator[tuple[Command, int]]:
        """Commands [first, last) as they were emitted, and how often each is executed."""
        counts: dict[int, int] = {}
        for loop in self._loops:
            for place in loop.period(0):
                counts[place] = counts.get(place, 1) * (1 + loop.times)
        for place in range(first, last):
            yield self._entries[place].command, counts.get(place, 1)

    def place(self, number: int) -> int:
        """Where the command that was emitted as this one is among those that :meth:`link` has
        returned, or would be."""
        return self._places[number] if number < len(self._places) else self._size

    # Loops -----------------------------------------------------------------------------------

    def begin_run(self) -> int:
        """The number of a list of jobs that begins."""
        self._runs += 1
        return self._runs

    def may_loop(self, name: Hashable) -> bool:
        """Whether the loop of this name is not to be written out."""
        return self._may_loop and name not in self._written_out

    def repeats(self, length: int) -> list[int] | None:
        """:func:`~compiler.codegen.loops.strides` of the last :data:`BEFORE` periods of ``length``
        commands, if loops in them are the same, too."""
        first = len(self) - BEFORE * length
        moves = strides(self._entries, first, length)
        same = self._same_loops(first + number * length for number in range(BEFORE))
        return moves if moves and same(length) else None

    def _same_loops(self, starts: Iterable[int]) -> Callable[[int], bool]:
        """Whether so many commands from each of these on have the same loops inside."""
        places = list(starts)

        def same(length: int) -> bool:
            shapes = [
                [loop.shape(start) for loop in self._loops_in(range(start, start + length))]
                for start in places
            ]
            return all(shape == shapes[0] for shape in shapes)

        return same

    def _loops_in(self, part: range) -> list[Loop]:
        return [loop for loop in self._loops if loop.first in part and loop.end <= part.stop]

    def leave_out(self, loop: Loop) -> Loop | None:
        """Leave out the periods of ``loop`` that would come now; the last :data:`BEFORE` periods
        are those in front. None if that is not possible, because of what they touch in DRAM.

        The first of the periods waits for all that those left out have to wait for.
        """
        loop = replace(loop, inside=tuple(self._loops_in(loop.period(0))))
        if not loop.is_free(self._entries):
            return None
        found = []
        for place, index in enumerate(loop.period(0)):
            entry = self._entries[index]
            opcode = entry.queue[1]
            if opcode in (Opcode.LOAD, Opcode.STORE):
                region = loop.touched(entry, place, BEFORE, BEFORE + loop.times)
                users = self._memories[region.memory].users(region, readers=opcode is Opcode.STORE)
                # The loop's own commands are neighbours, which go on waiting for each other.
                users = {
                    queue: number
                    for queue, number in users.items()
                    if queue != entry.queue and self._queues[queue][number].position < loop.first
                }
                found.append((entry, users))
        for entry, users in found:
            latest(entry.after, users)
        self._loops.append(loop)
        return loop

    def end_loop(self, loop: Loop) -> None:
        """The periods behind those left out have been emitted: what follows waits for them if it
        has to wait for those.

        Raises
        ------
        Unsettled
            if they are not equal to those in front.
        """
        start = len(self) - loop.length
        same = self._same_loops(loop.period(number).start for number in range(BEFORE + AFTER))
        if not loop.goes_on(self._entries) or not same(loop.length):
            raise Unsettled(frozenset([loop.name]))
        for place, entry in enumerate(self._entries[start:]):
            opcode = entry.queue[1]
            if opcode in (Opcode.LOAD, Opcode.STORE):
                first = self._entries[loop.first + place]
                region = loop.touched(first, place, BEFORE, BEFORE + loop.times)
                memory = self._memories[region.memory]
                memory.note(region, entry, writes=opcode is Opcode.STORE)

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
        if len(self._entries) == self._most:
            raise _TooLong
        queue = (core, Opcode(opcode), self._background)
        members = self._queues.setdefault(queue, [])
        entry = Entry(
            Command(queue[1], core, fields=fields), queue, len(members), len(self._entries)
        )
        for region in reads:
            if region.begin < region.end:
                self._memories.setdefault(region.memory, Segments()).read(region, entry)
        for region in writes:
            if region.begin < region.end:
                self._memories.setdefault(region.memory, Segments()).write(region, entry)
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
        Unsettled
            if loops have to be written out.
        """
        if len({thread_of(entry) for entry in self._entries}) > 1:
            assert not self._loops, "loops of several threads"
            self._entries = interleaved(self._entries, self.config)
        self._join()
        tokens: dict[tuple[Queue, Queue], list[Token]] = {}
        done: dict[Queue, Entry] = {}
        for entry in self._entries:
            self._start(entry)
            for source in self._sources(entry):
                known = tokens if len(tokens) >= self.config.semaphore_count else ()
                for first, second in self._detour(source, entry, done, known):
                    add_token(tokens.setdefault((first.queue, second.queue), []), first, second)
                    latest(second.at_start, first.at_end)
                    self._end(second)
            self._end(entry)
            done[entry.queue] = entry
        taken: list[list[tuple[int, int]]] = [[] for _ in self._entries]
        for number, pair in self._numbers(tokens).items():
            self.semaphores[number] = _semaphore_name(*pair)
            merge_tokens(tokens[pair], self._queues[pair[1]], self.config.command_queue_depth)
            for source, entry in tokens[pair]:
                source.command.signal |= 1 << number
                entry.command.wait |= 1 << number
                taken[entry.position].append((number, entry.position - source.position))
        commands, self._places = roll(self._entries, self._loops, taken)
        if self._loops and not fits(commands, self.config.command_queue_depth):
            raise Unsettled(frozenset(loop.name for loop in self._loops))
        self._size = len(commands)
        return [*commands, Command(Opcode.HALT)]

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
                latest(entry.after, dict([places[source]]))
            # The queue itself sees to it that its commands are in order.
            entry.after.pop(queue, None)

    def _start(self, entry: Entry) -> None:
        if entry.number:
            entry.at_start = dict(self._queues[entry.queue][entry.number - 1].at_start)

    def _end(self, entry: Entry) -> None:
        """Note what has finished when ``entry`` has, which may have learnt of more."""
        latest(entry.at_end, entry.at_start)
        entry.at_end[entry.queue] = entry.number
        if entry.number:
            latest(entry.at_end, self._queues[entry.queue][entry.number - 1].at_end)
        if entry.feeder is not None:
            latest(entry.at_end, entry.feeder.at_end)

    def _sources(self, entry: Entry) -> Iterator[Entry]:
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
        self, source: Entry, entry: Entry, done: Mapping[Queue, Entry],
        known: Collection[tuple[Queue, Queue]],
    ) -> Iterator[Token]:  # fmt: skip
        """Pairs of commands, each waiting for the one before it, from ``source`` to ``entry``.

        The shortest way by queues with semaphores for it, and those that are ``known`` when there
        are no more, by the last command of each so far; none if there is no such way.
        """
        ways = deque([[source]])
        seen = {source.queue}
        way = [source]
        while ways and way[-1] is not entry:
            way = ways.popleft()
            for queue in (entry.queue, *done):
                stop = entry if queue == entry.queue else done[queue]
                last = way[-1].queue
                direct = (last[1], queue[1]) in _DIRECT and last[0] == queue[0]
                if (
                    (direct or (last, queue) in known)
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

    def _numbers(self, tokens: Iterable[tuple[Queue, Queue]]) -> dict[int, tuple[Queue, Queue]]:
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
