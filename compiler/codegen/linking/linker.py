"""Semaphores for recorded commands, threads in one order, and loops in their short form.

Tokens of a pair of queues are taken in the order in which they are given, because both queues work
in order and a command never waits for one that is older than what its queue has waited for. What
follows from other tokens takes none. There are more pairs of queues than semaphores: what happens
now and then takes a detour by commands in between.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from compiler.codegen.cost import Command
from compiler.errors import CompileError
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode
from hw.isa.loops import LOOP_LEVELS

from .entries import Entry, Finished, Queue, Thread, joined, latest, threads_of
from .folding import fold
from .interleaving import interleaved
from .loops import Loop, Unsettled, roll
from .tokens import Token, add_token, fits, merge_tokens

__all__ = ["Crowded", "Linker"]

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
    (Opcode.POST, Opcode.VECTOR),
    (Opcode.STORE, Opcode.POST),
    (Opcode.STORE, Opcode.LOAD),
    (Opcode.STORE, Opcode.VECTOR),
    (Opcode.VECTOR, Opcode.LOAD),
    (Opcode.VECTOR, Opcode.STORE),
    (Opcode.LOSS, Opcode.STORE),
}

#: A pair of queues that has a semaphore, and its tokens meanwhile.
_Turn = tuple[tuple[Queue, Queue], list[Token]]

#: Commands of several threads in which what comes again is looked for: in more it would take long.
_STRETCH = 2048


def _semaphore_name(source: Queue, target: Queue) -> str:
    """Name of the semaphore between two queues, (core, opcode) each."""
    names = [opcode.name.lower() for _, opcode, _ in (source, target)]
    there = "" if source[0] == target[0] else f"c{target[0]}."
    return f"c{source[0]}.{names[0]}->{there}{names[1]}"


class Crowded(CompileError):
    """More pairs of queues wait for each other than there are semaphores for."""


class Linker:
    """Links commands.

    Parameters
    ----------
    config : AdaGPConfig
    entries : as they were recorded; they are changed
    loops : among them
    early : what is waiting for WEIGHTS to be read goes on when they have been, for which it needs a
        semaphore more; otherwise when what they are for is done
    cuts : where steps begin, if what comes again in one of them is to be written once; else None
    levels : of loops, the first so many

    Members
    -------
    semaphores : number -> name of those that are used
    places : of every entry, in the order in which they were recorded, its place among the commands:
        that of a REPEAT for those that are not written
    """

    def __init__(
        self, config: AdaGPConfig, entries: Sequence[Entry], loops: Sequence[Loop],
        cuts: Sequence[int] | None = None, *, early: bool = False, levels: int = LOOP_LEVELS,
    ) -> None:  # fmt: skip
        self.config, self._entries, self._loops = config, entries, loops
        self._cuts, self._early, self._levels = cuts, early, levels
        self.semaphores: dict[int, str] = {}
        self.places: list[int] = []
        self._queues: dict[Queue, list[Entry]] = {}
        self._order: dict[Queue, int] = {}
        self._none: Finished = ()

    def link(self) -> list[Command]:
        """The commands with their semaphores, and HALT.

        Raises
        ------
        Crowded
            if there are more pairs of queues than semaphores.
        CompileError
            if there are more tokens than a semaphore can hold that cannot become fewer.
        Unsettled
            if loops have to be written out.
        """
        recorded = self._entries
        owners = threads_of(recorded)
        threads = len(set(owners))
        if threads > 1:
            self._entries = interleaved(recorded, self.config, self._loops)
            owners = threads_of(self._entries)
        if any(background for _, background in set(owners)):
            self._join()
        for position, entry in enumerate(self._entries):
            entry.position = position
            self._queues.setdefault(entry.queue, []).append(entry)
        self._order = {queue: place for place, queue in enumerate(self._queues)}
        self._none = (-1,) * len(self._order)
        self._loops = [replace(loop, first=recorded[loop.first].position) for loop in self._loops]
        if threads > 1:
            self._wait_for_loops(owners)
        tokens: dict[tuple[Queue, Queue], list[Token]] = {}
        done: dict[Queue, Entry] = {}
        for entry in self._entries:
            before = self._queues[entry.queue][entry.number - 1] if entry.number else None
            entry.at_start = before.at_start if before else self._none
            for source in self._sources(entry):
                if self._knows(entry, source):
                    continue
                for first, second in self._detour(source, entry, done, tokens):
                    add_token(tokens.setdefault((first.queue, second.queue), []), first, second)
                    second.at_start = joined(second.at_start, self._with(first.at_end, first))
                    if second is not entry:
                        self._end(second)
            self._end(entry)
            del entry.after  # which nobody needs again
            done[entry.queue] = entry
        taken: list[tuple[tuple[int, int], ...]] = [()] * len(self._entries)
        alike: dict[tuple[int, int], tuple[int, int]] = {}
        for number, pair, some in self._numbers(tokens):
            names = [self.semaphores[number]] if number in self.semaphores else []
            self.semaphores[number] = ", then ".join([*names, _semaphore_name(*pair)])
            merge_tokens(some, self._queues[pair[1]], self.config.command_queue_depth)
            for source, entry in some:
                source.command.signal |= 1 << number
                entry.command.wait |= 1 << number
                token = number, entry.position - source.position
                taken[entry.position] += (alike.setdefault(token, token),)
        for entry in self._entries:
            del entry.at_start, entry.at_end  # which are large
        commands, self.places = roll(self._entries, self._loops, taken)
        del taken, tokens, alike  # which are large
        if self._loops and not fits(commands, self.config.command_queue_depth):
            raise Unsettled(frozenset(loop.name for loop in self._loops))
        if self._cuts is not None:
            # Steps of several threads are not one behind the other.
            cuts: Iterable[int] = range(0, len(commands), _STRETCH)
            if threads == 1:
                cuts = {self.places[cut] for cut in self._cuts if cut < len(recorded)}
            commands, moved = fold(commands, cuts, self._levels)
            self.places = [moved[place] for place in self.places]
        if threads > 1:
            self.places = [self.places[entry.position] for entry in recorded]
        return [*commands, Command(Opcode.HALT)]

    def _join(self) -> None:
        """From queues of threads to those that there are."""
        joined_queues: dict[Queue, Queue] = {}
        numbers: dict[Queue, list[int]] = {}  # of a thread's queue -> those in the joined one
        counts: Counter[Queue] = Counter()
        for entry in self._entries:
            own = entry.queue
            if own not in joined_queues:
                joined_queues[own], numbers[own] = (*own[:2], False), []
            queue = joined_queues[own]
            numbers[own].append(counts[queue])
            entry.queue, entry.number = queue, counts[queue]
            counts[queue] += 1
            after: dict[Queue, int] = {}
            for source, number in entry.after.items():
                other, last = joined_queues[source], numbers[source][number]
                # The queue itself sees to it that its commands are in order.
                if other != queue and after.get(other, -1) < last:
                    after[other] = last
            entry.after = after

    def _wait_for_loops(self, owners: Sequence[Thread]) -> None:
        """What waits for a command in a loop of another thread waits for all of the loop, and what
        waits in a loop does so when that begins: else periods would not be equal. As nothing comes
        between the commands of a loop, this takes little time.

        ``owners`` are the threads of the entries.
        """
        around: dict[int, list[Loop]] = {}  # the outermost first
        for loop in sorted(self._loops, key=lambda loop: (loop.first, -loop.end)):
            for place in range(loop.first, loop.end):
                around.setdefault(place, []).append(loop)

        def apart(place: int, other: int) -> range:
            """The outermost loop there in which ``other`` is not."""
            parts = (range(loop.first, loop.end) for loop in around.get(place, ()))
            return next((part for part in parts if other not in part), range(place, place + 1))

        counts = Counter(core for core, _ in set(owners))
        foreign = {core: {queue for queue in self._queues if queue[0] != core} for core in counts}
        for place, entry in enumerate(self._entries):
            core = entry.queue[0]
            if counts[core] == 1 and foreign[core].isdisjoint(entry.after):
                continue  # it waits for its own thread alone, as nearly all do
            for queue, number in list(entry.after.items()):
                source = self._queues[queue][number].position
                if owners[source] == owners[place]:
                    continue
                waiting, given = apart(place, source), apart(source, place)
                first = next(n for n in waiting if self._entries[n].queue == entry.queue)
                last = next(n for n in reversed(given) if self._entries[n].queue == queue)
                latest(self._entries[first].after, {queue: self._entries[last].number})

    def _end(self, entry: Entry) -> None:
        """Note what has finished when ``entry`` has, which may have learnt of more."""
        before = self._queues[entry.queue][entry.number - 1] if entry.number else None
        end = entry.at_end or (before.at_end if before else self._none)
        if before is None or entry.at_start is not before.at_start:
            end = joined(end, entry.at_start)
        if entry.feeder is not None:
            end = joined(end, self._with(entry.feeder.at_end, entry.feeder))
        entry.at_end = end

    def _with(self, finished: Finished, entry: Entry) -> Finished:
        """``finished``, and ``entry``."""
        place = self._order[entry.queue]
        if finished[place] >= entry.number:
            return finished
        return (*finished[:place], entry.number, *finished[place + 1 :])

    def _knows(self, entry: Entry, other: Entry) -> bool:
        """Whether ``other`` has finished when ``entry`` starts."""
        return entry.at_start[self._order[other.queue]] >= other.number

    def _sources(self, entry: Entry) -> list[Entry]:
        """Commands that ``entry`` has to wait for, the last ones first, without those that have
        finished when the one before it in its queue starts."""
        queues, order, known = self._queues, self._order, entry.at_start
        found: list[Entry] = []
        for queue, number in entry.after.items():
            source = queues[queue][number]
            user = None if self._early else source.user
            # Weights are out of the buffer when what they were for is done: few care for less.
            if user is not None and user.position < entry.position:
                source = user
            if known[order[source.queue]] < source.number:
                found.append(source)
        if len(found) > 1:
            found.sort(key=lambda source: source.position, reverse=True)
        return found

    def _detour(
        self, source: Entry, entry: Entry, done: Mapping[Queue, Entry],
        pairs: Container[tuple[Queue, Queue]],
    ) -> Iterator[Token]:  # fmt: skip
        """Pairs of commands, each waiting for the one before it, from ``source`` to ``entry``.

        The shortest way by queues of a core with semaphores for it, as ``pairs`` have already, and
        by the last command of each so far; none if there is no such way.
        """
        pair = source.queue, entry.queue
        if pair in pairs and pair[0][0] == pair[1][0]:
            # What follows from others is not among the sources.
            yield source, entry
            return
        ways = deque([[source]])
        seen = {source.queue}
        way = [source]
        while ways and way[-1] is not entry:
            way = ways.popleft()
            for queue in (entry.queue, *done):
                stop = entry if queue == entry.queue else done[queue]
                pair = way[-1].queue, queue
                if (
                    ((pair[0][1], pair[1][1]) in _DIRECT or pair in pairs)
                    and pair[0][0] == pair[1][0]
                    and queue not in seen
                    and stop.position > way[-1].position
                ):
                    seen.add(queue)
                    ways.append([*way, stop])
        if way[-1] is not entry:
            way = [source, entry]
        for first, second in pairwise(way):
            if not self._knows(second, first):
                yield first, second

    def _numbers(
        self, tokens: Mapping[tuple[Queue, Queue], list[Token]]
    ) -> Iterator[tuple[int, tuple[Queue, Queue], list[Token]]]:
        """(semaphore, pair of queues, tokens of the pair): one of the core that waits while that
        has any, then another core's, then one that pairs of queues can have one after the other, in
        the order in which they have it. A pair may have it twice, with others in between."""
        own, count = self.config.semaphores, self.config.semaphore_count
        used: dict[int, list[_Turn]] = {}
        left = []
        for source, target in tokens:
            first = target[0] * own
            free = [number for number in range(first, first + own) if number not in used]
            if free:
                used[free[0]] = [((source, target), tokens[source, target])]
            else:
                left.append((source, target))
        free = [number for number in range(count) if number not in used]
        used |= {number: [(pair, tokens[pair])] for number, pair in zip(free, left, strict=False)}
        for pair in left[len(free) :]:
            turns = ((number, self._between(used[number], pair, tokens[pair])) for number in used)
            found = next(((number, shared) for number, shared in turns if shared), None)
            if found is None:
                pairs = [f"{a[1].name} to {b[1].name}" for a, b in tokens]
                raise Crowded(
                    f"the program needs {len(pairs)} semaphores, not {count}: {', '.join(pairs)}"
                )
            used[found[0]] = found[1]
        for number, sharing in used.items():
            for pair, some in sharing:
                yield number, pair, some

    def _between(
        self, turns: Sequence[_Turn], pair: tuple[Queue, Queue], own: list[Token]
    ) -> list[_Turn]:
        """``turns`` and one of ``pair``, for which one of them may be divided in two; none if
        that cannot be."""
        place = 0
        while place < len(turns) and self._over(turns[place][1], own):
            place += 1
        if all(self._over(own, some) for _, some in turns[place:]):
            return [*turns[:place], (pair, own), *turns[place:]]
        other, some = turns[place]
        # Tokens of a pair are taken in order: those in front are the first so many.
        taken = bisect_left(range(1, len(some)), True, key=lambda n: not self._over(some[:n], own))
        rest = some[taken:]
        behind = [rest, *(each for _, each in turns[place + 1 :])]
        if not taken or not all(self._over(own, each) for each in behind):
            return []
        return [
            *turns[:place], (other, some[:taken]), (pair, own), (other, rest), *turns[place + 1 :]
        ]  # fmt: skip

    def _over(self, tokens: Sequence[Token], later: Sequence[Token]) -> bool:
        """Whether all ``tokens`` have been taken when the first one of ``later`` is given, and
        nobody waits for that one before: who waits takes what comes first. A command takes its
        tokens when it starts, and gives when it ends; it waits when the one in front of it in its
        queue has started."""
        last, (source, target) = tokens[-1][1], later[0]
        if last.queue == source.queue:
            given = last.number <= source.number
        else:
            given = self._knows(source, last)
        if last.queue == target.queue or not given:
            return given
        if not target.number:
            return False
        return self._knows(self._queues[target.queue][target.number - 1], last)
