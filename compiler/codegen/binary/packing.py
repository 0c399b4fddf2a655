"""Whole commands to packed ones (:mod:`hw.isa.packing`)."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from cli.build_directory import build_root
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, HEADER, Opcode, decode, encode
from hw.isa.field import field_places
from hw.isa.packing import (
    LEADING,
    LINE_BYTES,
    PACKED,
    PACKED_CODE,
    SLOTS,
    WORD_BYTES,
    WORDS,
    targets,
)

__all__ = ["packed"]

#: A command that differs from its base in more words than these goes to another slot, so that the
#: base stays. Measured on VGG13, 32x32, 128 images, `max`: 2.8 MiB with 0, 2.7 with 1, 3.0 with 2.
_SIMILAR = 1
_HEADER = field_places(PACKED)
_BITS = 8 * WORD_BYTES


def _kernel(function: Callable[..., Any]) -> Any:
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(build_root() / "numba" / "packing")
    try:
        return numba.njit(cache=True)(function)
    finally:
        numba.config.CACHE_DIR = before


def packed(
    code: bytes, offset: int = 0, *, require_room: Callable[[int], None] | None = None
) -> bytes:
    """The commands of ``code``, a program at offset 0, which are whole, packed, as a program that
    lies at ``offset`` of the memory window; zeros fill its last line.

    ``require_room`` is called with its bytes when these are known, before there are places that
    may be none. There must be no ROWS, whose branches count whole commands.
    """
    words = np.frombuffer(code, "<u4").reshape(-1, WORDS)
    codes = words[:, 0] & 0xFF
    if (codes == Opcode.ROWS).any():
        raise ValueError("a program with ROWS is not packed")
    leading = np.flatnonzero(np.isin(codes, [int(opcode) for opcode in LEADING]))
    entries = np.zeros(len(words), np.bool_)
    leaders = [(n, code[n * COMMAND_BYTES : (n + 1) * COMMAND_BYTES]) for n in leading.tolist()]
    for _, command in leaders:
        entries[[target // COMMAND_BYTES for target in targets(command)]] = True
    # These have all words of places, whatever they are: so the lengths do not depend on them.
    always = np.zeros(len(words), np.uint16)
    for opcode, names in LEADING.items():
        always[codes == opcode] = _words_of(opcode, names)
    bases, slots, masks = _choose(words, entries, always)
    lengths = 1 + np.bitwise_count(masks).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    result = np.zeros(-(-total * WORD_BYTES // LINE_BYTES) * LINE_BYTES // WORD_BYTES, "<u4")
    if require_room is not None:
        require_room(result.nbytes)
    words = words.copy()
    for place, command in leaders:
        words[place] = _led(command, offset, begins)
    heads = np.zeros(total, np.bool_)
    heads[begins] = True
    fields = {"base": bases, "code": np.uint32(PACKED_CODE), "slot": slots, "words": masks}
    parts = (np.uint32(value) << np.uint32(_HEADER[name].position)
             for name, value in fields.items())  # fmt: skip
    result[begins] = sum(parts, np.zeros(len(words), np.uint32))
    follows = masks[:, None] >> np.arange(WORDS, dtype=np.uint16) & 1
    result[:total][~heads] = words[follows.astype(np.bool_)]
    return result.tobytes()


def _words_of(opcode: Opcode, names: tuple[str, ...]) -> int:
    """A bit for each word that has something of these fields."""
    mask = 0
    for name, place in field_places((*HEADER, *COMMANDS[opcode])).items():
        if name in names:
            last = place.position + place.mask.bit_length() - 1
            mask |= sum(1 << n for n in range(place.position // _BITS, last // _BITS + 1))
    return mask


def _led(command: bytes, offset: int, begins: NDArray[np.int64]) -> NDArray[np.uint32]:
    """A command that leads to others, with the places that they have now."""
    opcode, fields = decode(command)
    for name in LEADING[opcode]:
        number = fields[name] // COMMAND_BYTES
        fields[name] = offset + WORD_BYTES * int(begins[number])
    return np.frombuffer(encode(opcode, **fields), "<u4")


@_kernel
def _choose(words, entries, always):  # type: ignore[no-untyped-def]
    """Base, slot and mask of every command: the slot that is most like it, which it takes over if
    it is similar; otherwise it goes to the one that nobody has taken for the longest time."""
    count = len(words)
    bases, slots = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    masks = np.zeros(count, np.uint16)
    kept = np.zeros((SLOTS, WORDS), np.uint32)
    used = np.zeros(SLOTS, np.int64)
    filled = np.zeros(SLOTS, np.bool_)
    for number in range(count):
        if entries[number]:
            filled[:] = False
        base, least = 0, WORDS + 1
        for slot in range(SLOTS):
            if slot != 0 and not filled[slot]:
                continue
            different = 0
            for word in range(WORDS):
                if words[number, word] != kept[slot, word]:
                    different += 1
                    if different >= least:
                        break
            if different < least:
                base, least = slot, different
        bases[number] = base
        mask = always[number]
        for word in range(WORDS):
            if words[number, word] != kept[base, word]:
                mask |= np.uint16(1 << word)
        masks[number] = mask
        if always[number] != 0:
            continue
        slot = base
        if base == 0 or least > _SIMILAR:
            slot = 1
            for other in range(2, SLOTS):
                if used[other] < used[slot]:
                    slot = other
        slots[number] = slot
        kept[slot], used[slot], filled[slot] = words[number], number, True
    return bases, slots, masks
