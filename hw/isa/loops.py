"""Loops of commands: the fields of REPEAT, those of LOAD and STORE that follow it, and what it does
to both."""

from collections.abc import Mapping

from .field import Field

__all__ = ["COMMAND_BYTES", "LOOP_LEVELS", "LOOP_STRIDES", "REPEAT", "LoopCounters", "stride_name"]

COMMAND_BYTES = 64

#: Loops that may be inside each other; each has a counter in the sequencer.
LOOP_LEVELS = 4


def stride_name(level: int) -> str:
    """Name of the field that belongs to the counter of ``level``."""
    return f"loop{level}_stride"


#: Fields behind the header of REPEAT, in order from the least significant bit.
REPEAT = (
    Field("level", (LOOP_LEVELS - 1).bit_length(), "counter of this loop"),
    Field("count", 32, "iterations in all, the one before this command included", minimum=1),
    Field(
        "first",
        32,
        "offset in the memory window of the first command of the loop; a command of the program",
    ),
)

#: Last fields of LOAD and STORE. The sequencer adds them to the address; no engine sees them.
LOOP_STRIDES = tuple(
    Field(
        stride_name(level),
        32,
        f"bytes dram_address moves per step of the counter of level {level}, modulo 2**32; "
        "multiple of the granule",
        signed=True,
        default=0,
    )
    for level in range(LOOP_LEVELS)
)


class LoopCounters:
    """What REPEAT does to the counters, and these to the addresses of LOAD and STORE.

    ``values`` are the counters, all 0 at first.
    """

    def __init__(self) -> None:
        self.values = [0] * LOOP_LEVELS

    def repeat(self, fields: Mapping[str, int]) -> bool:
        """Execute a REPEAT; whether the stream goes on at ``first``, not behind the command."""
        level = fields["level"]
        again = self.values[level] + 1 < fields["count"]
        self.values[level] = self.values[level] + 1 if again else 0
        return again

    def address(self, fields: Mapping[str, int]) -> int:
        """The ``dram_address`` that a LOAD or STORE has now."""
        steps = (value * fields[stride_name(level)] for level, value in enumerate(self.values))
        return (fields["dram_address"] + sum(steps)) % (1 << 32)
