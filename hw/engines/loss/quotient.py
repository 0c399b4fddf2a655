"""Quotients of positive float32 numbers, one every eight cycles."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.float_round import FloatPacker, classify
from hw.formats import FLOAT32

__all__ = ["QuotientPipeline"]

_STAGES = 4
_DIGITS = 7
_WIDTH = FLOAT32.mantissa_bits + 2


class QuotientPipeline(wiring.Component):
    """``a / b``, correctly rounded, of a zero, a positive number or NaN by a positive number or
    NaN; infinities have no meaning.

    Restoring division, seven digits in each of four stages: two more than a float32 and its guard
    bit need, which tell with the remainder whether the result is exact. A stage loads in ``step``
    0. No handshake, no reset.

    Attributes
    ----------
    LATENCY : int
        35 cycles, from the ``step`` 0 of the operands to the first of eight cycles of the result.

    Members
    -------
    step : In(3) -- counts up
    a, b : In(32) -- taken in step 0
    o : Out(32)
    flags : Out(4) -- invalid (never), overflow, underflow, inexact from bit 0 up
    """

    LATENCY = (_DIGITS + 1) * _STAGES + 1 + FloatPacker.LATENCY

    step: In(3)
    a: In(32)
    b: In(32)
    o: Out(32)
    flags: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = packer = FloatPacker()
        load = self.step == 0
        a, b = classify(self.a), classify(self.b)
        exponent = (self.a[23:31] - self.b[23:31] + FLOAT32.bias).as_signed()
        values = (
            Cat(exponent[:10], a.zero, a.nan | b.nan),
            Cat(self.b[:23], Const(1, 1)),
            Cat(self.a[:23], Const(1, 1)),
            Const(0, 0),
        )
        for stage in range(_STAGES):
            values = self._stage(m, stage, values, load)
        along, _divisor, remainder, digits = values
        # The first digit is 1 unless a's significand is less than b's.
        first = digits[-1]
        significand = Signal(_WIDTH, reset_less=True)
        scale = Signal(signed(10), reset_less=True)
        sticky, kind = Signal(reset_less=True), Signal(2, reset_less=True)
        with m.If(load):
            m.d.sync += [
                significand.eq(Mux(first, digits[3:], digits[2:-1])),
                scale.eq(along[:10].as_signed() - ~first),
                sticky.eq(remainder.any() | digits[:2].any() | (first & digits[2])),
                kind.eq(along[10:]),
            ]
        m.d.comb += [
            packer.significand.eq(significand),
            packer.exponent.eq(scale),
            packer.sticky.eq(sticky),
            Cat(packer.zero, packer.nan).eq(kind),
            self.o.eq(packer.o),
            self.flags.eq(packer.flags),
        ]
        return m

    def _stage(self, m, stage, before, load):
        """Twice the remainder less the divisor, where that is not negative, seven times."""
        along, divisor, remainder, digits = (
            Signal(width, name=f"{name}{stage}", reset_less=True)
            for name, width in (
                ("along", 12),
                ("divisor", _WIDTH - 1),
                ("remainder", _WIDTH),
                ("digits", _DIGITS * (stage + 1)),
            )
        )
        difference = Signal(_WIDTH + 1, name=f"difference{stage}")
        m.d.comb += difference.eq(remainder - divisor)
        digit = ~difference[-1]
        m.d.sync += [
            remainder.eq(Cat(Const(0, 1), Mux(digit, difference, remainder))),
            digits.eq(Cat(digit, digits)),
        ]
        with m.If(load):
            m.d.sync += [
                along.eq(before[0]),
                divisor.eq(before[1]),
                remainder.eq(before[2]),
                digits.eq(before[3]),
            ]
        return along, divisor, remainder, digits
