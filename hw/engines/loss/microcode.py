"""The programs of the loss unit's threads: what is done once a row, and once a batch, in the order
of docs/training.md."""

import enum
import math
import struct
from dataclasses import dataclass

from amaranth.lib import data
from amaranth.lib import enum as hdl_enum

__all__ = [
    "CLOSING",
    "CONSTANTS",
    "Constant",
    "Instruction",
    "Operation",
    "PC_WIDTH",
    "PROGRAM",
    "ROW",
    "Register",
    "SourceA",
    "SourceB",
]


class Operation(hdl_enum.Enum, shape=3):
    """What one instruction does with its operands a and b; r is its destination."""

    NOTHING = 0
    ADD = 1
    MULTIPLY = 2
    #: Start a division; its result is there three instructions later or at any time then.
    DIVIDE = 3
    #: r = the quotient.
    QUOTIENT = 4
    #: a itself goes onto the row being written.
    EMIT = 5


class SourceA(hdl_enum.Enum, shape=2):
    """Where operand a comes from."""

    REGISTER = 0
    #: The result of the thread's last instruction, which cannot be read as a register yet.
    LAST = 1
    #: The total divided by the power of two that brings it between sqrt(1/2) and sqrt(2) ...
    MANTISSA = 2
    #: ... and of the last result 2**23 plus that power's exponent. Of NaN: NaN and anything.
    EXPONENT = 3


class SourceB(hdl_enum.Enum, shape=2):
    """Where operand b comes from."""

    REGISTER = 0
    LAST = 1
    CONSTANT = 2


class Register(enum.IntEnum):
    """The 16 registers of a thread.

    ``DISTANCE`` (of the label's number to the maximum) and ``ALL_SUM`` (one of the batch's partial
    sums) are two each; a row's place in the batch says which. ``CORRECT`` is one for all threads.
    """

    SUM0, SUM1, SUM2, SUM3, SUM4, SUM5, SUM6, SUM7 = range(8)
    TOTAL = 8
    LARGEST = 9
    DISTANCE = 10
    ALL_SUM = 12
    CORRECT = 15


class Constant(enum.IntEnum):
    """Constants of operand b."""

    ONE = 0
    NINTH = 1
    SEVENTH = 2
    FIFTH = 3
    THIRD = 4
    LN2_LOW = 5
    LN2_HIGH = 6
    EXPONENT_OFFSET = 7
    #: 1 if the largest output of the thread's row is the label's, else 0.
    CORRECT_NOW = 8
    VALUE_SCALE = 9


def _bits(value):
    return int.from_bytes(struct.pack("<f", value), "little")


#: ln 2 in 15 bits, whose products with exponents are exact.
_LN2 = 0x58B9 / 2**15

#: Float32 bits of the constants that never change.
CONSTANTS = {
    Constant.ONE: _bits(1.0),
    Constant.NINTH: _bits(1 / 9),
    Constant.SEVENTH: _bits(1 / 7),
    Constant.FIFTH: _bits(1 / 5),
    Constant.THIRD: _bits(1 / 3),
    Constant.LN2_LOW: _bits(math.log(2.0) - _LN2),
    Constant.LN2_HIGH: _bits(_LN2),
    Constant.EXPONENT_OFFSET: _bits(2.0**23),
}

#: Bits of the place of an instruction.
PC_WIDTH = 6


class Instruction(data.Struct):
    """One word of the program. Pages are those of threads, counted from the thread's own."""

    operation: Operation
    r: 4
    source_a: SourceA
    a: 4
    page_a: 2
    source_b: SourceB
    b: 4
    page_b: 2
    subtract: 1
    end: 1


@dataclass(frozen=True)
class _Line:
    operation: Operation
    r: int = 0
    a: object = None
    b: object = None
    subtract: bool = False


@dataclass(frozen=True)
class _Of:
    """An operand that is not simply a register."""

    source: object
    number: int = 0
    page: int = 0


