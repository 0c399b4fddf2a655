"""The order in which the commands of a program are dispatched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .encoding import COMMAND_BYTES, Opcode
from .loops import LoopCounters
from .rows import RowAction, RowList

__all__ = ["dispatched"]


def dispatched(
    commands: Sequence[tuple[Opcode, Mapping[str, int]]],
    offset: int = 0,
    *,
    most: int | None = None,
    lists: Iterable[Sequence[bool]] = (),
) -> Iterator[tuple[int, LoopCounters]]:
    """Numbers of the commands of a program, REPEAT and ROWS included, in the order in which they
    come, and the counters as they are then.

    Parameters
    ----------
    commands : (opcode, fields) each; without BATCH, which goes where the registers say
    offset : of the first one in the memory window, from which REPEAT counts
    most : iterations of a loop, at most; None for all
    lists : of each list, in order, whether each of its rows is kept
    """
    counters, place = LoopCounters(), 0
    rows, given = RowList(), iter(lists)
    while place < len(commands):
        yield place, counters
        opcode, fields = commands[place]
        place += 1
        if opcode is Opcode.REPEAT:
            if most is not None:
                fields = {**fields, "count": min(fields["count"], most)}
            if counters.repeat(fields):
                place = (fields["first"] - offset) // COMMAND_BYTES
        elif opcode is Opcode.ROWS:
            target = rows.execute(fields, counters)
            if fields["action"] == RowAction.BEGIN:
                rows.fill(next(given))
            if target is not None:
                place = (target - offset) // COMMAND_BYTES
