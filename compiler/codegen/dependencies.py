"""Commands one after another, and the semaphores that keep the order where it matters.

Whoever writes commands says what each reads and writes, and may think that they run one by one.
Queues run at the same time, though, so :meth:`Recorder.link` finds for every command those of other
queues that must have finished before it, and gives each pair of queues a semaphore: the one before
signals it, the one behind waits for it.

Commands of a core stay in the order in which they were written, unless some of them are recorded in
the background (:meth:`Recorder.background`): those make a second thread, which may fall behind.
"""

import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode
from hw.isa.loops import LOOP_LEVELS

from .cost import Command, Fields
from .linking.clock import MAIN, MOST_CYCLES, Clock
from .linking.entries import (
    DRAM,
    Entry,
    PagedSegments,
    Queue,
    Region,
    Segments,
    latest,
    thread_of,
)
from .linking.linker import Linker
from .linking.loops import AFTER, BEFORE, Loop, Unsettled, strides
from .replay import Emitted, Recording, Recordings

__all__ = ["Recorder", "Region", "Scattered", "Together", "TooLong"]

#: What may be recorded in the background: WEIGHTS and MATMUL go in pairs, and share accumulators.
_BACKGROUND = (Opcode.LOAD, Opcode.VECTOR, Opcode.STORE)


class TooLong(Exception):
    """More commands than a recorder may collect."""


class Together(Exception):
    """Steps that have no room beside each other; ``group`` is their number."""

    def __init__(self, group: int) -> None:
        super().__init__(f"no room in group {group}")
        self.group = group


class Scattered(Exception):
    """What a list of jobs needs has no room where its blocks lie now; ``run`` is its number."""

    def __init__(self, run: int) -> None:
        super().__init__(f"no room in run {run}")
        self.run = run