def _row_lines():
    """From the partial sums of a row to its loss; what a line computes is r = a (operation) b."""
    R, C, op = Register, Constant, Operation
    add, mul = op.ADD, op.MULTIPLY

    def line(operation, r, a=None, b=None, **options):
        return _Line(operation, r, a, b, **options)

    last = _Of(SourceA.LAST)

    def constant(number):
        return _Of(SourceB.CONSTANT, number)

    return (
        line(add, R.SUM0, R.SUM0, R.SUM1),
        line(add, R.SUM2, R.SUM2, R.SUM3),
        line(add, R.SUM4, R.SUM4, R.SUM5),
        line(add, R.SUM6, R.SUM6, R.SUM7),
        line(add, R.SUM0, R.SUM0, R.SUM2),
        line(add, R.SUM4, R.SUM4, R.SUM6),
        line(add, R.TOTAL, R.SUM0, last),
        # Logarithm of the total, which is 1 or more, or NaN: its exponent k; m - 1 over m + 1, ...
        line(add, R.SUM3, _Of(SourceA.EXPONENT), constant(C.EXPONENT_OFFSET), subtract=True),
        line(add, R.SUM1, _Of(SourceA.MANTISSA, R.TOTAL), constant(C.ONE), subtract=True),
        line(add, R.SUM2, _Of(SourceA.MANTISSA, R.TOTAL), constant(C.ONE)),
        line(op.DIVIDE, 0, R.SUM1, last),
        # ... meanwhile k times ln 2, in two parts; ...
        line(mul, R.SUM4, R.SUM3, constant(C.LN2_LOW)),
        line(mul, R.SUM5, R.SUM3, constant(C.LN2_HIGH)),
        line(add, R.CORRECT, R.CORRECT, constant(C.CORRECT_NOW)),
        # ... t, z = t * t, and the polynomial.
        line(op.QUOTIENT, R.SUM1),
        line(mul, R.SUM2, last, last),
        line(mul, R.SUM3, last, constant(C.NINTH)),
        line(add, R.SUM3, last, constant(C.SEVENTH)),
        line(mul, R.SUM3, last, R.SUM2),
        line(add, R.SUM3, last, constant(C.FIFTH)),
        line(mul, R.SUM3, last, R.SUM2),
        line(add, R.SUM3, last, constant(C.THIRD)),
        line(mul, R.SUM3, last, R.SUM2),
        # 2t + 2t * polynomial; doubling is exact.
        line(add, R.SUM1, R.SUM1, R.SUM1),
        line(mul, R.SUM3, last, R.SUM3),
        line(add, R.SUM1, R.SUM1, last),
        line(add, R.SUM1, last, R.SUM4),
        line(add, R.SUM1, R.SUM5, last),
        # Loss of the row.
        line(add, R.SUM1, last, R.DISTANCE, subtract=True),
        line(add, R.ALL_SUM, R.ALL_SUM, last),
    )  # fmt: skip


def _closing_lines():
    """From the partial sums of the batch to the value row; a program of thread 0."""
    R, op = Register, Operation
    last = _Of(SourceA.LAST)

    def partial(index):
        return _Of(SourceA.REGISTER, R.ALL_SUM + index // 4, index % 4)

    return (
        *(_Line(op.ADD, number, partial(2 * number), partial(2 * number + 1))
          for number in range(4)),
        _Line(op.ADD, R.SUM0, R.SUM0, R.SUM1),
        _Line(op.ADD, R.SUM2, R.SUM2, R.SUM3),
        _Line(op.ADD, R.SUM0, R.SUM0, last),
        _Line(op.MULTIPLY, R.SUM0, last, _Of(SourceB.CONSTANT, Constant.VALUE_SCALE)),
        _Line(op.EMIT, 0, last),
        _Line(op.EMIT, 0, R.CORRECT),
    )  # fmt: skip


def _written(line):
    writes = (Operation.ADD, Operation.MULTIPLY, Operation.QUOTIENT)
    return line.r if line.operation in writes else None


def _assemble():
    """Initial values of :class:`Instruction`; number 0 does nothing, and is where threads wait."""
    program = [{"operation": Operation.NOTHING, "end": 1}]
    places = []
    for lines in (_row_lines(), _closing_lines()):
        places.append(len(program))
        for number, line in enumerate(lines):
            word = {
                "operation": line.operation,
                "r": int(line.r),
                "subtract": int(line.subtract),
                "end": int(number == len(lines) - 1),
            }
            for name, operand in (("a", line.a), ("b", line.b)):
                if operand is None:
                    operand = _Of(SourceA.LAST)
                elif not isinstance(operand, _Of):
                    operand = _Of(SourceA.REGISTER, operand)
                word |= {name: int(operand.number), f"page_{name}": operand.page}
                source = SourceA if name == "a" else SourceB
                word[f"source_{name}"] = source(operand.source.value)
                plain = word[f"source_{name}"].name in ("REGISTER", "MANTISSA")
                if number and plain and operand.number == _written(lines[number - 1]):
                    raise AssertionError(f"line {number} reads {operand.number} too early")
            program.append(word)
    if len(program) > 1 << PC_WIDTH:
        raise AssertionError(f"{len(program)} instructions do not fit")
    return tuple(program), *places


#: The program, and where the ones of rows and of the batch's end begin.
PROGRAM, ROW, CLOSING = _assemble()
