"""What a host writes to start a program, and what the registers say of its end."""

from collections.abc import Callable, Iterator, Mapping

from hw.isa.error_codes import ErrorCode
from hw.isa.vector import COEFFICIENTS

from .map import Unit
from .model import Register, RegisterMap

__all__ = [
    "coefficients",
    "counters",
    "ending",
    "field_values",
    "register_writes",
    "start_values",
    "without_waiting",
]

#: States of the main array, one of them in every cycle but those of waiting for the host.
_ARRAY_STATES = ("VECTORS", "STALL_WEIGHTS", "STALL_BUFFER", "STALL_HAZARD", "STALL_COMMAND")


def start_values(
    registers: RegisterMap,
    *,
    base: int,
    size: int,
    program: int,
    program_size: int,
    watchdog: int = 0,
) -> dict[str, int]:
    """Values by name of register, in the order in which a host writes them: the memory window and
    the program (offsets in bytes), every cause of the interrupt, the start.

    ``watchdog``: cycles without progress that end the run; 0: none do. Raises ValueError if
    ``size`` is above 4 GiB.
    """
    if not 0 <= size <= 1 << 32:
        raise ValueError(f"size must be from 0 to {1 << 32} bytes (4 GiB), not {size!r}")
    start = {field.name: field.mask for field in registers["CONTROL"].fields}["START"]
    return {
        "WATCHDOG": watchdog,
        "MEM_BASE": base,
        "MEM_SIZE": size & 0xFFFFFFFF,
        "MEM_SIZE_HI": size >> 32,
        "PROGRAM_ADDRESS": program,
        "PROGRAM_SIZE": program_size,
        "INTERRUPT_ENABLE": sum(field.mask for field in registers["INTERRUPT_ENABLE"].fields),
        "CONTROL": start,
    }


def field_values(registers: RegisterMap, name: str, value: int) -> dict[str, int]:
    """The fields of a register by name, if it holds ``value``."""
    return {field.name: (value & field.mask) >> field.lsb for field in registers[name].fields}


def register_writes(
    registers: RegisterMap, name: str, value: int, *, status: Callable[[], int]
) -> Iterator[tuple[Register, int]]:
    """(register, value) of each write that ``value`` takes: of both halves of a pair ``NAME_LO``,
    ``NAME_HI`` if ``name`` is that of a pair. Each is checked when it is its turn.

    ``status`` reads STATUS; it is asked for registers that a run locks only.

    Raises
    ------
    KeyError
        no such register
    ValueError
        the accelerator refuses the write: the register is read-only, or locked by a run, or the
        value has too many bits
    """
    if name not in registers and f"{name}_LO" in registers:
        for half, part in (("LO", value & 0xFFFFFFFF), ("HI", value >> 32)):
            yield from register_writes(registers, f"{name}_{half}", part, status=status)
        return
    if name not in registers:
        raise KeyError(f"the accelerator has no register {name}")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{name}: {value} does not fit into 32 bits")
    found = registers[name]
    if not found.writable:
        raise ValueError(f"{name} can only be read")
    if found.locked:
        now = field_values(registers, "STATUS", status())
        if now["BUSY"] and not (found.between_batches and now["WAITING"]):
            but = " and does not wait for a batch" if found.between_batches else ""
            raise ValueError(f"{name} is locked while a program runs{but}")
    yield found, value


def coefficients(values: Mapping[str, int]) -> list[int]:
    """What COEFFICIENT0 and those behind it hold, of values of registers by name; 0 of those that
    are not there."""
    return [values.get(f"COEFFICIENT{number}", 0) for number in range(COEFFICIENTS)]


def ending(registers: RegisterMap, values: Mapping[str, int]) -> str:
    """A sentence on how the last program has ended, from ``values`` of STATUS, ERROR_CODE,
    ERROR_UNIT and the halves of ERROR_ADDRESS."""
    status = field_values(registers, "STATUS", values["STATUS"])
    if not status["DONE"]:
        return "no program has run since the reset"
    text = "the program has ended"
    if status["STOPPED"]:
        text = "the program was stopped by CONTROL.STOP"
    elif status["ERROR"]:
        code, unit = ErrorCode(values["ERROR_CODE"]), Unit(values["ERROR_UNIT"])
        address = values["ERROR_ADDRESS_LO"] | values["ERROR_ADDRESS_HI"] << 32
        text = f"{unit.name} ended the program with {code.name} at {address:#x}: {code.doc}"
    if status["DRAINING"]:
        text += "; the bus still owes answers"
    return text


def counters(registers: RegisterMap, values: Mapping[str, int]) -> dict[str, int]:
    """The counters by name of which ``values`` holds both halves."""
    return {
        counter.name: values[f"{counter.name}_LO"] | values[f"{counter.name}_HI"] << 32
        for counter in registers.counters
        if f"{counter.name}_LO" in values
    }


def without_waiting(counters: Mapping[str, int]) -> dict[str, int]:
    """Counters of a run of batches as if the host had never kept the accelerator waiting."""
    cycles = sum(counters[f"CORE0_{state}"] for state in _ARRAY_STATES)
    return {**counters, "CYCLES": cycles, "BATCH_WAIT": 0}