class Recorder:
    """Collects commands.

    Parameters
    ----------
    config : AdaGPConfig
    loops : periods may be left out (:meth:`leave_out`)
    written_out : names of loops in which nothing is left out
    most : commands, of which one more raises :class:`TooLong`; None for any number
    gathered : numbers of lists of jobs (:meth:`begin_run`) that begin with an empty memory; None
        where nothing can be written again
    apart : numbers of groups of steps that are not to be beside each other; None likewise
    early : as of :class:`~compiler.codegen.linking.linker.Linker`
    recordings : what steps have recorded already, each of which begins with empty memories then
        (:meth:`~compiler.codegen.core_builder.CoreProgram.write_step`)
    hides : how many times as much as usual a command has to hide of what it runs beside

    Members
    -------
    runs : lists of jobs that have begun
    together : groups of steps that have been written beside each other
    hides : as given
    written_out, gathered : as given
    semaphores : number -> name of those that :meth:`link` has used: the queue that signals and the
        one that waits, as in ``c0.load->matmul`` or, between cores, ``c0.store->c1.load``
    """

    def __init__(
        self, config: AdaGPConfig, *, loops: bool = False, written_out: Collection[Hashable] = (),
        most: int | None = None, gathered: Collection[int] | None = None,
        apart: Collection[int] | None = None, early: bool = False, levels: int = LOOP_LEVELS,
        recordings: Recordings | None = None, hides: float = 1.0,
    ) -> None:  # fmt: skip
        self.config, self._most, self._apart = config, most, apart
        self.hides, self.together = hides, 0
        self._early, self.levels = early, levels
        self.loops, self.written_out = loops, written_out
        self.gathered, self._may_gather = gathered or (), gathered is not None
        self.recordings = recordings
        self._recording: Recording | None = None  # of the step under way
        self._loops: list[Loop] = []
        self.runs = 0
        self._cuts: list[int] = []
        self._places: list[int] = []
        self.semaphores: dict[int, str] = {}
        self._entries: list[Entry] = []
        self._queues: dict[Queue, list[Entry]] = {}
        self._memories: defaultdict[Hashable, Segments | PagedSegments] = defaultdict(Segments)
        self._memories[DRAM] = PagedSegments()
        self._background = False
        self._clock = Clock(config) if loops else None

    def __len__(self) -> int:
        return len(self._entries)

    def commands(self, first: int, last: int) -> list[Command]:
        """Commands [first, last), as they were emitted."""
        return [entry.command for entry in self._entries[first:last]]

    def times(self, first: int, last: int) -> Iterator[tuple[Command, int]]:
        """Commands [first, last) as they were emitted, and how often each is executed; no loop has
        others, too."""
        counts: dict[int, int] = {}
        for loop in self._loops_in(range(first, last)):
            for place in loop.period(0):
                counts[place] = counts.get(place, 1) * (1 + loop.times)
        for place in range(first, last):
            yield self._entries[place].command, counts.get(place, 1)

    def parts(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Where the commands [first, last) as they were emitted are among those that :meth:`link`
        has returned: [begin, end) of each stretch, of which there are several where commands of
        other threads are between them."""
        found: list[tuple[int, int]] = []
        for place in sorted(set(self._places[first:last])):
            begin = found.pop()[0] if found and found[-1][1] == place else place
            found.append((begin, place + 1))
        return tuple(found)

    # Lists of jobs ---------------------------------------------------------------------------

    def begin_step(self) -> None:
        """What comes is of another step: no loop has commands of both."""
        self._cuts.append(len(self))

    def begin_run(self) -> int:
        """The number of a list of jobs that begins."""
        self.runs += 1
        return self.runs

    def is_gathered(self) -> bool:
        """Whether the list of jobs that has begun last is to begin with an empty memory, so that
        its blocks lie side by side."""
        return self.runs in self.gathered

    def scattered(self) -> None:
        """There is no room for that list of jobs as its blocks lie: where it can be written again,
        gathered (:func:`~compiler.codegen.attempts.write_program`), this ends the attempt."""
        if self._may_gather and not self.is_gathered():
            raise Scattered(self.runs)

    def is_apart(self, group: int) -> bool:
        """Whether steps of the group of this number are not to be beside each other."""
        return group in (self._apart or ())

    def not_together(self, group: int) -> None:
        """They have no room: where they can be written again, one after the other
        (:func:`~compiler.codegen.attempts.write_program`), this ends the attempt."""
        if self._apart is not None:
            raise Together(group)

    # Steps -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recording(self, recording: Recording) -> Iterator[None]:
        """What is recorded in this context is noted in ``recording``, too."""
        assert self._recording is None, "a step in a step"
        self._recording = recording
        try:
            yield
        finally:
            self._recording = None

    @property
    def state(self) -> Hashable:
        """What of it the commands of a step depend on: whether it is in the background, and whether
        the main thread is behind others."""
        return self._background, self._clock is not None and self._clock.is_behind(MAIN)

    # Loops -----------------------------------------------------------------------------------

    def may_loop(self, name: Hashable) -> bool:
        """Whether the loop of this name is not to be written out."""
        return self.loops and name not in self.written_out

    def most_cycles(self, core: int) -> int | None:
        """How long a loop of a core may be that begins now; None for any time.

        Nothing comes between the commands of a loop. So the main thread writes commands out until
        those of others recorded so far have been, and loops of others are short.
        """
        if not self._clock:
            return 0
        if (core, self._background) != MAIN:
            return MOST_CYCLES
        return 0 if self._clock.is_behind(MAIN) else None

    def now(self, core: int) -> int:
        """The cycle in which the last command of a core so far starts, about."""
        return self._clock.now((core, self._background)) if self._clock else 0

    def repeats(self, length: int) -> list[int] | None:
        """:func:`~compiler.codegen.linking.loops.strides` of the last :data:`BEFORE` periods of
        ``length`` commands, if loops in them are the same, too."""
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
        """Loops that begin and end in a part of the entries."""
        # In the order of their gaps, whatever is in what.
        begin, end = (
            bisect_right(self._loops, place, key=lambda loop: loop.gap)
            for place in (part.start, part.stop)
        )
        loops = self._loops[begin:end]
        return [loop for loop in loops if loop.first in part and loop.end <= part.stop]

    def leave_out(self, loop: Loop, *, known: bool = False) -> Loop | None:
        """Leave out the periods of ``loop`` that would come now; the last :data:`BEFORE` periods
        are those in front. None if that is not possible, because of what they touch in DRAM; that
        it is may be ``known``.

        The first of the periods waits for all that those left out have to wait for.
        """
        loop = replace(loop, inside=tuple(self._loops_in(loop.period(0))))
        if not known and not loop.is_free(self._entries):
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
        # The last of those left out touch what the next ones wait for, as those in front of them
        # did for these.
        self._note_touched(loop, BEFORE - 1, BEFORE - 1 + loop.times, BEFORE + loop.times)
        if self._clock:
            before, last = ([self._entries[n] for n in loop.period(p)] for p in (0, BEFORE - 1))
            cycles = loop.times * self._clock.between(before, last) // (BEFORE - 1)
            loop = replace(loop, cycles=cycles)
            self._clock.skip(thread_of(last[0]), cycles)
        self._loops.append(loop)
        if self._recording is not None:
            self._recording.note_begin(loop)
        return loop

    def end_loop(self, loop: Loop, *, known: bool = False) -> None:
        """The periods behind those left out have been emitted: what follows waits for them if it
        has to wait for those. That they are equal to those in front may be ``known``.

        Raises
        ------
        Unsettled
            if they are not equal to those in front.
        """
        if not known:
            same = self._same_loops(loop.period(number).start for number in range(BEFORE + AFTER))
            if not loop.goes_on(self._entries) or not same(loop.length):
                raise Unsettled(frozenset([loop.name]))
        if self._recording is not None:
            self._recording.note_end(loop)
        self._note_touched(loop, BEFORE + AFTER - 1, BEFORE, BEFORE + loop.times)

    def _note_touched(self, loop: Loop, number: int, first: int, last: int) -> None:
        """What comes next and touches in DRAM what iterations [first, last) do waits for recorded
        period ``number``."""
        for place, index in enumerate(loop.period(number)):
            entry = self._entries[index]
            opcode = entry.queue[1]
            if opcode in (Opcode.LOAD, Opcode.STORE):
                region = loop.touched(self._entries[loop.first + place], place, first, last)
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
        command, touched = Command(opcode, core, fields=fields), (tuple(reads), tuple(writes))
        if self.recordings is not None:
            command.fields, touched = self.recordings.shared(command.fields, touched)
        self.append(command, *touched)

    def append(
        self, command: Command, reads: tuple[Region, ...], writes: tuple[Region, ...]
    ) -> None:
        """Append ``command``, without semaphores, that touches these :class:`Region` s."""
        opcode, core = command.opcode, command.core
        assert not self._background or opcode in _BACKGROUND, f"{opcode!r} in the background"
        if len(self._entries) == self._most:
            raise TooLong
        if self._recording is not None:
            self._recording.commands.append((command, command.fields, reads, writes))
        queue = (core, opcode, self._background)
        members = self._queues.setdefault(queue, [])
        queue = members[0].queue if members else queue  # the same object in all
        entry = Entry(command, queue, len(members), len(self._entries))
        for region in reads:
            if region.begin < region.end:
                self._memories[region.memory].read(region, entry)
        for region in writes:
            if region.begin < region.end:
                self._memories[region.memory].write(region, entry)
        if opcode == Opcode.MATMUL and (core, Opcode.WEIGHTS, False) in self._queues:
            entry.feeder = self._queues[core, Opcode.WEIGHTS, False][-1]
            entry.feeder.user = entry
        entry.after.pop(queue, None)
        members.append(entry)
        self._entries.append(entry)
        if self._clock:
            self._clock.note(entry)

    def on_chip(self, first: int) -> Sequence[Emitted]:
        """The commands from ``first`` on with what they touch, if they are of a step that is
        recorded (:meth:`recording`), and none has a place in DRAM; else none."""
        if self._recording is None or first == len(self):
            return ()
        commands = self._recording.commands[first - len(self) :]
        touches = any(command.opcode in (Opcode.LOAD, Opcode.STORE) for command, *_ in commands)
        return () if touches else commands

    def emit_again(self, commands: Iterable[Emitted]) -> None:
        """Append the same commands."""
        for command, fields, reads, writes in commands:
            self.append(command.again(fields), reads, writes)

    def link(self) -> list[Command]:
        """The commands with their semaphores, and HALT; see
        :meth:`~compiler.codegen.linking.linker.Linker.link`. Nothing can be recorded after that."""
        # The entries know what they wait for, and nothing is recorded any more.
        self._memories.clear()
        self._clock = None
        cuts = self._cuts if self.loops else None
        linker = Linker(self.config, self._entries, self._loops, cuts, early=self._early,
                        levels=self.levels)  # fmt: skip
        commands = linker.link()
        self.semaphores, self._places = linker.semaphores, linker.places
        self.forget()
        return commands

    def forget(self) -> None:
        """Nothing has been recorded. Entries that refer to each other would stay until Python looks
        for cycles."""
        for entry in self._entries:
            entry.feeder = entry.user = None
        self._entries, self._queues, self._loops = [], {}, []
        self._memories.clear()
