"""Many commands at once are encoded and decoded as one by one."""

import pytest

from compiler.codegen.binary import command_bytes
from compiler.codegen.binary.command_bytes import (
    Decoded,
    decode_commands,
    encode_commands,
    moved,
)
from compiler.codegen.binary.packing import packed
from compiler.codegen.cost import Command
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, Opcode, decode, encode


def random_command(rng):
    """Of any type; fields are left out, at the ends of their range, or anywhere in it."""
    opcode = Opcode(rng.choice([int(opcode) for opcode in Opcode]))
    fields = {}
    for field in COMMANDS[opcode]:
        low, high = field.range
        if field.default is None or rng.random() < 0.6:
            values = low, high, int(rng.integers(low, high + 1))
            fields[field.name] = values[int(rng.integers(3))]
    core, *masks = int(rng.integers(2)), *(int(rng.integers(1 << 32)) for _ in range(2))
    return Command(opcode, core, *masks, fields)


def test_as_one_by_one(rng):
    commands = [random_command(rng) for _ in range(300)]
    expected = [
        encode(c.opcode, core=c.core, wait=c.wait, signal=c.signal, **c.fields)
        for c in moved(commands, 0)
    ]
    data = encode_commands(commands)
    places = range(0, len(data), COMMAND_BYTES)
    for command, place, one in zip(commands, places, expected, strict=True):
        assert data[place : place + COMMAND_BYTES] == one, command
    assert decode_commands(data) == [decode(one) for one in expected]
    assert encode_commands([]) == b"" and decode_commands(b"") == []


def test_loops_move():
    loop = Command(Opcode.REPEAT, fields={"level": 1, "count": 3, "first": 64})
    data = encode_commands([Command(Opcode.HALT), loop], 640)
    assert [fields.get("first") for _, fields in decode_commands(data)] == [None, 704]
    assert loop.fields["first"] == 64


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command(Opcode.REPEAT, fields={"level": 9, "count": 1, "first": 0}), "level must be from"),
        (Command(Opcode.REPEAT, fields={"level": 1, "first": 0}), "needs field count"),
        (Command(Opcode.BATCH, fields={"second": 0}), "field"),
        (Command(Opcode.HALT, core=2), "core must be from 0 to 1, not 2"),
    ],
)
def test_wrong_commands(command, message):
    with pytest.raises(ValueError, match=message):
        encode_commands([Command(Opcode.HALT), command])


def test_wrong_bytes():
    with pytest.raises(ValueError, match="undefined command 0x00"):
        decode_commands(encode_commands([Command(Opcode.HALT)]) + bytes(COMMAND_BYTES))
    with pytest.raises(ValueError, match="not 6"):
        decode_commands(encode_commands([Command(Opcode.HALT)]) + bytes(6))


def test_a_long_program_is_decoded_in_parts(monkeypatch):
    """Of 100 commands, 8 at a time, with no more than 4 times as many in memory."""
    monkeypatch.setattr(command_bytes, "_BLOCK", 8)
    loop = Command(Opcode.REPEAT, fields={"level": 0, "count": 2, "first": 64})
    run = {"buffer_address": 0, "run_bytes": 512, "row_bytes": 8}
    loads = [Command(Opcode.LOAD, fields={**run, "dram_address": 64 * n}) for n in range(99)]
    stream = [*loads, loop]
    data = encode_commands(stream)
    whole = [decode(data[place : place + 64]) for place in range(0, len(data), 64)]
    for code in (data, packed(data)):
        commands = Decoded(code)
        assert len(commands) == 100 and list(commands) == whole
        for place in (0, 7, 8, 99, -1, 50, 3):
            assert commands[place] == whole[place]
        assert commands[5:21:3] == whole[5:21:3] and commands[-2:] == whole[-2:]
        assert commands.of(Opcode.REPEAT) == [(99, whole[99][1])]
        assert commands.codes.tolist() == [opcode for opcode, _ in whole]
        assert sum(map(len, commands._blocks.values())) <= 32
        with pytest.raises(IndexError):
            commands[100]
