"""Packing of commands: what comes out is what went in, in fewer bytes."""

import random

import pytest

from compiler.codegen.binary.command_bytes import decode_commands
from compiler.codegen.binary.packing import packed
from compiler.errors import CompileError
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.packing import LEADING, LINE_BYTES, unpack
from hw.isa.rows import RowAction

OFFSET = 0x4000
PLACES = LEADING[Opcode.BATCH]


def load(rng, **fields):
    size = rng.choice((8, 16, 24))
    values = {"buffer_address": rng.randrange(512), "dram_address": 8 * rng.randrange(1 << 20)}
    return encode(Opcode.LOAD, run_bytes=size, row_bytes=size, **values, **fields)


def random_stream(rng, count):
    """Whole commands, with loops inside each other and a BATCH; they lie at 0."""
    stream, first = [load(rng)], 0
    while len(stream) < count:
        kind = rng.random()
        if kind < 0.1:
            first = rng.randrange(first, len(stream))
            place = COMMAND_BYTES * first
            level, times = rng.randrange(4), rng.randrange(1, 9)
            stream.append(encode(Opcode.REPEAT, level=level, count=times, first=place))
        elif kind < 0.2:
            stream.append(rng.choice(stream))
        else:
            stream.append(load(rng, wait=rng.choice((0, 1)), signal=rng.choice((0, 0, 2))))
    targets = {name: COMMAND_BYTES * rng.randrange(len(stream)) for name in PLACES}
    return [*stream, encode(Opcode.BATCH, first=0, **targets), encode(Opcode.HALT)]


def test_what_is_unpacked_is_what_was_packed(seed):
    rng = random.Random(seed)
    for count in (1, 2, 40, 300):
        stream = random_stream(rng, count)
        code = packed(b"".join(stream), OFFSET)
        assert len(code) % LINE_BYTES == 0 and len(code) < COMMAND_BYTES * (len(stream) + 1)
        # The functional model's rule for slots is checked by unpack.
        placed = unpack(code, OFFSET)
        assert len(placed) == len(stream)
        ends = [0, *(one.end for one in placed)]
        assert [one.begin for one in placed] == ends[:-1]
        for number, (one, whole) in enumerate(zip(placed, stream, strict=True)):
            opcode, fields = decode(whole)
            for name in LEADING.get(opcode, ()):
                target = fields[name] // COMMAND_BYTES
                fields[name] = OFFSET + placed[target].begin
            assert decode(one.command) == (opcode, fields), f"command {number}"
        behind = [decode(one) for one in stream]
        for opcode, fields in behind:
            fields.update({name: OFFSET + fields[name] for name in LEADING.get(opcode, ())})
        assert decode_commands(code, OFFSET) == behind


def test_room_is_asked_for_before_there_are_places(seed):
    """At the end of 4 GiB: the message is about sizes, not about a field of a command."""
    code = b"".join(random_stream(random.Random(seed), 40))
    asked = []
    size = len(packed(code, require_room=asked.append))
    assert asked == [size]

    def refuse(size):
        raise CompileError(f"{size} bytes")

    with pytest.raises(CompileError, match=f"^{size} bytes$"):
        packed(code, 1 << 32, require_room=refuse)


def test_what_is_alike_takes_few_words(seed):
    """Commands that differ in one field take a word for it, or two, and one more."""
    rng = random.Random(seed)
    first = decode(load(rng, signal=1))[1]
    stream = [encode(Opcode.LOAD, **first | {"dram_address": 64 * n}) for n in range(1000)]
    assert len(packed(b"".join(stream))) <= 1000 * 12 + COMMAND_BYTES + LINE_BYTES
    # Sixteen kinds in turn: none of the slots is used again before it is lost; fifteen have one.
    many = [encode(Opcode.LOAD, **first | {"run_bytes": 8 * n, "row_bytes": 8 * n,
                                           "run_count": n, "run_stride": 512 * n, "signal": 1 << n})
            for n in range(1, 16)]  # fmt: skip
    assert len(packed(b"".join(many * 40))) < 40 * 15 * 9


def test_rows_are_not_packed():
    rows = encode(Opcode.ROWS, action=RowAction.BEGIN, level=3)
    with pytest.raises(ValueError, match="a program with ROWS is not packed"):
        packed(rows + encode(Opcode.HALT))
