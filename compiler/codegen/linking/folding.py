"""What comes again in a stream of commands, one time behind the other, written once as a loop.

The stream is final: semaphores are placed. So nothing has to be known of what the commands mean:
those that are executed are the same ones in the same order, with the same addresses.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.cost import Command, Fields
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.loops import LOOP_LEVELS, stride_name

__all__ = ["fold"]

#: Commands that a loop saves at least: it takes the sequencer some cycles.
_LEAST_SAVED = 8
#: Longest body of a loop that is looked for.
_MOST_COMMANDS = 1 << 13
#: How many of the next commands that equal one are tried as its counterpart in the next iteration.
_TRIES = 3
#: Searches; each may find loops around those that are there already, or in them.
_PASSES = 2 * LOOP_LEVELS
#: Strides are less than this.
_MOST_STRIDE = 1 << 31
#: The field that may differ from iteration to iteration.
_ADDRESS = "dram_address"

_Numbers = NDArray[np.int64]


def fold(
    commands: Sequence[Command], cuts: Iterable[int] = (), levels: int = LOOP_LEVELS
) -> tuple[list[Command], list[int]]:
    """(``commands`` with more loops, place of each of them among these).

    The ``first`` of a REPEAT counts from the first command. Commands that are written no more have
    the place of the REPEAT that brings them again. Those that get strides are changed.

    Parameters
    ----------
    commands : of a program, with or without loops
    cuts : places of commands in front of which loops are over
    levels : of loops, the first so many
    """
    loops = {
        place: command.fields["first"] // COMMAND_BYTES
        for place, command in enumerate(commands)
        if command.opcode is Opcode.REPEAT
    }
    depth = _depth(loops, len(commands))
    edges = sorted({0, len(commands), *(cut for cut in cuts if not depth[cut])})
    result: list[Command] = []
    places: list[int] = []
    for begin, end in pairwise(edges):
        inside = {place - begin: loops[place] - begin for place in loops if begin <= place < end}
        part = _Part(commands[begin:end], inside, levels)
        for _ in range(_PASSES):
            if not part.fold():
                break
        places += [len(result) + place for place in part.places]
        result += part.finished(len(result))
    return result, places


def _depth(loops: Mapping[int, int], count: int) -> _Numbers:
    """For the place in front of each of so many commands, and behind the last one, how many loops
    are open there; place of REPEAT -> that of its loop's first command."""
    steps = np.zeros(count + 2, np.int64)
    for place, first in loops.items():
        steps[first + 1] += 1
        steps[place + 1] -= 1
    return np.cumsum(steps)[:-1]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """``count`` times ``size`` commands from ``first`` on, which are equal but for addresses that
    move evenly."""

    first: int
    size: int
    count: int
    level: int
    strides: _Numbers

    @property
    def end(self) -> int:
        return self.first + self.size * self.count

    @property
    def body(self) -> range:
        return range(self.first, self.first + self.size)


