"""Commands as text, one line each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from compiler.tensors.tensor import Tensor
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, QUEUE_OPCODES, Opcode, decode
from hw.isa.field import Field
from hw.isa.loops import LOOP_STRIDES
from hw.isa.packing import has_packed, unpack

from .cost import bits
from .program import SemaphoreNames

__all__ = ["disassemble"]

#: Ends of the names of fields that are shown in hexadecimal if they have more than 16 bits.
_HEXADECIMAL = ("address", "scale", "immediate", "_even", "_odd", "first")


def disassemble(
    commands: bytes, *, semaphores: Iterable[SemaphoreNames] = (),
    tensors: Sequence[Tensor] = (), offset: int = 0,
) -> Iterator[str]:  # fmt: skip
    """Yield one line per command: index, queue, waits, signals, fields by name.

    Behind its index, a command is indented by two spaces for each REPEAT whose loop it is in.
    Strides of loops are left out where they are 0.

    Parameters
    ----------
    commands : bytes
    semaphores : list of :class:`~compiler.codegen.program.SemaphoreNames`; a semaphore without a
        name is shown by its number
    tensors : tensors by whose names DRAM addresses are annotated; where several share memory it
        is said how many
    offset : of the commands in the memory window

    Raises
    ------
    ValueError
        naming the command, if one is undefined or incomplete.
    """
    listed, numbers = _listed(commands, offset)
    deeper = _depths(listed, numbers)
    depth = 0
    names: dict[int, str] = {}
    stretches = {stretch.first: stretch.names for stretch in semaphores}
    for index, raw in enumerate(listed):
        names = stretches.get(index, names)
        try:
            opcode, values = decode(raw)
        except ValueError as error:
            raise ValueError(f"command {index}: {error}") from error
        depth += deeper[index]
        indent = "  " * depth
        if opcode not in QUEUE_OPCODES:
            parts = [f"{index:6} {indent}-     {opcode.name}"]
        else:
            parts = [f"{index:6} {indent}core{values['core']} {opcode.name:7}"]
            for name in ("wait", "signal"):
                shown = ",".join(names.get(number, str(number)) for number in bits(values[name]))
                parts.append(f"{name}={shown or '-'}")
        for field in COMMANDS[opcode]:
            if values[field.name] or field not in LOOP_STRIDES:
                parts.append(f"{field.name}={_value(field, values[field.name], tensors)}")
        if opcode is Opcode.REPEAT:
            first = numbers.get(values["first"])
            if first is not None:
                parts.append(f"(from command {first})")
        yield " ".join(parts)


def _listed(commands: bytes, offset: int) -> tuple[list[bytes], dict[int, int]]:
    """All commands as whole ones, and their numbers by their offset in the memory window."""
    if has_packed(commands):
        placed = unpack(commands, offset)
        numbers = {offset + one.begin: number for number, one in enumerate(placed)}
        return [one.command for one in placed], numbers
    if len(commands) % COMMAND_BYTES:
        raise ValueError(
            f"a stream of whole commands is a multiple of {COMMAND_BYTES} bytes, not "
            f"{len(commands)}"
        )
    places = range(0, len(commands), COMMAND_BYTES)
    numbers = {offset + place: number for number, place in enumerate(places)}
    return [commands[place : place + COMMAND_BYTES] for place in places], numbers


def _depths(listed: Sequence[bytes], numbers: Mapping[int, int]) -> Counter[int]:
    """At which commands loops begin and end: how many more there are than at the one before."""
    deeper: Counter[int] = Counter()
    for number, command in enumerate(listed):
        if command[0] == Opcode.REPEAT:
            _, values = decode(command)
            first = numbers.get(values["first"])
            if first is not None and first < number:
                deeper[first] += 1
                deeper[number] -= 1
    return deeper


def _value(field: Field, value: int, tensors: Sequence[Tensor]) -> str:
    if field.enum is not None and value in set(field.enum):
        return field.enum(value).name
    if field.name == "dram_address":
        there = [t for t in tensors if t.offset <= value < t.offset + t.size]
        if len(there) > 1:
            return f"{value:#x}({len(there)} tensors in turn)"
        for tensor in there:
            return f"{value:#x}({tensor.name}+{value - tensor.offset:#x})"
    in_hexadecimal = field.width > 16 and field.name.endswith(_HEXADECIMAL)
    return f"{value:#x}" if in_hexadecimal else str(value)
