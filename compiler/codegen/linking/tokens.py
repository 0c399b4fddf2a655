"""Tokens of the semaphore between two queues: as many as it can hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.cost import Command, bits
from compiler.errors import CompileError
from hw.isa.encoding import Opcode
from hw.isa.execution import dispatched

from .entries import Entry

__all__ = ["MAX_TOKENS", "Token", "add_token", "fits", "merge_tokens"]

#: Largest value of a semaphore.
MAX_TOKENS = 15
#: The second command waits for the first.
Token = tuple[Entry, Entry]
#: (core, opcode).
_Queue = tuple[int, Opcode]
#: Of commands among all that are executed, in order.
_Places = NDArray[np.int64]


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
    stream = [(command.opcode, command.fields) for command in commands]
    order = np.fromiter((place for place, _ in dispatched(stream, most=depth + 2)), np.int64)
    names: dict[_Queue, int] = {}
    queues = np.array(
        [names.setdefault((c.core, c.opcode), len(names)) for c in commands], np.int64
    )[order]
    given, taken = (
        np.array(masks, np.int64)[order]
        for masks in ([c.signal for c in commands], [c.wait for c in commands])
    )
    members = [np.flatnonzero(queues == number) for number in range(len(names))]
    used = np.bitwise_or.reduce(given | taken, initial=0)
    for number in bits(int(used)):
        signals, waits = (np.flatnonzero(masks >> number & 1) for masks in (given, taken))
        if len(signals) != len(waits):
            return False
        # Pairs of queues that share a semaphore do so one after the other.
        edges = np.flatnonzero(np.diff(queues[waits])) + 1
        for own, some in zip(np.split(waits, edges), np.split(signals, edges), strict=True):
            if len(own) and not _fits(own, some, members[queues[own[0]]], depth):
                return False
    return True


def _fits(waits: _Places, signals: _Places, queue: _Places, depth: int) -> bool:
    """The same for a pair of queues: places of commands in order, of ``queue`` that waits."""
    if (signals >= waits).any():
        return False
    # While a command waits, so many that follow in its queue are dispatched, and what is before.
    stops = np.searchsorted(queue, waits) + depth + 1
    open_end = stops >= len(queue)
    lasts = queue[np.where(open_end, 0, stops)]
    ends = np.where(open_end, len(signals), np.searchsorted(signals, lasts))
    return bool((ends - np.arange(len(waits)) <= MAX_TOKENS).all())