class _Part:
    """Commands among which loops are looked for.

    Members
    -------
    places : of each of the commands at first, its place among those that are left
    """

    def __init__(self, commands: Sequence[Command], loops: dict[int, int], levels: int) -> None:
        self.commands, self._loops, self._levels = list(commands), loops, levels
        self.places = list(range(len(commands)))
        self._ids: dict[Hashable, int] = {}
        #: Of fields, which commands have in common, by their identity.
        self._fields: dict[int, tuple[Fields, Hashable]] = {}
        #: Of an opcode with an address, its other fields.
        self._others: dict[Opcode, Callable[[Fields], Hashable]] = {}
        self._keys = [self._key(place) for place in range(len(commands))]

    def _key(self, place: int) -> int:
        """A number that commands have in common which differ in their address alone."""
        command, fields = self.commands[place], self.commands[place].fields
        if place in self._loops:
            others = fields | {"back": place - self._loops[place]}
            del others["first"]
            known: Hashable = frozenset(others.items())
        elif _ADDRESS in fields:
            if command.opcode not in self._others:
                # There are millions of commands, and all of an opcode have the same fields.
                names = (name for name in fields if name != _ADDRESS)
                self._others[command.opcode] = itemgetter(*names)
            known = self._others[command.opcode](fields)
        else:
            if id(fields) not in self._fields:
                self._fields[id(fields)] = fields, frozenset(fields.items())
            known = self._fields[id(fields)][1]
        key = (command.opcode, command.core, command.wait, command.signal, known)
        return self._ids.setdefault(key, len(self._ids))

    def fold(self) -> bool:
        """Write what comes again once, as far as it is found at once; whether anything is."""
        found = sorted(self._search(), key=lambda loop: loop.first)
        if not found:
            return False
        commands: list[Command] = []
        keys: list[int] = []
        moved: list[int] = []  # of each command, where it is now
        loops: dict[int, int] = {}
        done = 0
        for loop in (*found, None):
            end = loop.body.stop if loop else len(self.commands)
            moved += range(len(commands), len(commands) + end - done)
            commands += self.commands[done:end]
            keys += self._keys[done:end]
            if loop:
                loops[len(commands)] = moved[loop.first]
                moved += [len(commands)] * (loop.end - end)
                fields = {"level": loop.level, "count": loop.count, "first": 0}
                commands.append(Command(Opcode.REPEAT, fields=fields))
                keys.append(-1)
                for place, stride in zip(loop.body, loop.strides, strict=True):
                    if stride:
                        command = self.commands[place]
                        more = {stride_name(loop.level): int(stride)}
                        command.fields = command.fields | more
                        keys[moved[place]] = -1
                done = loop.end
        gone = {place for loop in found for place in range(loop.body.stop, loop.end)}
        loops |= {moved[place]: moved[first] for place, first in self._loops.items()
                  if place not in gone}  # fmt: skip
        self.commands, self._loops = commands, loops
        self._keys = [
            self._key(place) if key < 0 or place in loops else key for place, key in enumerate(keys)
        ]
        self.places = [moved[place] for place in self.places]
        return True

    def finished(self, begin: int) -> list[Command]:
        """The commands, of which there are ``begin`` in front of these."""
        for place, first in self._loops.items():
            self.commands[place].fields["first"] = (begin + first) * COMMAND_BYTES
        return self.commands

    def _search(self) -> Iterator[_Found]:
        """Loops that have no command in common, those that save most first."""
        keys = np.array(self._keys, np.int64)
        addresses = np.array([c.fields.get(_ADDRESS, 0) for c in self.commands], np.int64)
        depth = _depth(self._loops, len(keys))
        stretches = sorted(
            ((stop - start + size, size, start) for size in _distances(keys)
             for start, stop in _stretches(keys, size)),
            key=lambda stretch: (stretch[0] - stretch[1], -stretch[1]), reverse=True,
        )  # fmt: skip
        taken = np.zeros(len(keys), bool)
        for length, size, start in stretches:
            place = start
            while place + 2 * size <= start + length:
                count = self._times(place, size, start + length, addresses, depth, taken)
                level = self._level(place, size, count) if count else None
                if level is None or (count - 1) * size - 1 < _LEAST_SAVED:
                    place += 1
                    continue
                strides = addresses[place + size : place + 2 * size]
                strides = strides - addresses[place : place + size]
                found = _Found(first=place, size=size, count=count, level=level, strides=strides)
                taken[place : found.end] = True
                place = found.end
                yield found

    def _times(
        self, place: int, size: int, stop: int, addresses: _Numbers, depth: _Numbers,
        taken: NDArray[np.bool_],
    ) -> int:  # fmt: skip
        """How often the ``size`` commands from ``place`` on come, up to ``stop``, in the same
        loops; 0 if it is only once."""
        around = depth[place + size]
        # In front of the first command of a loop one is outside, or may be inside.
        if not depth[place] <= around <= depth[place + 1] or taken[place : place + 2 * size].any():
            return 0
        if depth[place + 1 : place + size].min(initial=around) < around:
            return 0
        steps = addresses[place + size : place + 2 * size] - addresses[place : place + size]
        if np.abs(steps).max() >= _MOST_STRIDE:
            return 0
        count, last = 1, place
        while last + 2 * size <= stop:
            there = slice(last + size, last + 2 * size)
            if depth[last + 2 * size] != around or taken[there].any():
                break
            if (addresses[there] - addresses[last : last + size] != steps).any():
                break
            count, last = count + 1, last + size
        return count if count > 1 else 0

    def _level(self, place: int, size: int, count: int) -> int | None:
        """A counter for a loop there which none in it or around it has, or None."""
        end = place + size * count
        used = {
            self.commands[repeat].fields["level"]
            for repeat, first in self._loops.items()
            if place <= repeat < end or first <= place <= repeat
        }
        return next((level for level in range(self._levels) if level not in used), None)


def _distances(keys: _Numbers) -> list[int]:
    """How far commands are from the next ones that equal them."""
    order = np.argsort(keys, kind="stable")
    found: set[int] = set()
    for step in range(1, _TRIES + 1):
        same = keys[order[step:]] == keys[order[:-step]]
        found |= set((order[step:] - order[:-step])[same].tolist())
    return sorted(size for size in found if size <= min(_MOST_COMMANDS, len(keys) // 2))


def _stretches(keys: _Numbers, size: int) -> Iterator[tuple[int, int]]:
    """[start, stop): commands there equal those ``size`` places behind, and are at least so
    many."""
    equal = keys[:-size] == keys[size:]
    if np.count_nonzero(equal) < size:
        return
    same = np.zeros(len(equal) + 2, np.int8)
    same[1:-1] = equal
    (edges,) = (same[1:] != same[:-1]).nonzero()
    starts, stops = edges[::2], edges[1::2]
    wide = stops - starts >= size
    yield from zip(starts[wide].tolist(), stops[wide].tolist(), strict=True)
