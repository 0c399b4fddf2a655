"""Packed commands: how a command is written as what differs from one before it.

A program in DRAM is a sequence of 32-bit words. A command lies there whole, as
:data:`~hw.isa.loops.COMMAND_BYTES` bytes, or packed: a word with the fields of :data:`PACKED`, and
behind it only those words of the command that differ from its ``base``. The machine keeps
:data:`SLOTS` commands for that. Slot 0 is a command of zeros; the others are zeros, too, until a
packed command is left in them, in a run or behind a BATCH.

What a slot holds depends on the commands that came before. So a command that a REPEAT, BATCH or
ROWS may go to, and those behind it, take only slots that have been filled from there on; then
nothing depends on the way on which the machine came (:func:`unpack` refuses other programs).
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from .encoding import COMMAND_BYTES, Opcode, decode
from .field import Field, field_places
from .rows import RowAction

__all__ = [
    "LEADING",
    "LINE_BYTES",
    "PACKED",
    "PACKED_CODE",
    "PACKED_SHIFT",
    "SLOTS",
    "WORDS",
    "WORD_BYTES",
    "Placed",
    "has_packed",
    "is_packed",
    "targets",
    "unpack",
]

WORD_BYTES = 4
#: Words of a command.
WORDS = COMMAND_BYTES // WORD_BYTES
#: Bits of the number of a slot.
_SLOT_WIDTH = 6
#: Commands that are kept, the one of zeros included.
SLOTS = 1 << _SLOT_WIDTH
#: What is read of a program at a time; it begins at a multiple of that, and has whole lines.
LINE_BYTES = 64
#: What the bits from :data:`PACKED_SHIFT` on are in the first byte of a packed command; those of
#: opcodes are 0.
PACKED_CODE = 2
PACKED_SHIFT = _SLOT_WIDTH

#: Fields of the first word of a packed command, in order from the least significant bit.
PACKED = (
    Field("base", _SLOT_WIDTH, "slot with the command that it is made of; 0: zeros"),
    Field("code", 8 - PACKED_SHIFT, f"{PACKED_CODE}: a packed command"),
    Field("slot", _SLOT_WIDTH, "slot that it is left in; 0: none"),
    Field(
        "words",
        WORDS,
        "bit i: word i of the command follows; the others are those of the base",
        align=16,
    ),
)
_PLACES = field_places(PACKED)
#: Commands that may go elsewhere, and the fields that say where to.
LEADING = {
    Opcode.REPEAT: ("first",),
    Opcode.BATCH: ("bp_even", "bp_odd", "gp_even", "gp_odd"),
    Opcode.ROWS: ("first",),
}


class Placed(NamedTuple):
    """A command and where it lies: offset of its first byte, and of the one behind it, from the
    program's begin; ``command``: its COMMAND_BYTES bytes; ``words``: as in :data:`PACKED`, None for
    one that is whole."""

    begin: int
    end: int
    command: bytes
    words: int | None = None


def is_packed(first: int) -> bool:
    """Whether the first byte of a command is that of a packed one."""
    return first >> PACKED_SHIFT == PACKED_CODE


def has_packed(program: bytes) -> bool:
    """Whether any command of a program is packed."""
    # Up to the first of them all are whole.
    return any(map(is_packed, program[::COMMAND_BYTES]))


def targets(command: bytes) -> Iterator[int]:
    """Offsets in the memory window to which a command may go; those of a BRANCH without the steps
    that its list adds."""
    if command[0] not in LEADING:
        return
    opcode, fields = decode(command)
    if opcode is not Opcode.ROWS or fields["action"] in (RowAction.BRANCH, RowAction.JOIN):
        yield from (fields[name] for name in LEADING[opcode])


def unpack(program: bytes, offset: int = 0) -> list[Placed]:
    """The commands of a program that lies at ``offset`` of the memory window, one behind the other,
    without the zeros that fill its last line.

    Raises
    ------
    ValueError
        naming the place, for a command that is not whole, and for one that takes a slot that has
        not been filled since the last command that another one goes to.
    """
    placed: list[Placed] = []
    contents = [bytes(COMMAND_BYTES)] * SLOTS
    filled = [0] * SLOTS
    #: Of commands that take a slot: their number, and that of the command that filled it.
    taken: list[tuple[int, int]] = []
    entries = {0}
    place = 0
    while place < len(program):
        begin, number = place, len(placed)
        if not is_packed(program[begin]):
            command, words = program[begin : begin + COMMAND_BYTES], None
            place += COMMAND_BYTES
            if not command[0] and not any(program[begin:]):
                break
        else:
            first = int.from_bytes(program[begin : begin + WORD_BYTES], "little")
            base, slot, words = (
                first >> _PLACES[name].position & _PLACES[name].mask
                for name in ("base", "slot", "words")
            )
            place += WORD_BYTES
            made = bytearray(contents[base])
            for number_of_word in range(WORDS):
                if words >> number_of_word & 1:
                    low = WORD_BYTES * number_of_word
                    made[low : low + WORD_BYTES] = program[place : place + WORD_BYTES]
                    place += WORD_BYTES
            command = bytes(made)
            if base:
                taken.append((number, filled[base]))
            if slot:
                contents[slot], filled[slot] = command, number
        if place > len(program):
            raise ValueError(f"the command at {offset + begin:#x} is not whole")
        placed.append(Placed(begin, place, command, words))
        if command[0] in LEADING:
            entries.update(target - offset for target in targets(command))
    numbers = [number for number, one in enumerate(placed) if one.begin in entries]
    for number, source in taken:
        if source < numbers[bisect_right(numbers, number) - 1]:
            raise ValueError(
                f"the command at {offset + placed[number].begin:#x} takes a slot that is not "
                "filled on every way to it"
            )
    return placed
