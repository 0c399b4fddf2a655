"""Commands as text, one line each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from compiler.tensors.tensor import Tensor
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, QUEUE_OPCODES, Opcode, decode
from hw.isa.field import Field
from hw.isa.loops import LOOP_STRIDES

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
    if len(commands) % COMMAND_BYTES:
        raise ValueError(
            f"a command stream is a multiple of {COMMAND_BYTES} bytes, not {len(commands)}"
        )
    deeper = _depths(commands, offset)
    depth = 0
    names: dict[int, str] = {}
    stretches = {stretch.first: stretch.names for stretch in semaphores}
    for index in range(len(commands) // COMMAND_BYTES):
        names = stretches.get(index, names)
        raw = commands[index * COMMAND_BYTES : (index + 1) * COMMAND_BYTES]
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
            first, rest = divmod(values["first"] - offset, COMMAND_BYTES)
            if not rest:
                parts.append(f"(from command {first})")
        yield " ".join(parts)


def _depths(commands: bytes, offset: int) -> Counter[int]:
    """At which commands loops begin and end: how many more there are than at the one before."""
    deeper: Counter[int] = Counter()
    for at in range(0, len(commands), COMMAND_BYTES):
        if commands[at] == Opcode.REPEAT:
            _, values = decode(commands[at : at + COMMAND_BYTES])
            first, rest = divmod(values["first"] - offset, COMMAND_BYTES)
            if 0 <= first < at // COMMAND_BYTES and not rest:
                deeper[first] += 1
                deeper[at // COMMAND_BYTES] -= 1
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
