"""Many commands to bytes and back: what :mod:`hw.isa.encoding` does with one, for all of a type at
once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import overload

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.cost import Command, Fields
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, HEADER, Opcode, decode, encode
from hw.isa.field import field_places
from hw.isa.packing import LEADING, Placed, has_packed, unpack

__all__ = ["Decoded", "DecodedCommand", "decode_commands", "encode_commands", "moved"]

#: Opcode and fields.
DecodedCommand = tuple[Opcode, Fields]

#: Bits of the numbers that a command is made of here.
_BITS = 64
_PLACES = {opcode: field_places((*HEADER, *COMMANDS[opcode])) for opcode in Opcode}
#: The first field, which is decoded by itself.
_OPCODE = "opcode"
_ATTRIBUTES = ("core", "wait", "signal")
#: Commands of a block, which are decoded together; blocks that are kept, since a loop may begin in
#: one before.
_BLOCK, _KEPT = 1 << 13, 4


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
        alike.setdefault((command.opcode, tuple(command.fields)), []).append(place)
    for (opcode, names), rows in alike.items():
        words[rows] = _encoded(Opcode(opcode), names, [stream[row] for row in rows])
    return words.astype("<u8", copy=False).tobytes()


def _encoded(opcode: Opcode, names: tuple[str, ...], commands: list[Command]) -> NDArray[np.uint64]:
    """Commands of a type that have the same fields in the same order, a row for each."""
    # One of them is encoded by itself, which tells what is missing or unknown.
    _encode(commands[0])
    words = np.zeros((len(commands), COMMAND_BYTES * 8 // _BITS), np.uint64)
    # Many commands have their fields in common.
    fields = {id(command.fields): command.fields for command in commands}
    rows = {key: row for row, key in enumerate(fields)}
    numbers = chain.from_iterable(each.values() for each in fields.values())
    table = np.fromiter(numbers, np.int64).reshape(len(fields), len(names))
    table = table[[rows[id(command.fields)] for command in commands]]
    columns = dict(zip(names, table.T, strict=True))
    for name, place in _PLACES[opcode].items():
        if name == _OPCODE:
            values = np.full(len(commands), int(opcode), np.int64)
        elif name in _ATTRIBUTES:
            values = np.fromiter(map(attrgetter(name), commands), np.int64, len(commands))
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


def decode_commands(data: bytes, offset: int = 0) -> list[DecodedCommand]:
    """(opcode, fields) of every command in ``data``, a program that lies at ``offset`` of the
    memory window. Where commands are packed, those that lead to others do so as if all were whole:
    each takes COMMAND_BYTES.

    Raises
    ------
    ValueError
        as :func:`hw.isa.encoding.decode` and :func:`hw.isa.packing.unpack`.
    """
    return list(Decoded(data, offset))


class Decoded(Sequence[DecodedCommand]):
    """What :func:`decode_commands` returns, some thousand commands at a time: the fields of all
    commands of a long program take more memory than compiling it.

    Parameters
    ----------
    data, offset : as for :func:`decode_commands`
    placed : the commands of ``data``, if they have been unpacked

    Raises
    ------
    ValueError
        as :func:`decode_commands`; for an opcode that is none, when that command is decoded.
    """

    def __init__(
        self, data: bytes, offset: int = 0, *, placed: Sequence[Placed] | None = None
    ) -> None:
        self._offset = offset
        #: Where each command lies; empty where all are whole.
        self._begins = np.zeros(0, np.int64)
        if placed is None and has_packed(data):
            placed = unpack(data, offset)
        if placed is not None:
            self._begins = np.array([offset + one.begin for one in placed])
            data = b"".join(one.command for one in placed)
        if rest := len(data) % COMMAND_BYTES:
            decode(data[-rest:])
        self._data, self._count = data, len(data) // COMMAND_BYTES
        self._blocks: dict[int, list[DecodedCommand]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The opcode of every command."""
        return np.frombuffer(self._data, np.uint8)[::COMMAND_BYTES]

    def of(self, opcode: Opcode) -> list[tuple[int, Fields]]:
        """Number and fields of every command with this opcode."""
        numbers = np.flatnonzero(self.codes == opcode)
        rows = np.frombuffer(self._data, np.uint8).reshape(-1, COMMAND_BYTES)[numbers]
        commands = self._decode(rows.tobytes())
        return [(n, fields) for n, (_, fields) in zip(numbers.tolist(), commands, strict=True)]

    @overload
    def __getitem__(self, place: int) -> DecodedCommand: ...
    @overload
    def __getitem__(self, place: slice) -> list[DecodedCommand]: ...
    def __getitem__(self, place: int | slice) -> DecodedCommand | list[DecodedCommand]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = place if 0 <= place < self._count else range(self._count)[place]
        return self._block(number // _BLOCK)[number % _BLOCK]

    def __iter__(self) -> Iterator[DecodedCommand]:
        for number in range(-(-len(self) // _BLOCK)):
            yield from self._block(number)

    def _block(self, number: int) -> list[DecodedCommand]:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) == _KEPT:
                del self._blocks[next(iter(self._blocks))]
            begin = number * _BLOCK * COMMAND_BYTES
            block = self._decode(self._data[begin : begin + _BLOCK * COMMAND_BYTES])
            self._blocks[number] = block
        return block

    def _decode(self, data: bytes) -> list[DecodedCommand]:
        commands = _decode_whole(data)
        for opcode, fields in commands:
            for name in LEADING.get(opcode, ()):
                fields[name] = self._whole(fields[name])
        return commands

    def _whole(self, place: int) -> int:
        """Where the command at ``place`` would lie if all were whole; itself if there is none."""
        number = int(np.searchsorted(self._begins, place))
        if number == len(self._begins) or self._begins[number] != place:
            return place
        return self._offset + COMMAND_BYTES * number


def _decode_whole(data: bytes) -> list[DecodedCommand]:
    words = np.frombuffer(data, "<u8").reshape(-1, COMMAND_BYTES * 8 // _BITS)
    codes = words[:, 0].astype(np.int64) & 0xFF
    unknown = ~np.isin(codes, [int(opcode) for opcode in Opcode])
    for place in np.flatnonzero(unknown)[:1]:
        decode(data[int(place) * COMMAND_BYTES :][:COMMAND_BYTES])
    result: list[DecodedCommand] = [(Opcode.HALT, {})] * len(codes)
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
