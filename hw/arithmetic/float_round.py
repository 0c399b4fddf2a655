"""The common end of the float32 units: rounding, range check, special values."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLOAT32
from hw.primitives.pipeline import register

__all__ = ["FloatPacker", "classify"]


def classify(bits):
    """What the float32 number ``bits`` is: a struct of ``zero`` (or subnormal), ``infinite``,
    ``nan``."""
    ones = bits[23:31].all()
    fraction = bits[:23].any()
    layout = data.StructLayout({"zero": 1, "infinite": 1, "nan": 1})
    return data.View(layout, Cat(~bits[23:31].any(), ones & ~fraction, ones & fraction))


class FloatPacker(wiring.Component):
    """Round a normalised significand to float32 and pack it, one number per cycle.

    Nearest, ties to even, as if the exponent had no limits. Then magnitudes of 2**128 or more
    become infinity (overflow, inexact) and those below 2**-126 become zero with their sign
    (underflow, inexact).

    Attributes
    ----------
    LATENCY : int
        2 cycles.

    Members
    -------
    sign : In(1)
    exponent : In(signed(10)) -- with the bias of float32; 1 to 254 is the normal range
    significand : In(25) -- leading one, 23 bits of fraction, and the bit behind them
    sticky : In(1) -- something non-zero follows
    zero, infinite, nan : In(1) -- the result is that instead, the last one wins; no other flags
    invalid : In(1) -- raise the invalid flag (with ``nan``)
    o : Out(32)
    flags : Out(4) -- invalid, overflow, underflow, inexact from bit 0 up
    """

    LATENCY = 2

    sign: In(1)
    exponent: In(signed(10))
    significand: In(25)
    sticky: In(1)
    zero: In(1)
    infinite: In(1)
    nan: In(1)
    invalid: In(1)
    o: Out(32)
    flags: Out(4)

    def elaborate(self, platform):
        m = Module()

        # Cycle 1: a carry out of the fraction goes on into the exponent.
        guard = self.significand[0]
        up = guard & (self.sticky | self.significand[1])
        number = Cat(self.significand[1:24], self.exponent)
        rounded = register(m, (number + up)[:33], name="rounded")
        inexact = register(m, guard | self.sticky, name="inexact")
        sign = register(m, self.sign, name="sign")
        nan = register(m, self.nan, name="nan")
        infinite = register(m, self.infinite & ~self.nan, name="infinite")
        zero = register(m, self.zero & ~self.infinite & ~self.nan, name="zero")
        invalid = register(m, self.invalid, name="invalid")

        # Cycle 2.
        exponent = rounded[23:].as_signed()
        finite = ~(nan | infinite | zero)
        over = finite & ((exponent[8] & ~exponent[9]) | (exponent[:8].all() & ~exponent[9]))
        under = finite & ((exponent == 0) | exponent[9])
        large = infinite | over | nan
        small = zero | under
        # Set and cleared through the flip-flops' own inputs: large and small exclude each other.
        fraction = Signal(23, reset_less=True)
        exponent_code = Signal(8, reset_less=True)
        m.d.sync += [fraction.eq(rounded), exponent_code.eq(exponent)]
        with m.If(large | small):
            m.d.sync += fraction.eq(Mux(nan, 1 << 22, 0))
        with m.If(small):
            m.d.sync += exponent_code.eq(0)
        with m.If(large):
            m.d.sync += exponent_code.eq(FLOAT32.exponent_max)
        flags = Signal(4, reset_less=True)
        m.d.sync += flags.eq(Cat(invalid, over, under, (inexact & finite) | over | under))
        m.d.comb += [
            self.o.eq(Cat(fraction, exponent_code, register(m, sign & ~nan, name="sign_out"))),
            self.flags.eq(flags),
        ]
        return m
