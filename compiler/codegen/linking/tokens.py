"""Tokens of the semaphore between two queues: as many as it can hold."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.codegen.cost import Command, bits, executed
from compiler.errors import CompileError
from hw.isa.encoding import Opcode

from .entries import Entry

__all__ = ["MAX_TOKENS", "Token", "add_token", "fits", "merge_tokens"]

#: Largest value of a semaphore.
MAX_TOKENS = 15
#: The second command waits for the first.
Token = tuple[Entry, Entry]
#: (core, opcode).
_Queue = tuple[int, Opcode]


def add_token(tokens: list[Token], first: Entry, second: Entry) -> None:
    """``second``, the last command of its queue so far, waits for ``first``."""
    if tokens and tokens[-1][1] is second:
        # It can take one token only, and the later one says more.
        first = max(first, tokens.pop()[0], key=lambda entry: entry.number)
    tokens.append((first, second))


def merge_tokens(tokens: list[Token], queue: Sequence[Entry], depth: int) -> None:
    """Make tokens fewer where a semaphore may come to hold more than it can: of two commands that
    wait, the first waits for what the second has to wait for.

    While a command waits at the head of its queue, commands can be dispatched until the queue is
    full and one more of its kind comes.

    Parameters
    ----------
    tokens : of a pair of queues, in order; changed
    queue : commands of the queue that waits
    depth : commands that it holds

    Raises
    ------
    CompileError
        if they cannot become fewer.
    """
    first = end = 0
    while first < len(tokens):
        waiting = tokens[first][1]
        stop = waiting.number + depth + 1
        limit = queue[stop].position if stop < len(queue) else None
        # Limits and tokens are in order: those that may be given before the last limit still are.
        end = max(end, first)
        while (
            end < len(tokens)
            and end - first <= MAX_TOKENS
            and (limit is None or tokens[end][0].position < limit)
        ):
            end += 1
        if end - first <= MAX_TOKENS:
            first += 1
            continue
        # A command may wait for what ends before it, if all run one by one.
        for place in range(end - 2, first - 1, -1):
            source, target = tokens[place + 1][0], tokens[place][1]
            if (source.user or source).position < target.position:
                tokens[place : place + 2] = [(source, target)]
                end = first
                break
        else:
            names = [entry.queue[1].name for entry in tokens[0]]
            raise CompileError(
                f"more than {MAX_TOKENS} tokens may wait between {names[0]} and {names[1]} at "
                f"command {waiting.position}, more than a semaphore holds"
            )


def fits(commands: Sequence[Command], depth: int) -> bool:
    """Whether every token of a program with loops is given before the command that takes it, and no
    semaphore comes to hold more than it can while commands are dispatched.

    Of a loop so many iterations are looked at that those left out see the same as their neighbours.
    """
    queues: dict[_Queue, array[int]] = {}
    given: dict[int, array[int]] = {}
    taken: dict[int, list[_Waits]] = {}
    limit = depth + 2
    for place, command in enumerate(executed(commands, most=limit)):
        key = (command.core, command.opcode)
        queue = queues.setdefault(key, array("q"))
        for number in bits(command.wait):
            waits = taken.setdefault(number, [])
            # Pairs of queues that share a semaphore do so one after the other.
            if not waits or waits[-1].queue != key:
                waits.append(_Waits(key))
            waits[-1].places.append(place)
            waits[-1].indices.append(len(queue))
        for number in bits(command.signal):
            given.setdefault(number, array("q")).append(place)
        queue.append(place)
    for number, signals in given.items():
        waits = taken.pop(number, [])
        if sum(len(own.places) for own in waits) != len(signals):
            return False
        for own in waits:
            count = len(own.places)
            if not _fits(own, signals[:count], queues[own.queue], depth):
                return False
            signals = signals[count:]
    return not taken


@dataclass
class _Waits:
    """Commands of a queue that wait for a semaphore: their places among all that are executed, and
    their numbers in the queue. There may be millions."""

    queue: _Queue
    places: array[int] = field(default_factory=lambda: array("q"))
    indices: array[int] = field(default_factory=lambda: array("q"))


def _fits(waits: _Waits, signals: array[int], queue: array[int], depth: int) -> bool:
    """The same for a pair of queues: places of commands in order, of ``queue`` that waits."""
    end = 0
    for count, (place, index) in enumerate(zip(waits.places, waits.indices, strict=True)):
        if signals[count] >= place:
            return False
        stop = index + depth + 1
        last = queue[stop] if stop < len(queue) else None
        while end < len(signals) and (last is None or signals[end] < last):
            end += 1
        if end - count > MAX_TOKENS:
            return False
    return True
