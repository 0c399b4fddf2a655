"""C header: register offsets, field masks, enumerations, command encoding, sizes."""

from collections.abc import Iterator
from enum import IntEnum

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, HEADER, Opcode
from hw.isa.field import Field, field_places
from hw.registers.map import ErrorCode, FormatCode, Unit, VariantCode, register_map

__all__ = ["command_fields", "c_header"]

_ENUMS: dict[str, type[IntEnum]] = {
    "error_code": ErrorCode,
    "unit": Unit,
    "variant": VariantCode,
    "format": FormatCode,
    # Of the commands, by the names of their fields' kinds.
    **{
        field.enum.__name__.lower(): field.enum
        for fields in (HEADER, *COMMANDS.values())
        for field in fields
        if field.enum is not None
    },
}

_SET_FIELD = """\
/* Put the low bits of a value into a field of a command, which must have been zeroed before. */
static inline void adagp_set_field(uint32_t command[ADAGP_COMMAND_BYTES / 4], unsigned lsb,
                                   unsigned width, uint32_t value)
{
    uint64_t bits = (value & (0xffffffffu >> (32 - width))) * ((uint64_t)1 << (lsb % 32));
    command[lsb / 32] |= (uint32_t)bits;
    if (lsb % 32 + width > 32)
        command[lsb / 32 + 1] |= (uint32_t)(bits >> 32);
}
"""


def command_fields(opcode: Opcode | None = None) -> Iterator[tuple[Field, int]]:
    """Yield ``(field, least significant bit)`` of the header, or of an opcode's own fields."""
    own = HEADER if opcode is None else COMMANDS[opcode]
    places = field_places(HEADER if opcode is None else (*HEADER, *own))
    for field in own:
        yield field, places[field.name].position


def _comment(text: str) -> str:
    return f"/* {text.replace('*/', '* /')} */"


def _define(name: str, value: str | int, comment: str = "") -> str:
    line = f"#define ADAGP_{name} {value}"
    return f"{line} {_comment(comment)}" if comment else line


def _config_lines(config: AdaGPConfig) -> Iterator[str]:
    for name, value in config.as_dict().items():
        text = f'"{value}"' if isinstance(value, str) else str(int(value))
        yield _define(f"CONFIG_{name.upper()}", text)
    yield _define("CONFIG_HASH_TEXT", f'"{config.hash}"')
    yield _define("CORES", len(config.cores))
    yield _define("GRANULE_BYTES", config.granule_bytes, "alignment in DRAM")
    yield _define("BEAT_BYTES", config.beat_bytes, "one beat of the memory bus")
    yield _define("SEMAPHORES", config.semaphore_count)
    for core in config.cores:
        prefix = f"CORE{core.index}"
        for name in ("rows", "columns", "post_lanes", "word_bytes", "bias_words"):
            yield _define(f"{prefix}_{name.upper()}", getattr(core, name))
    for memory, words in config.memory_depth.items():
        yield _define(f"MEMORY{memory}_WORDS", words)


def _register_lines(config: AdaGPConfig) -> Iterator[str]:
    for register in register_map(config):
        unit = f" [{register.unit}]" if register.unit else ""
        yield ""
        yield _define(f"{register.name}_OFFSET", f"{register.offset:#05x}u", register.doc + unit)
        if register.constant:
            yield _define(f"{register.name}_CONSTANT", f"{register.reset:#010x}u", "all of it")
        for field in register.fields:
            name = f"{register.name}_{field.name}"
            yield _define(f"{name}_SHIFT", field.lsb)
            yield _define(f"{name}_MASK", f"{field.mask:#010x}u", field.doc)


def _enum_lines() -> Iterator[str]:
    for name, enum in _ENUMS.items():
        yield ""
        yield f"enum adagp_{name} {{"
        for member in enum:
            doc = getattr(member, "doc", "")
            yield f"    ADAGP_{name.upper()}_{member.name} = {int(member)}," + (
                f" {_comment(doc)}" if doc else ""
            )
        yield "};"


def _command_lines() -> Iterator[str]:
    for opcode in (None, *Opcode):
        prefix = f"COMMAND_{opcode.name}_" if opcode is not None else "COMMAND_"
        for field, lsb in command_fields(opcode):
            yield _define(f"{prefix}{field.name.upper()}_LSB", lsb, field.doc)
            yield _define(f"{prefix}{field.name.upper()}_WIDTH", field.width)


def c_header(config: AdaGPConfig) -> str:
    """Return the text of ``adagp_regs.h`` (C99, also valid C++)."""
    lines = [
        _comment("Generated from the register and command descriptions; do not edit."),
        "#ifndef ADAGP_REGS_H",
        "#define ADAGP_REGS_H",
        "",
        "#include <stdint.h>",
        "",
        _comment("Configuration"),
        *_config_lines(config),
        "",
        _comment("Registers: byte offsets, field shifts and masks"),
        *_register_lines(config),
        *_enum_lines(),
        "",
        _comment("Commands: lowest bit and width of each field; the first group is in every one"),
        _define("COMMAND_BYTES", COMMAND_BYTES),
        *_command_lines(),
        "",
        _SET_FIELD,
        "#endif",
        "",
    ]
    return "\n".join(lines)
