"""Programs with ROWS: lists of rows that VECTOR fills, a branch by how many there are, and copies
of the rows that are kept."""

import random
from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import format_by_name
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.rows import RowAction

from .faulty_programs import HALT, dma, vector

__all__ = ["RowProgram", "row_program"]

#: Bytes for the program, in front of the data.
_PROGRAM_BYTES = 1 << 15
#: Rows that are copied more than are kept, at most.
_MORE = 2
_FLAGS, _ROW = 1 << 0, 1 << 1


@dataclass(frozen=True, kw_only=True)
class RowProgram:
    """A program at offset 0 of the memory window.

    Members
    -------
    image, expected : the memory window before the run and after it
    kept : of each list whether each row is kept
    """

    config: AdaGPConfig
    commands: list
    image: bytes
    expected: bytes
    kept: list

    @property
    def program(self) -> bytes:
        """The encoded commands."""
        return b"".join(self.commands)


def _rows(action, *, first=0, **fields):
    return encode(Opcode.ROWS, action=action, first=COMMAND_BYTES * first, level=3, **fields)


def _list(config, place, rows, data, out, flags):
    """Commands from number ``place`` on: a list of ``rows`` rows by the words at ``flags``, copies
    of the words at ``data`` that it names to ``out``."""
    size = config.cores[0].word_bytes
    stream = [
        dma(Opcode.LOAD, config, words=rows, dram_address=flags, signal=_FLAGS),
        _rows(RowAction.BEGIN),
        vector(config, steps=rows, wait=_FLAGS),
        _rows(RowAction.BRANCH, first=place + 4),
    ]
    copies = [min(rows, kept + _MORE) for kept in range(rows + 1)]
    begin = place + len(stream) + rows + 1
    starts = [begin + sum(3 * n + 1 for n in copies[:kept]) for kept in range(rows + 1)]
    end = begin + sum(3 * n + 1 for n in copies)
    stream += [_rows(RowAction.JOIN, first=start) for start in starts]
    for count in copies:
        for number in range(count):
            word = {"words": 1, "buffer_address": rows + number}
            stream += [
                _rows(RowAction.PICK, position=number),
                dma(Opcode.LOAD, config, dram_address=data, loop3_stride=size, signal=_ROW, **word),
                dma(Opcode.STORE, config, dram_address=out + number * size, wait=_ROW, **word),
            ]
        stream.append(_rows(RowAction.JOIN, first=end))
    assert place + len(stream) == end
    return stream


def row_program(config: AdaGPConfig, seed: int, *, lists: int = 4) -> RowProgram:
    """``lists`` lists, one after the other, of rows of which none, some and all are kept."""
    rng, fmt = random.Random(seed), format_by_name(config.operand_format)
    core = config.cores[0]
    size, dtype = core.word_bytes, np.dtype(f"<u{fmt.width // 8}")
    most = min(config.row_list_depth, 9)
    # What says that a row is kept: numbers above zero and NaN, in the first lane alone.
    keep = [*map(int, encode_number(fmt, np.array([1.0, 3.5, 2.0**-6]))), fmt.infinity, fmt.nan]
    drop = [0, fmt.sign_bit, *map(int, encode_number(fmt, np.array([-1.0, -(2.0**-6)])))]
    image = bytearray(rng.randbytes(_PROGRAM_BYTES + 3 * lists * most * size))
    changes, commands, lists_kept = [], [], []
    for number in range(lists):
        rows = rng.randint(1, most)
        kept = [rng.random() < number / (lists - 1) for _ in range(rows)]
        lists_kept.append(kept)
        flags, data, out = (_PROGRAM_BYTES + (3 * number + k) * most * size for k in range(3))
        words = np.frombuffer(rng.randbytes(rows * size), dtype).reshape(rows, -1).copy()
        words[:, 0] = [rng.choice(keep if own else drop) for own in kept]
        image[flags : flags + rows * size] = words.tobytes()
        commands += _list(config, len(commands), rows, data, out, flags)
        listed = [row for row in range(rows) if kept[row]]
        dropped = max((row for row in range(rows) if not kept[row]), default=0)
        copied = (listed + [dropped] * _MORE)[: min(rows, len(listed) + _MORE)]
        for place, row in enumerate(copied):
            source = slice(data + row * size, data + (row + 1) * size)
            changes.append((out + place * size, bytes(image[source])))
    commands.append(HALT)
    program = b"".join(commands)
    if len(program) > _PROGRAM_BYTES:
        raise ValueError(f"the program has {len(commands)} commands")
    image[: len(program)] = program
    expected = bytearray(image)
    for place, content in changes:
        expected[place : place + len(content)] = content
    return RowProgram(
        config=config,
        commands=commands,
        image=bytes(image),
        expected=bytes(expected),
        kept=lists_kept,
    )
