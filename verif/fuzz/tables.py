"""The C++ header with everything that the harness has to know of a configuration."""

from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from hw.control.fetch import AHEAD
from hw.dma.store import OUTSTANDING_WRITES
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.error_codes import ErrorCode
from hw.isa.packing import PACKED_CODE, PACKED_SHIFT
from hw.registers.map import ADDRESS_WIDTH, Unit, register_map

from .case import CASE_FIELDS, SLAVE_FIELDS, Order, Sabotage

__all__ = ["GOOD_FIELDS", "tables"]

#: Numbers of a good program in front of its registers and images.
GOOD_FIELDS = ("program", "program_size")

#: How the hardware drives AxCACHE: modifiable, bufferable.
_CACHE = 0b0011


def tables(config: AdaGPConfig) -> str:
    """Text of ``tables.h``."""
    registers = register_map(config)
    cores = len(config.cores)
    reads = [AHEAD, *[config.axi_outstanding_reads] * cores]
    numbers = {
        "BEAT_BYTES": config.beat_bytes,
        "BEAT_SIZE": config.beat_bytes.bit_length() - 1,
        # A command is fetched in one burst.
        "MAX_BEATS": max(config.axi_burst_beats, COMMAND_BYTES // config.beat_bytes),
        "AX_CACHE": _CACHE,
        "AX_PROT": config.axi_prot,
        "READ_IDS": 1 + cores,
        "WRITE_IDS": cores,
        "ID_VALUES": 1 << axi_id_width(1 + cores),
        "CONTROL_START": _mask(registers, "CONTROL", "START"),
        "CONTROL_STOP": _mask(registers, "CONTROL", "STOP"),
        **{
            f"STATUS_{name}": _mask(registers, "STATUS", name)
            for name in ("BUSY", "DONE", "ERROR", "STOPPED", "DRAINING")
        },
        "CAUSE_ERROR": _mask(registers, "INTERRUPT_STATUS", "ERROR"),
        **{
            f"REG_{name}": registers[name].offset
            for name in (
                "CONTROL", "STATUS", "INTERRUPT_STATUS", "INTERRUPT_ENABLE", "ERROR_CODE",
                "ERROR_UNIT", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI", "COMMANDS_LO",
                "MEM_BASE_LO", "MEM_BASE_HI",
            )
        },
        "ERROR_CODES": max(ErrorCode) + 1,
        "UNITS": max(Unit) + 1,
        "UNIT_FETCH": int(Unit.FETCH),
        "OPCODE_BATCH": int(Opcode.BATCH),
        "OPCODE_REPEAT": int(Opcode.REPEAT),
        "COMMAND_BYTES": COMMAND_BYTES,
        "PACKED_CODE": PACKED_CODE,
        "PACKED_SHIFT": PACKED_SHIFT,
        **{
            name: int(ErrorCode[name])
            for name in ("READ_SLVERR", "READ_DECERR", "WRITE_SLVERR", "WRITE_DECERR")
        },
        "WATCHDOG_CODE": _code(16),
        "UNEXPECTED_CODE": _code(17),
        **{f"ORDER_{item.name}": int(item) for item in Order},
        **{f"SABOTAGE_{item.name}": int(item) for item in Sabotage},
    }  # fmt: skip
    access = [0] * (1 << (ADDRESS_WIDTH - 2))
    for register in registers:
        kind = (3 if register.locked else 2) if register.writable else 1
        access[register.offset // 4] = kind
    units = [int(code in set(Unit)) for code in range(max(Unit) + 1)]
    lines = [
        "// Written by verif/fuzz/tables.py.",
        "#pragma once",
        "#include <cstdint>",
        *(f"constexpr uint32_t {name} = {value};" for name, value in numbers.items()),
        "enum Access : uint8_t { UNDEFINED, READ_ONLY, WRITABLE, LOCKED };",
        _array("uint8_t", "ACCESS", access),
        _array("uint8_t", "UNIT_NAMED", units),
        _array("unsigned", "READ_LIMIT", reads),
        _array("unsigned", "WRITE_LIMIT", [OUTSTANDING_WRITES] * cores),
        _struct("CaseFields", CASE_FIELDS),
        _struct("SlaveFields", SLAVE_FIELDS),
        _struct("GoodFields", GOOD_FIELDS),
    ]
    return "\n".join(lines) + "\n"


def _mask(registers, register, field):
    """Of a field; 0 if there is none of that name."""
    return next((f.mask for f in registers[register].fields if f.name == field), 0)


def _code(number):
    """An error code's number, or one that never comes."""
    return number if number in set(ErrorCode) else 0xFFFF


def _array(kind, name, values):
    return f"constexpr {kind} {name}[] = {{{', '.join(map(str, values))}}};"


def _struct(name, fields):
    members = "\n".join(f"    uint64_t {field};" for field in fields)
    return f"struct {name} {{\n{members}\n}};"
