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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from compiler.errors import CompileError
from hw.isa.encoding import COMMAND_BYTES, Opcode

from .cost import Command, bits
from .entries import Entry, Region

__all__ = ["AFTER", "BEFORE", "Loop", "Unsettled", "roll", "strides"]

#: Periods that are recorded in front of those left out, and behind them. The first shows how a loop
#: begins, and the last may hand tokens to what follows; those beside the gap must be equal.
BEFORE, AFTER = 2, 2
#: Fields that may differ from period to period.
_ADDRESS = "dram_address"


class Unsettled(CompileError):
    """Loops whose periods are not equal when tokens have been placed: write them out.

    ``loops`` are their numbers.
    """

    def __init__(self, loops: frozenset[int]) -> None:
        super().__init__(f"loops {', '.join(map(str, sorted(loops)))} have no period")
        self.loops = loops


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Periods of a recorded stream.

    Members
    -------
    number : of the loop in its program
    first : the entry with which the first of them begins
    strides : for every command of a period how far its address in DRAM moves in a period
    times : periods left out, behind the first :data:`BEFORE` and in front of :data:`AFTER` others
    """

    number: int
    first: int
    strides: Sequence[int]
    times: int

    @property
    def length(self) -> int:
        """Commands of a period."""
        return len(self.strides)

    def period(self, number: int) -> range:
        """Entries of a recorded period."""
        begin = self.first + number * self.length
        return range(begin, begin + self.length)

    def touched(self, entry: Entry, place: int, first: int, last: int) -> Region:
        """What command ``place`` of periods [first, last) touches in DRAM, if ``entry`` is that of
        period 0."""
        region = _in_dram(entry)
        moves = [number * self.strides[place] for number in (first, last - 1)]
        return Region(region.memory, region.begin + min(moves), region.end + max(moves))

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
                if stride and self._meet_later(_in_dram(store), _in_dram(load), stride, count):
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


def _in_dram(entry: Entry) -> Region:
    fields = entry.command.fields
    begin = fields[_ADDRESS]
    size = (fields["run_count"] - 1) * fields["run_stride"] + fields["run_bytes"]
    return Region("dram", begin, begin + size)


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


@dataclass
class _Rolled:
    """A stream with loops, and where its entries have gone."""

    commands: list[Command] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def roll(
    entries: Sequence[Entry], loops: Sequence[Loop], tokens: Tokens
) -> tuple[list[Command], list[int]]:
    """(commands with REPEAT behind the body of every loop, place of each entry among them).

    The ``first`` of a REPEAT counts from the first command. Entries that a loop stands for have the
    place of its REPEAT.

    Raises
    ------
    Unsettled
        naming loops whose periods have different tokens.
    """
    result, done, unsettled = _Rolled(), 0, set()
    for loop in loops:
        period = _settled(entries, loop, tokens)
        if period is None:
            unsettled.add(loop.number)
            continue
        first, last = period
        body = loop.period(first)
        _copy(result, entries, range(done, body.start))
        begin = len(result.commands)
        _copy(result, entries, body)
        for command, stride in zip(result.commands[begin:], loop.strides, strict=True):
            if stride:
                command.fields["loop0_stride"] = stride
        fields = {"level": 0, "count": last - first + loop.times, "first": begin * COMMAND_BYTES}
        done = loop.period(last - 1).stop
        result.places += [len(result.commands)] * (done - body.stop)
        result.commands.append(Command(Opcode.REPEAT, fields=fields))
    if unsettled:
        raise Unsettled(frozenset(unsettled))
    _copy(result, entries, range(done, len(entries)))
    return result.commands, result.places


def _copy(result: _Rolled, entries: Sequence[Entry], part: range) -> None:
    result.places += range(len(result.commands), len(result.commands) + len(part))
    result.commands += (entries[number].command for number in part)


def _settled(entries: Sequence[Entry], loop: Loop, tokens: Tokens) -> tuple[int, int] | None:
    """Recorded periods [first, last) that the body stands for, the gap among them; None if there
    are none."""
    taken = _equal_periods(loop, lambda place: tokens[place])
    given = _equal_periods(loop, lambda place: entries[place].command.signal)
    if not taken[BEFORE - 1] or not _goes_on(entries, loop):
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


def _goes_on(entries: Sequence[Entry], loop: Loop) -> bool:
    """Whether what has been recorded behind the gap is what the body becomes."""
    for number in range(BEFORE, BEFORE + AFTER):
        moved = number + loop.times
        for place, (a, b) in enumerate(zip(loop.period(0), loop.period(number), strict=True)):
            one, other = entries[a].command, entries[b].command
            if entries[a].queue != entries[b].queue:
                return False
            wanted = one.fields
            if loop.strides[place]:
                address = wanted[_ADDRESS] + moved * loop.strides[place]
                wanted = wanted | {_ADDRESS: address}
            if wanted != other.fields:
                return False
    return True


def _balanced(entries: Sequence[Entry], body: range) -> bool:
    """Whether a period gives as many tokens of each semaphore as it takes."""
    change: dict[int, int] = {}
    for place in body:
        command = entries[place].command
        for mask, step in ((command.signal, 1), (command.wait, -1)):
            for number in bits(mask):
                change[number] = change.get(number, 0) + step
    return not any(change.values())
