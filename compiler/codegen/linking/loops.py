"""Loops in a recorded stream: a period of commands that is written once, and repeated.

A loop is recorded as periods (:class:`Loop`), some from its beginning and some from its end, which
are equal but for the addresses in DRAM: these move evenly. Those between them are left out. When
the semaphores are placed, one period becomes the body of a REPEAT that stands for itself, for those
left out, and for its neighbours as far as they are equal in their tokens, too (:func:`roll`).

What is left out does and waits for what the body does and waits for, as many periods later: a body
gives and takes the same tokens, semaphores hand them on in order, and buffer addresses are the
same. In DRAM no period touches what a distant one writes (:meth:`Loop.is_free`), and what it shares
with commands outside is known to them (:class:`~compiler.codegen.dependencies.Recorder`).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.codegen.cost import Command, bits
from compiler.errors import CompileError
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.loops import stride_name

from .entries import DRAM, Entry, Region, dram_region

__all__ = ["AFTER", "BEFORE", "Loop", "Unsettled", "roll", "strides"]

#: Periods that are recorded in front of those left out, and behind them. The first shows how a loop
#: begins, and the last may hand tokens to what follows; those beside the gap must be equal.
BEFORE, AFTER = 2, 2
#: Fields that may differ from period to period.
_ADDRESS = "dram_address"


class Unsettled(CompileError):
    """Loops whose periods turn out not to be equal, such as in their tokens: write them out.

    ``loops`` are their names.
    """

    def __init__(self, loops: frozenset[Hashable]) -> None:
        super().__init__(f"loops without a period: {', '.join(map(str, loops))}")
        self.loops = loops


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Periods of a recorded stream.

    Members
    -------
    name : the same whenever the program is written
    level : loops around it
    first : the entry with which the first of them begins
    strides : for every command of a period how far its address in DRAM moves in a period
    times : periods left out, behind the first :data:`BEFORE` and in front of :data:`AFTER` others
    inside : loops in the first period
    cycles : that the periods left out take, about
    """

    name: Hashable
    level: int
    first: int
    strides: Sequence[int]
    times: int
    inside: tuple["Loop", ...] = ()
    cycles: int = 0

    @property
    def length(self) -> int:
        """Commands of a period."""
        return len(self.strides)

    def period(self, number: int) -> range:
        """Entries of a recorded period."""
        begin = self.first + number * self.length
        return range(begin, begin + self.length)

    @property
    def gap(self) -> int:
        """The entry in front of which the periods left out would be."""
        return self.period(BEFORE).start

    @property
    def end(self) -> int:
        """The first entry behind them."""
        return self.first + (BEFORE + AFTER) * self.length

    def shape(self, start: int) -> tuple[object, ...]:
        """What loops have in common that are the same behind different entries ``start``."""
        return self.first - start, self.level, self.strides, self.times

    def region(self, entry: Entry) -> Region:
        """What ``entry``, of period 0, touches in DRAM, in all iterations of loops inside."""
        result = dram_region(entry.command.fields)
        for loop in self.inside:
            if entry.position in loop.period(0):
                stride = loop.strides[entry.position - loop.first]
                far = stride * (BEFORE + loop.times + AFTER - 1)
                result = Region(DRAM, result.begin + min(0, far), result.end + max(0, far))
        return result

    def touched(self, entry: Entry, place: int, first: int, last: int) -> Region:
        """What command ``place`` of periods [first, last) touches in DRAM, if ``entry`` is that of
        period 0."""
        region = self.region(entry)
        moves = [number * self.strides[place] for number in (first, last - 1)]
        return Region(region.memory, region.begin + min(moves), region.end + max(moves))

    def goes_on(self, entries: Sequence[Entry]) -> bool:
        """Whether the entries behind those left out, up to the last one, are what comes then."""
        if len(entries) != self.first + (BEFORE + AFTER) * self.length:
            return False
        for number in range(BEFORE, BEFORE + AFTER):
            moved = number + self.times
            for place, (a, b) in enumerate(zip(self.period(0), self.period(number), strict=True)):
                one, other = entries[a], entries[b]
                wanted = one.command.fields
                if self.strides[place]:
                    address = wanted[_ADDRESS] + moved * self.strides[place]
                    wanted = wanted | {_ADDRESS: address}
                if one.queue != other.queue or wanted != other.command.fields:
                    return False
        return True

    def is_free(self, entries: Sequence[Entry]) -> bool:
        """Whether no period touches in DRAM what another one writes, but for the next ones: what
        these wait for is seen in the periods that are recorded."""
        count = BEFORE + self.times + AFTER
        found: dict[Opcode, list[tuple[int, Entry]]] = {Opcode.LOAD: [], Opcode.STORE: []}
        for place, number in enumerate(self.period(0)):
            opcode = entries[number].queue[1]
            if opcode in found:
                found[opcode].append((place, entries[number]))
        for place, store in found[Opcode.STORE]:
            for other, load in found[Opcode.LOAD]:
                stride = self.strides[place]
                if stride != self.strides[other]:
                    a = self.touched(store, place, 0, count)
                    b = self.touched(load, other, 0, count)
                    if a.begin < b.end and b.begin < a.end:
                        return False
                    continue
                if stride and self._meet_later(
                    self.region(store), self.region(load), stride, count
                ):
                    return False
        return True

    def _meet_later(self, store: Region, load: Region, stride: int, count: int) -> bool:
        """Whether one of them touches what the other does at least two periods later."""
        # The load is so many periods behind: more than low, less than high.
        low, high = sorted(
            ((store.begin - load.end) * (1 if stride > 0 else -1),
             (store.end - load.begin) * (1 if stride > 0 else -1))
        )  # fmt: skip
        first, last = low // abs(stride) + 1, -(-high // abs(stride)) - 1
        first, last = max(first, 1 - count), min(last, count - 1)
        return first <= last and (first <= -2 or last >= 2)


