"""Many commands to bytes and back: what :mod:`hw.isa.encoding` does with one, for all of a type at
once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.cost import Command, Fields
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, HEADER, Opcode, decode, encode
from hw.isa.field import field_places
from hw.isa.packing import LEADING, Placed, has_packed, unpack

__all__ = ["decode_commands", "decode_placed", "encode_commands", "moved"]

#: Bits of the numbers that a command is made of here.
_BITS = 64
_PLACES = {opcode: field_places((*HEADER, *COMMANDS[opcode])) for opcode in Opcode}
#: The first field, which is decoded by itself.
_OPCODE = "opcode"
_ATTRIBUTES = ("core", "wait", "signal")


def encode_commands(commands: Iterable[Command], offset: int = 0) -> bytes:
    """Bytes of a list of :class:`~compiler.codegen.cost.Command`, which will lie at ``offset`` of
    the memory window; where it begins loops, they are as at offset 0.

    Raises
    ------
    ValueError
        as :func:`hw.isa.encoding.encode`.
    """
    stream = list(moved(commands, offset))
    words = np.zeros((len(stream), COMMAND_BYTES * 8 // _BITS), np.uint64)
    alike: dict[tuple[Opcode, tuple[str, ...]], list[int]] = {}
    for place, command in enumerate(stream):
        alike.setdefault((Opcode(command.opcode), tuple(command.fields)), []).append(place)
    for (opcode, names), rows in alike.items():
        words[rows] = _encoded(opcode, names, [stream[row] for row in rows])
    return words.astype("<u8", copy=False).tobytes()


def _encoded(opcode: Opcode, names: tuple[str, ...], commands: list[Command]) -> NDArray[np.uint64]:
    """Commands of a type that have the same fields in the same order, a row for each."""
    # One of them is encoded by itself, which tells what is missing or unknown.
    _encode(commands[0])
    words = np.zeros((len(commands), COMMAND_BYTES * 8 // _BITS), np.uint64)
    table = np.array([[*command.fields.values()] for command in commands], np.int64)
    columns = dict(zip(names, table.reshape(len(commands), len(names)).T, strict=True))
    for name, place in _PLACES[opcode].items():
        if name == _OPCODE:
            values = np.full(len(commands), int(opcode), np.int64)
        elif name in _ATTRIBUTES:
            values = np.array([int(getattr(command, name)) for command in commands], np.int64)
        elif name not in columns:
            values = np.full(len(commands), place.default, np.int64)
        else:
            values = columns[name]
        wrong = (values < place.low) | (values > place.high)
        if place.default is not None:
            wrong &= values != place.default
        if wrong.any():
            _encode(commands[int(wrong.argmax())])
        index, shift = divmod(place.position, _BITS)
        bits = values.astype(np.uint64) & np.uint64(place.mask)
        words[:, index] |= bits << np.uint64(shift)
        if shift and place.mask >> (_BITS - shift):
            words[:, index + 1] |= bits >> np.uint64(_BITS - shift)
    return words


def _encode(command: Command) -> bytes:
    return encode(
        command.opcode, core=command.core, wait=command.wait, signal=command.signal,
        **command.fields,
    )  # fmt: skip


def decode_commands(data: bytes, offset: int = 0) -> list[tuple[Opcode, Fields]]:
    """(opcode, fields) of every command in ``data``, a program that lies at ``offset`` of the
    memory window. Where commands are packed, those that lead to others do so as if all were whole:
    each takes COMMAND_BYTES.

    Raises
    ------
    ValueError
        as :func:`hw.isa.encoding.decode` and :func:`hw.isa.packing.unpack`.
    """
    if not has_packed(data):
        return _decode_whole(data)
    return decode_placed(unpack(data, offset), offset)


def decode_placed(placed: Sequence[Placed], offset: int = 0) -> list[tuple[Opcode, Fields]]:
    """The same of commands that have been unpacked."""
    commands = _decode_whole(b"".join(one.command for one in placed))
    numbers = {offset + one.begin: offset + COMMAND_BYTES * n for n, one in enumerate(placed)}
    for opcode, fields in commands:
        for name in LEADING.get(opcode, ()):
            fields[name] = numbers.get(fields[name], fields[name])
    return commands


def _decode_whole(data: bytes) -> list[tuple[Opcode, Fields]]:
    whole = len(data) // COMMAND_BYTES * COMMAND_BYTES
    words = np.frombuffer(data, "<u8", whole * 8 // _BITS).reshape(-1, COMMAND_BYTES * 8 // _BITS)
    codes = words[:, 0].astype(np.int64) & 0xFF
    unknown = ~np.isin(codes, [int(opcode) for opcode in Opcode])
    for place in (*np.flatnonzero(unknown)[:1], *([whole // COMMAND_BYTES] * (whole < len(data)))):
        decode(data[int(place) * COMMAND_BYTES :][:COMMAND_BYTES])
    result: list[tuple[Opcode, Fields]] = [(Opcode.HALT, {})] * len(codes)
    for code in np.unique(codes):
        rows, opcode = np.flatnonzero(codes == code), Opcode(int(code))
        names = [name for name in _PLACES[opcode] if name != _OPCODE]
        columns = (_decoded(words[rows], opcode, name) for name in names)
        for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            result[row] = opcode, dict(zip(names, values, strict=True))
    return result


def _decoded(words: NDArray[np.uint64], opcode: Opcode, name: str) -> list[int]:
    """A field of commands of a type."""
    place = _PLACES[opcode][name]
    index, shift = divmod(place.position, _BITS)
    values = words[:, index] >> np.uint64(shift)
    if shift and place.mask >> (_BITS - shift):
        values |= words[:, index + 1] << np.uint64(_BITS - shift)
    numbers = (values & np.uint64(place.mask)).astype(np.int64)
    found: list[int] = (numbers - ((numbers & place.sign) << 1)).tolist()
    return found


def moved(commands: Iterable[Command], offset: int) -> Iterator[Command]:
    """The commands of a program as they are if it lies ``offset`` bytes further behind."""
    for command in commands:
        if command.opcode in (Opcode.REPEAT, Opcode.ROWS) and "first" in command.fields:
            fields = command.fields | {"first": command.fields["first"] + offset}
            command = replace(command, fields=fields)
        yield command
