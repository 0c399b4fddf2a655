"""Many commands at once are encoded and decoded as one by one."""

import pytest

from compiler.codegen.binary.command_bytes import decode_commands, encode_commands, moved
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
