"""The order in which the commands of a program are dispatched."""

from collections.abc import Iterator, Mapping, Sequence

from .encoding import COMMAND_BYTES, Opcode
from .loops import LoopCounters

__all__ = ["dispatched"]


def dispatched(
    commands: Sequence[tuple[Opcode, Mapping[str, int]]],
    offset: int = 0,
    *,
    most: int | None = None,
) -> Iterator[tuple[int, LoopCounters]]:
    """Numbers of the commands of a program, REPEAT included, in the order in which they come, and
    the counters as they are then.

    Parameters
    ----------
    commands : (opcode, fields) each; without BATCH, which goes where the registers say
    offset : of the first one in the memory window, from which REPEAT counts
    most : iterations of a loop, at most; None for all
    """
    counters, place = LoopCounters(), 0
    while place < len(commands):
        yield place, counters
        opcode, fields = commands[place]
        place += 1
        if opcode is Opcode.REPEAT:
            if most is not None:
                fields = {**fields, "count": min(fields["count"], most)}
            if counters.repeat(fields):
                place = (fields["first"] - offset) // COMMAND_BYTES
