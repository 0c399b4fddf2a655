"""Commands as text, one line each."""

from collections.abc import Iterable, Iterator, Sequence

from compiler.tensors.tensor import Tensor
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, Opcode, decode
from hw.isa.field import Field

from .cost import bits
from .program import SemaphoreNames

__all__ = ["disassemble"]

#: Ends of the names of fields that are shown in hexadecimal if they have more than 16 bits.
_HEXADECIMAL = ("address", "scale", "immediate", "_even", "_odd")


def disassemble(
    commands: bytes, *, semaphores: Iterable[SemaphoreNames] = (), tensors: Sequence[Tensor] = ()
) -> Iterator[str]:
    """Yield one line per command: index, queue, waits, signals, fields by name.

    Parameters
    ----------
    commands : bytes
    semaphores : list of :class:`~compiler.codegen.program.SemaphoreNames`; a semaphore without a
        name is shown by its number
    tensors : tensors by whose names DRAM addresses are annotated; where several share memory it
        is said how many

    Raises
    ------
    ValueError
        naming the command, if one is undefined or incomplete.
    """
    if len(commands) % COMMAND_BYTES:
        raise ValueError(
            f"a command stream is a multiple of {COMMAND_BYTES} bytes, not {len(commands)}"
        )
    names: dict[int, str] = {}
    stretches = {stretch.first: stretch.names for stretch in semaphores}
    for index in range(len(commands) // COMMAND_BYTES):
        names = stretches.get(index, names)
        raw = commands[index * COMMAND_BYTES : (index + 1) * COMMAND_BYTES]
        try:
            opcode, values = decode(raw)
        except ValueError as error:
            raise ValueError(f"command {index}: {error}") from error
        if opcode in (Opcode.HALT, Opcode.BATCH):
            parts = [f"{index:6} -     {opcode.name}"]
        else:
            parts = [f"{index:6} core{values['core']} {opcode.name:7}"]
            for name in ("wait", "signal"):
                shown = ",".join(names.get(number, str(number)) for number in bits(values[name]))
                parts.append(f"{name}={shown or '-'}")
        for field in COMMANDS[opcode]:
            parts.append(f"{field.name}={_value(field, values[field.name], tensors)}")
        yield " ".join(parts)


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
