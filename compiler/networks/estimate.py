"""How long the steps of a program take, by the compiler's estimate, with loops in steady state."""

from collections.abc import Iterable
from dataclasses import dataclass

from compiler.codegen.binary.command_bytes import Decoded
from compiler.codegen.cost import Command, Timeline
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, QUEUE_OPCODES, Opcode

__all__ = ["Times", "command_times"]

#: Iterations of a loop that are timed one by one; the last of them stand for all others.
_TIMED, _STEADY = 5, 2


@dataclass(frozen=True)
class Times:
    """For every command of a program, by its place.

    Members
    -------
    ends : the cycle at which it and all before it have finished; of a loop when all iterations have
    own : the cycle at which it has finished itself, the last time if it is in a loop; 0 of what
        goes to no queue
    """

    ends: list[int]
    own: list[int]

    def end_of(self, places: Iterable[int]) -> int:
        """When all of these have finished."""
        return max((self.own[place] for place in places), default=0)


class _Clock(Timeline):
    """A timeline that can let time pass in which the same happens again."""

    def tokens_left(self) -> dict[int, int]:
        """By semaphore: tokens given that nobody has taken."""
        return {
            semaphore: len(tokens) - self._taken.get(semaphore, 0)
            for semaphore, tokens in self._tokens.items()
        }

    def skip(self, rounds: int, pace: float, gained: dict[int, int]) -> None:
        """All that is under way is ``rounds`` of ``pace`` cycles later. Each of them gives by
        semaphore so many tokens more than it takes, or fewer: ``gained``."""
        cycles = round(pace * rounds)
        self.end += cycles
        self._dispatched += cycles
        for key in self._free:
            self._free[key] += cycles
        depth = self.config.command_queue_depth + 1
        for starts in self._starts.values():
            starts[:] = [start + cycles for start in starts[-depth:]]
        for semaphore, tokens in self._tokens.items():
            more = gained.get(semaphore, 0)
            if more > 0:
                last = tokens[-more:]
                tokens += [
                    token + round(pace * number)
                    for number in range(1, rounds + 1)
                    for token in last
                ]
                continue
            taken = self._taken.get(semaphore, 0) - more * rounds
            self._taken[semaphore] = taken
            for index in range(taken, len(tokens)):
                tokens[index] += cycles
        self._weights = {
            core: (start + cycles, pace, given)
            for core, (start, pace, given) in self._weights.items()
        }


class _Walk:
    def __init__(self, commands: Decoded, offset: int, config: AdaGPConfig) -> None:
        self.commands = commands
        self.clock = _Clock(config)
        self.ends, self.own = [0] * len(commands), [0] * len(commands)
        # Where a loop begins, its REPEATs; the one that goes furthest is the outermost.
        self.loops: dict[int, list[int]] = {}
        for place, fields in commands.of(Opcode.REPEAT):
            first = (fields["first"] - offset) // COMMAND_BYTES
            self.loops.setdefault(first, []).append(place)

    def run(self, first: int, last: int) -> None:
        """Commands [first, last), once."""
        place = first
        while place < last:
            around = [end for end in self.loops.get(place, ()) if end < last]
            if around:
                self._loop(place, max(around))
                place = max(around) + 1
                continue
            opcode, fields = self.commands[place]
            if opcode in QUEUE_OPCODES:
                self.clock.push(Command.decoded(opcode, fields))
                self.own[place] = self.clock.finished
            self.ends[place] = self.clock.end
            place += 1

    def _loop(self, first: int, repeat: int) -> None:
        count = self.commands[repeat][1]["count"]
        ends: list[int] = []
        before: dict[int, int] = {}
        for number in range(min(count, _TIMED)):
            if number == _TIMED - 1:
                before = self.clock.tokens_left()
            self.run(first, repeat)
            ends.append(self.clock.end)
        if count > _TIMED:
            pace = (ends[-1] - ends[-1 - _STEADY]) / _STEADY
            after = self.clock.tokens_left()
            gained = {which: number - before.get(which, 0) for which, number in after.items()}
            self.clock.skip(count - _TIMED, pace, gained)
            for place in range(first, repeat):
                self.own[place] += round(pace * (count - _TIMED))
        for place in range(first, repeat + 1):
            self.ends[place] = self.clock.end


def command_times(commands: Decoded, offset: int, config: AdaGPConfig) -> Times:
    """Of the commands of a program that lies at ``offset``.

    The first iterations of a loop are timed by :class:`~compiler.codegen.cost.Timeline`; each of
    the others is taken to last as long as the last of these.
    """
    walk = _Walk(commands, offset, config)
    walk.run(0, len(walk.commands))
    return Times(ends=walk.ends, own=walk.own)