def strides(entries: Sequence[Entry], first: int, length: int) -> list[int] | None:
    """How far the address in DRAM of every command moves, if the entries from ``first`` on are
    :data:`BEFORE` periods of ``length`` that are equal otherwise; else None."""
    result = []
    for place in range(first, first + length):
        chain = [entries[place + number * length] for number in range(BEFORE)]
        commands = [entry.command for entry in chain]
        one = commands[0].fields
        if any(entry.queue != chain[0].queue for entry in chain):
            return None
        if _ADDRESS not in one:
            if any(command.fields != one for command in commands):
                return None
            result.append(0)
            continue
        steps = {b.fields[_ADDRESS] - a.fields[_ADDRESS] for a, b in pairwise(commands)}
        if len(steps) > 1 or any(
            command.fields | {_ADDRESS: one[_ADDRESS]} != one for command in commands
        ):
            return None
        result.append(steps.pop())
    return result


#: For every entry the tokens that it takes: (semaphore, how many entries before it was given).
Tokens = Sequence[Sequence[tuple[int, int]]]


def roll(
    entries: Sequence[Entry], loops: Iterable[Loop], tokens: Tokens
) -> tuple[list[Command], list[int]]:
    """(commands with REPEAT behind the body of every loop, place of each entry among them).

    The ``first`` of a REPEAT counts from the first command. Entries that a loop stands for have the
    place of its REPEAT.

    Raises
    ------
    Unsettled
        naming loops whose periods have different tokens.
    """
    rolled = _Rolled(entries, tokens)
    ordered = sorted(loops, key=lambda loop: (loop.first, -loop.end))
    rolled.write(range(len(entries)), ordered)
    if rolled.unsettled:
        raise Unsettled(frozenset(rolled.unsettled))
    return rolled.commands, rolled.places


class _Rolled:
    """A stream with loops, and where its entries have gone."""

    def __init__(self, entries: Sequence[Entry], tokens: Tokens) -> None:
        self.entries, self.tokens = entries, tokens
        self.commands: list[Command] = []
        self.places: list[int] = []
        self.unsettled: set[Hashable] = set()

    def write(self, part: range, loops: Sequence[Loop]) -> None:
        """Entries of ``part``, in which ``loops`` are, those around others first."""
        done = part.start
        for loop in loops:
            if loop.first < done:
                continue  # inside one that has been written
            period = _settled(self.entries, loop, self.tokens)
            if period is None:
                self.unsettled.add(loop.name)
                period = 0, 1
            body = loop.period(period[0])
            inner = [other for other in loops if other is not loop and other.first >= done]
            self._copy(range(done, loop.first))
            for number in range(period[0]):
                self._period(loop.period(number), inner)
            begin = len(self.commands)
            self._period(body, inner)
            self._close(loop, body, begin, period)
            done = loop.period(period[1] - 1).stop
            self.places += [len(self.commands) - 1] * (done - body.stop)
        self._copy(range(done, part.stop))

    def _period(self, part: range, loops: Iterable[Loop]) -> None:
        self.write(part, [loop for loop in loops if loop.first in part and loop.end <= part.stop])

    def _close(self, loop: Loop, body: range, begin: int, period: tuple[int, int]) -> None:
        """Strides of the commands from ``begin`` on, and a REPEAT behind them."""
        for entry, stride in zip(body, loop.strides, strict=True):
            command = self.entries[entry].command
            if stride and self.commands[self.places[entry]] is command:
                command.fields = command.fields | {stride_name(loop.level): stride}
        count = period[1] - period[0] + loop.times
        fields = {"level": loop.level, "count": count, "first": begin * COMMAND_BYTES}
        self.commands.append(Command(Opcode.REPEAT, fields=fields))

    def _copy(self, part: range) -> None:
        self.places += range(len(self.commands), len(self.commands) + len(part))
        self.commands += (self.entries[number].command for number in part)


def _settled(entries: Sequence[Entry], loop: Loop, tokens: Tokens) -> tuple[int, int] | None:
    """Recorded periods [first, last) that the body stands for, the gap among them; None if there
    are none."""
    taken = _equal_periods(loop, lambda place: tokens[place])
    given = _equal_periods(loop, lambda place: entries[place].command.signal)
    if not taken[BEFORE - 1]:
        return None
    both = [a and b for a, b in zip(taken, given, strict=True)]
    first = last = BEFORE - 1
    while first and both[first - 1]:
        first -= 1
    while last < len(both) and both[last]:
        last += 1
    if last == BEFORE - 1 == first or not _balanced(entries, loop.period(first)):
        return None
    return first, last + 1


def _equal_periods(loop: Loop, what: Callable[[int], object]) -> list[bool]:
    """Whether each recorded period has the same as the next one."""
    rows = [[what(place) for place in loop.period(n)] for n in range(BEFORE + AFTER)]
    return [a == b for a, b in pairwise(rows)]


def _balanced(entries: Sequence[Entry], body: range) -> bool:
    """Whether a period gives as many tokens of each semaphore as it takes."""
    change: dict[int, int] = {}
    for place in body:
        command = entries[place].command
        for mask, step in ((command.signal, 1), (command.wait, -1)):
            for number in bits(mask):
                change[number] = change.get(number, 0) + step
    return not any(change.values())
