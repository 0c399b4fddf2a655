"""C header of a board's serial line: addresses, registers of the board, UARTBone."""

from collections.abc import Iterator

from hw.registers.board import (
    ACCELERATOR_BASE,
    COMMANDS,
    MAGIC,
    MOST_WORDS,
    SYSTEM_BASE,
    Control,
    Status,
    System,
)

__all__ = ["board_header"]


def _lines() -> Iterator[str]:
    yield "/* Byte addresses; the memory is from 0 on. */"
    yield f"#define ADAGP_BOARD_ACCELERATOR_BASE {ACCELERATOR_BASE:#010x}u"
    yield f"#define ADAGP_BOARD_SYSTEM_BASE {SYSTEM_BASE:#010x}u"
    yield f"#define ADAGP_BOARD_MAGIC_CONSTANT {MAGIC:#010x}u"
    for register in System:
        yield f"#define ADAGP_BOARD_{register.name}_OFFSET {4 * register:#04x}u"
    for name, bits in (("STATUS", Status), ("CONTROL", Control)):
        for bit in bits:
            yield f"#define ADAGP_BOARD_{name}_{bit.name}_MASK {1 << bit:#04x}u"
    yield ""
    yield "/* UARTBone: a byte of these, the number of words (0: the most), the first address"
    yield "   in words, what is written; numbers of four bytes begin with the highest. */"
    for command, code in COMMANDS.items():
        yield f"#define ADAGP_UARTBONE_{command.upper()} {code}u"
    yield f"#define ADAGP_UARTBONE_MOST_WORDS {MOST_WORDS}u"


def board_header() -> str:
    """Return the text of ``adagp_board.h`` (C99, also valid C++), the same for every board."""
    lines = [
        "/* Generated from the description of a board's registers; do not edit. */",
        "#ifndef ADAGP_BOARD_H",
        "#define ADAGP_BOARD_H",
        "",
        *_lines(),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)
