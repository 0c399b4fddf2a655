"""Tokens of the semaphore between two queues: as many as it can hold."""

from collections.abc import Sequence
from itertools import groupby

from compiler.codegen.cost import Command, bits, executed
from compiler.errors import CompileError
from hw.isa.encoding import Opcode

from .entries import Entry

__all__ = ["MAX_TOKENS", "Token", "add_token", "fits", "merge_tokens"]

#: Largest value of a semaphore.
MAX_TOKENS = 15
#: The second command waits for the first.
Token = tuple[Entry, Entry]


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
    queues: dict[tuple[int, Opcode], list[int]] = {}
    given: dict[int, list[int]] = {}
    taken: dict[int, list[tuple[int, tuple[int, Opcode], int]]] = {}
    limit = depth + 2
    for place, command in enumerate(executed(commands, most=limit)):
        key = (command.core, command.opcode)
        queue = queues.setdefault(key, [])
        for number in bits(command.wait):
            taken.setdefault(number, []).append((place, key, len(queue)))
        for number in bits(command.signal):
            given.setdefault(number, []).append(place)
        queue.append(place)
    for number, signals in given.items():
        waits = taken.pop(number, [])
        if len(waits) != len(signals):
            return False
        # Pairs of queues that share a semaphore do so one after the other.
        for _, group in groupby(waits, key=lambda wait: wait[1]):
            own = list(group)
            if not _fits(own, signals[: len(own)], queues[own[0][1]], depth):
                return False
            signals = signals[len(own) :]
    return not taken


def _fits(
    waits: Sequence[tuple[int, tuple[int, Opcode], int]],
    signals: Sequence[int],
    queue: Sequence[int],
    depth: int,
) -> bool:
    """The same for a pair of queues: places of commands in order, of ``queue`` that waits."""
    end = 0
    for count, (place, _, index) in enumerate(waits):
        if signals[count] >= place:
            return False
        stop = index + depth + 1
        last = queue[stop] if stop < len(queue) else None
        while end < len(signals) and (last is None or signals[end] < last):
            end += 1
        if end - count > MAX_TOKENS:
            return False
    return True
