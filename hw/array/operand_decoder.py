"""Operand decoder: one per array row and operand kind, shared by all columns."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FloatFormat
from hw.primitives.pipeline import delay

__all__ = ["OperandDecoder", "exponent_layout", "significand_layout"]


def exponent_layout(fmt: FloatFormat) -> data.StructLayout:
    """Part of a decoded operand that finds the alignment.

    Members
    -------
    grid : exponent code divided by two (radix-4 exponent)
    zero : the operand is zero or subnormal
    """
    return data.StructLayout({"grid": unsigned(max(1, fmt.exponent_bits - 1)), "zero": 1})


def significand_layout(fmt: FloatFormat) -> data.StructLayout:
    """Part of a decoded operand that is multiplied.

    Members
    -------
    value : significand, shifted left by the lowest bit of the exponent code, so that the magnitude
        of the operand is ``value * 4**grid`` times a constant
    sign : the operand is negative
    zero : as in :func:`exponent_layout`
    infinite : the operand is an infinity or NaN
    """
    return data.StructLayout(
        {"value": unsigned(fmt.significand_bits + 1), "sign": 1, "zero": 1, "infinite": 1}
    )


class OperandDecoder(wiring.Component):
    """Splits a float code into a radix-4 exponent and a significand with its sign.

    The significand leaves ``skew`` cycles after the exponent: the column needs it only when the
    alignment is known. Throughput: one operand per cycle. No reset: outputs follow the input.

    Members
    -------
    code : operand, any cycle
    exponent, nan : valid 1 cycle after ``code``
    significand : valid ``1 + skew`` cycles after ``code``
    """

    def __init__(self, fmt: FloatFormat, *, skew: int):
        self._fmt = fmt
        self._skew = skew
        super().__init__(
            {
                "code": In(fmt.width),
                "exponent": Out(exponent_layout(fmt)),
                "nan": Out(1),
                "significand": Out(significand_layout(fmt)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        fmt = self._fmt
        exponent, mantissa = self.code[fmt.mantissa_bits : -1], self.code[: fmt.mantissa_bits]
        zero, special = exponent == 0, exponent == fmt.exponent_max
        early = Signal.like(self.exponent, reset_less=True)
        nan = Signal(reset_less=True)
        m.d.sync += [
            early.grid.eq(exponent[1:]),
            early.zero.eq(zero),
            nan.eq(special & mantissa.any()),
        ]
        m.d.comb += [self.exponent.eq(early), self.nan.eq(nan)]

        value = Cat(mantissa, Const(1, 1))
        late = Signal.like(self.significand, reset_less=True)
        m.d.sync += [
            late.value.eq(Mux(zero, 0, Mux(exponent[0], value.shift_left(1), value))),
            late.sign.eq(self.code[-1]),
            late.zero.eq(zero),
            late.infinite.eq(special),
        ]
        m.d.comb += self.significand.eq(delay(m, late, self._skew, name="late", reset=False))
        return m
