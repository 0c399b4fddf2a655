"""The program of the loss unit: operations on its registers, in the order of docs/training.md."""

import enum
import math
import struct
from dataclasses import dataclass

from amaranth.lib import data
from amaranth.lib import enum as hdl_enum

__all__ = ["CONSTANTS", "Control", "ENTRIES", "Instruction", "Operation", "PROGRAM", "Register"]


class Operation(hdl_enum.Enum, shape=4):
    """What one instruction does. ``r``: its destination, ``a`` and ``b``: its operands."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    #: e to the power of a.
    EXPONENTIAL = 4
    #: r = a if a is NaN or larger than r (which is b) or this is the first number of the row.
    MAXIMUM = 5
    #: a divided by the power of two that brings it between sqrt(1/2) and sqrt(2) ...
    MANTISSA = 6
    #: ... and 2**23 plus that power's exponent. Of NaN: NaN and anything.
    EXPONENT = 7
    #: r = +0
    ZERO = 8
    #: The next number of the row of outputs, of the row of targets; the label.
    READ_X = 9
    READ_TARGET = 10
    READ_LABEL = 11
    #: a rounded to an operand, a itself, onto the row being written.
    ROUND = 12
    EMIT = 13
    #: Fill up the row being written and wait until it is.
    FLUSH = 14


class Control(hdl_enum.Enum, shape=3):
    """What follows an instruction."""

    NEXT = 0
    #: The target, for every number of the row; then the next instruction, at the row's start again.
    NUMBERS = 1
    #: The target until the index of the partial sum written is 0 again.
    SUMS = 2
    #: The target if all rows are finished.
    IF_CLOSING = 3
    #: The row program of the command's loss.
    ENTER = 4
    #: The same for every row of the command; then the target, if it is the last command of a batch.
    ROWS = 5
    #: The next instruction; what is written goes to the value row from now on.
    SEEK = 6
    END = 7


class Register(enum.IntEnum):
    """Operands and destinations. Bit 5: a constant; bit 4: a register; else a partial sum."""

    # Sums over the rows while closing, else over the row.
    SUM0, SUM1, SUM2, SUM3, SUM4, SUM5, SUM6, SUM7 = range(8)
    #: The next partial sum over the row, and over the rows; written, the one behind is next.
    ROW_SUM = 8
    ALL_SUM = 9

    A, B, C, X, LARGEST, TOTAL, POWER, CORRECT = range(16, 24)
    #: Distance to the maximum; where the label is, DISTANCE is DISTANCE_LABEL.
    DISTANCE = 30
    DISTANCE_LABEL = 31

    #: 1 at the label, else 0; 1 if the largest output is the label's, else 0.
    HOT = 32
    CORRECT_NOW = 33
    ONE = 34
    NINTH = 35
    SEVENTH = 36
    FIFTH = 37
    THIRD = 38
    LN2_LOW = 39
    LN2_HIGH = 40
    EXPONENT_OFFSET = 41
    GRADIENT_SCALE = 42
    VALUE_SCALE = 43


def _bits(value):
    return int.from_bytes(struct.pack("<f", value), "little")


#: ln 2 in 15 bits, whose products with exponents are exact.
_LN2 = 0x58B9 / 2**15

#: Float32 bits of the constants that never change.
CONSTANTS = {
    Register.ONE: _bits(1.0),
    Register.NINTH: _bits(1 / 9),
    Register.SEVENTH: _bits(1 / 7),
    Register.FIFTH: _bits(1 / 5),
    Register.THIRD: _bits(1 / 3),
    Register.LN2_LOW: _bits(math.log(2.0) - _LN2),
    Register.LN2_HIGH: _bits(_LN2),
    Register.EXPONENT_OFFSET: _bits(2.0**23),
}

#: Bits of a target: up to 64 instructions.
TARGET_WIDTH = 6


class Instruction(data.Struct):
    """One word of the program."""

    operation: Operation
    r: 6
    a: 6
    b: 6
    control: Control
    target: TARGET_WIDTH


@dataclass(frozen=True)
class _Line:
    operation: Operation
    r: Register = Register.SUM0
    a: Register = Register.SUM0
    b: Register = Register.SUM0
    control: Control = Control.NEXT
    target: str | None = None
    label: str | None = None


def _lines():
    """The program; what each line computes is written r = a (operation) b."""
    R, C, line = Register, Control, _Line
    add, sub, mul, div = list(Operation)[:4]
    op = Operation
    return (
        # A new batch.
        line(op.ZERO, R.ALL_SUM, control=C.SUMS, target="batch", label="batch"),
        line(op.ZERO, R.CORRECT, control=C.ENTER),
        # Cross-entropy of one image: the maximum.
        line(op.READ_LABEL, label="cross_entropy"),
        line(op.ZERO, R.ROW_SUM, control=C.SUMS, target="clear", label="clear"),
        line(op.READ_X, R.X, label="maximum"),
        line(op.MAXIMUM, R.LARGEST, R.X, R.LARGEST, C.NUMBERS, "maximum"),
        line(add, R.CORRECT, R.CORRECT, R.CORRECT_NOW),
        # Powers and their sum.
        line(op.READ_X, R.X, label="power"),
        line(sub, R.DISTANCE, R.X, R.LARGEST),
        line(op.EXPONENTIAL, R.POWER, R.DISTANCE),
        line(add, R.ROW_SUM, R.ROW_SUM, R.POWER, C.NUMBERS, "power"),
        # The eight partial sums together.
        line(add, R.SUM0, R.SUM0, R.SUM1, label="tree"),
        line(add, R.SUM2, R.SUM2, R.SUM3),
        line(add, R.SUM4, R.SUM4, R.SUM5),
        line(add, R.SUM6, R.SUM6, R.SUM7),
        line(add, R.SUM0, R.SUM0, R.SUM2),
        line(add, R.SUM4, R.SUM4, R.SUM6),
        line(add, R.TOTAL, R.SUM0, R.SUM4, C.IF_CLOSING, "value"),
        # Logarithm of the total, which is 1 or more, or NaN: t in A, t * t in B.
        line(op.MANTISSA, R.A, R.TOTAL),
        line(sub, R.B, R.A, R.ONE),
        line(add, R.A, R.A, R.ONE),
        line(div, R.A, R.B, R.A),
        line(mul, R.B, R.A, R.A),
        # The polynomial, in C.
        line(mul, R.C, R.B, R.NINTH),
        line(add, R.C, R.C, R.SEVENTH),
        line(mul, R.C, R.C, R.B),
        line(add, R.C, R.C, R.FIFTH),
        line(mul, R.C, R.C, R.B),
        line(add, R.C, R.C, R.THIRD),
        line(mul, R.C, R.C, R.B),
        # 2t + 2t * polynomial, in A; doubling is exact.
        line(add, R.A, R.A, R.A),
        line(mul, R.C, R.A, R.C),
        line(add, R.A, R.A, R.C),
        # The exponent, in B.
        line(op.EXPONENT, R.B, R.TOTAL),
        line(sub, R.B, R.B, R.EXPONENT_OFFSET),
        line(mul, R.C, R.B, R.LN2_LOW),
        line(add, R.A, R.A, R.C),
        line(mul, R.B, R.B, R.LN2_HIGH),
        line(add, R.A, R.B, R.A),
        # Loss of the image.
        line(sub, R.A, R.A, R.DISTANCE_LABEL),
        line(add, R.ALL_SUM, R.ALL_SUM, R.A),
        # Gradient.
        line(op.READ_X, R.X, label="gradient"),
        line(sub, R.DISTANCE, R.X, R.LARGEST),
        line(op.EXPONENTIAL, R.POWER, R.DISTANCE),
        line(div, R.POWER, R.POWER, R.TOTAL),
        line(sub, R.POWER, R.POWER, R.HOT),
        line(mul, R.POWER, R.POWER, R.GRADIENT_SCALE),
        line(op.ROUND, a=R.POWER, control=C.NUMBERS, target="gradient"),
        line(op.FLUSH, control=C.ROWS, target="tree"),
        # Squared error of one row.
        line(op.READ_TARGET, R.A, label="squared_error"),
        line(op.READ_X, R.X),
        line(sub, R.X, R.X, R.A),
        line(mul, R.A, R.X, R.X),
        line(add, R.ALL_SUM, R.ALL_SUM, R.A),
        line(mul, R.X, R.X, R.GRADIENT_SCALE),
        line(op.ROUND, a=R.X, control=C.NUMBERS, target="squared_error"),
        line(op.FLUSH, control=C.ROWS, target="tree"),
        # The value row.
        line(mul, R.TOTAL, R.TOTAL, R.VALUE_SCALE, C.SEEK, label="value"),
        line(op.EMIT, a=R.TOTAL),
        line(op.EMIT, a=R.CORRECT),
        line(op.FLUSH, control=C.END),
    )


def _assemble():
    lines = _lines()
    if len(lines) > 1 << TARGET_WIDTH:
        raise AssertionError(f"{len(lines)} instructions do not fit")
    labels = {line.label: number for number, line in enumerate(lines) if line.label}
    program = tuple(
        {
            "operation": line.operation,
            "r": int(line.r),
            "a": int(line.a),
            "b": int(line.b),
            "control": line.control,
            "target": labels[line.target] if line.target else 0,
        }
        for line in lines
    )
    return program, {name: labels[name] for name in ("batch", "cross_entropy", "squared_error")}


#: Initial values of :class:`Instruction`, and the places where execution starts.
PROGRAM, ENTRIES = _assemble()
