"""Commands as text, one line each."""

from hw.isa.encoding import COMMAND_BYTES, COMMANDS, Opcode, decode

from .cost import bits
from .program import Semaphore

__all__ = ["disassemble", "semaphore_name"]

#: Ends of the names of fields that are shown in hexadecimal if they have more than 16 bits.
_HEXADECIMAL = ("address", "scale", "immediate", "_even", "_odd")


def semaphore_name(number, per_core=16):
    """Name of semaphore ``number``, such as ``c0.x_full``."""
    core, index = divmod(number, per_core)
    known = index in set(Semaphore)
    return f"c{core}.{Semaphore(index).name.lower() if known else index}"


def disassemble(commands, *, per_core=16, tensors=()):
    """Yield one line per command: index, queue, waits, signals, fields by name.

    Parameters
    ----------
    commands : bytes
    per_core : semaphores of one core
    tensors : tensors by whose names DRAM addresses are annotated

    Raises
    ------
    ValueError
        naming the command, if one is undefined or incomplete.
    """
    if len(commands) % COMMAND_BYTES:
        raise ValueError(
            f"a command stream is a multiple of {COMMAND_BYTES} bytes, not {len(commands)}"
        )
    for index in range(len(commands) // COMMAND_BYTES):
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
                names = ",".join(semaphore_name(n, per_core) for n in bits(values[name]))
                parts.append(f"{name}={names or '-'}")
        for field in COMMANDS[opcode]:
            parts.append(f"{field.name}={_value(field, values[field.name], tensors)}")
        yield " ".join(parts)


def _value(field, value, tensors):
    if field.enum is not None and value in set(field.enum):
        return field.enum(value).name
    if field.name == "dram_address":
        for tensor in tensors:
            if tensor.offset <= value < tensor.offset + tensor.size:
                return f"{value:#x}({tensor.name}+{value - tensor.offset:#x})"
    in_hexadecimal = field.width > 16 and field.name.endswith(_HEXADECIMAL)
    return f"{value:#x}" if in_hexadecimal else str(value)
