"""Normalises and rounds the wide sum of a column to float32."""

from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLAGS_LAYOUT
from hw.primitives.pipeline import delay

__all__ = ["SumRounder"]

_FRACTION = 24  # significand bits of float32


class SumRounder(wiring.Component):
    """``total * 4**grid`` rounded once to float32, nearest, ties to even.

    A negative total is never negated: its one's complement is normalised with ones shifted in, and
    the missing unit in the last place is settled by the rounding decision.

    Throughput 1 per cycle, latency ``LATENCY``, nothing to reset.

    Members
    -------
    total : In
        Signed sum, in units of 4**(``grid`` - ``grid_offset``).
    grid : In
        Grid exponent of the window.
    negate : In
        Round the negative of ``total``.
    lost : In
        Bits were cut before the sum.
    nan, plus_infinity, minus_infinity : In
        Special terms; infinities of both signs make an invalid operation.
    o : Out
        Float32 code.
    flags : Out
        With ``o``.
    """

    LATENCY = 7

    def __init__(self, *, total_width: int, grid_width: int, grid_offset: int):
        self._grid_offset = grid_offset
        super().__init__(
            {
                "total": In(signed(total_width)),
                "grid": In(grid_width),
                "negate": In(1),
                "lost": In(1),
                "nan": In(1),
                "plus_infinity": In(1),
                "minus_infinity": In(1),
                "o": Out(32),
                "flags": Out(FLAGS_LAYOUT),
            }
        )

    def elaborate(self, platform):
        # A pipeline without state: what a register holds, by the stage that its name ends in.
        #
        # stage  registers
        # -----  ------------------------------------------------------------------------------
        # 0      the sum's magnitude (one's complement) v, sign s, exponent e; by_32, by_16: it
        #        begins with so many zeros
        # 1      v shifted by these, zeros z; by_8
        # 2      v shifted by 8 and 4, zeros y
        # 3      v shifted by 2 and 1, zeros x: its first bit is the leading one, or 0
        # 4      fraction f, exponent e less the zeros; up: round up, inexact, zero
        # 5      p: exponent and fraction, rounded; inexact x, zero z
        # 6      o and flags, special values and limits put in
        m = Module()
        width = len(self.total) - 1
        exponent_shape = signed(len(self.grid) + 2)

        stage = partial(_stage, m)

        # Leading zeros of the one's complement magnitude: by 32 or 16, then 8, 4, 2 and 1.
        raw, sign = self.total[:-1], self.total[-1]
        exponent = Signal(exponent_shape)
        m.d.comb += exponent.eq((self.grid << 1) + (width - 1 + 127 - 2 * self._grid_offset))

        def shift_in(value, amount, fill):
            amount = min(amount, width)
            return Cat(fill.replicate(amount), value[: width - amount])

        def leading(value, amount):
            return ~value[max(0, width - amount) :].any()

        magnitude = raw ^ sign.replicate(width)
        by_32 = stage(leading(magnitude, 32), "by_32") if width > 32 else Const(0, 1)
        by_16 = stage(leading(magnitude, 16), "by_16")
        raw, sign, exponent = stage(raw, "v0"), stage(sign, "s0"), stage(exponent, "e0")
        shifted = Mux(
            by_16, shift_in(raw ^ sign.replicate(width), 16, sign), raw ^ sign.replicate(width)
        )
        if width > 32:
            # Of a value with 32 leading zeros, ``by_16`` has moved the rest up by 16.
            shifted = Mux(by_32, shift_in(shifted, 16, sign), shifted)
        zeros = [(by_32, 32), (by_16 & ~by_32, 16)]
        zeros = [(stage(z, f"z{n}"), n) for z, n in zeros]
        by_8 = stage(leading(shifted, 8), "by_8")
        value, sign, exponent = stage(shifted, "v1"), stage(sign, "s1"), stage(exponent, "e1")

        def level(value, amount, sign, by):
            out = Signal(width, name=f"shift_{amount}")
            m.d.comb += out.eq(Mux(by, shift_in(value, amount, sign), value))
            return out

        value = level(value, 8, sign, by_8)
        by_4 = leading(value, 4)
        value = level(value, 4, sign, by_4)
        zeros += [(by_8, 8), (by_4, 4)]
        zeros = [(stage(z, f"y{n}"), n) for z, n in zeros]
        value, sign, exponent = stage(value, "v2"), stage(sign, "s2"), stage(exponent, "e2")
        by_2 = leading(value, 2)
        value = level(value, 2, sign, by_2)
        by_1 = leading(value, 1)
        value = level(value, 1, sign, by_1)
        zeros += [(by_2, 2), (by_1, 1)]
        zeros = [(stage(z, f"x{n}"), n) for z, n in zeros]
        value, sign, exponent = stage(value, "v3"), stage(sign, "s3"), stage(exponent, "e3")

        packed, inexact, zero, sign = self._round(m, value, sign, exponent, zeros)
        self._limit(m, packed, inexact, zero, sign)
        return m

    def _round(self, m, value, sign, exponent, zeros):
        """Stages 4 and 5: exponent and fraction as one number, rounded; whether it is inexact and
        whether it is 0; the sign."""
        width = len(value)
        stage = partial(_stage, m)
        # Rounding decision. For a negative sum the true magnitude is one unit more than ``value``
        # with ones shifted in for ever.
        fraction = value[width - _FRACTION :]
        guard = value[width - _FRACTION - 1]
        rest = value[: width - _FRACTION - 1]
        ones, some = rest.all() & sign, rest.any()
        odd = fraction[0]
        up = Mux(sign, Mux(ones, guard | odd, guard), guard & (some | odd))
        inexact = Mux(sign, ~(ones & guard), guard | some)
        # Shifts sum up to 31 (63 if wider than 32 bits). One more zero can only lead a complemented
        # -1 of 32 bits, whose ones the rounding carries into the place of that zero.
        leading_zeros = Cat(~fraction[-1], *(z for z, _ in reversed(zeros)))
        difference = Signal(signed(len(exponent) + 1))
        next_exponent = difference[1:].as_signed()
        m.d.comb += difference.eq(Cat(Const(0, 1), exponent).as_signed() - leading_zeros)
        zero = ~fraction[-1] & ~sign
        up, inexact, zero = stage(up, "up"), stage(inexact, "inexact"), stage(zero, "zero")
        exponent = stage(next_exponent, "e4")
        fraction, sign = stage(fraction[:-1], "f4"), stage(sign, "s4")

        # Round.
        packed = Signal(signed(len(exponent) + _FRACTION - 1))
        m.d.comb += packed.eq(Cat(fraction, exponent).as_signed() + up)
        packed, inexact, zero = stage(packed, "p5"), stage(inexact, "x5"), stage(zero, "z5")
        sign = stage(sign, "s5")
        return packed, inexact, zero, sign

    def _limit(self, m, packed, inexact, zero, sign):
        """Stage 6: special values and limits."""
        negate, lost, nan, plus, minus = (
            delay(m, s, 6, name=n, reset=False)
            for s, n in (
                (self.negate, "negate"),
                (self.lost, "lost"),
                (self.nan, "nan"),
                (self.plus_infinity, "plus"),
                (self.minus_infinity, "minus"),
            )
        )
        sign = sign ^ negate
        exponent = packed[_FRACTION - 1 :].as_signed()
        special = nan | plus | minus
        # At least 255; at most 0. Spelled out, because comparators would be carry chains.
        large = ~exponent[-1] & (exponent[8:].any() | exponent[:8].all())
        small = exponent[-1] | ~exponent.any()
        overflow = large & ~zero & ~special
        underflow = small & ~zero & ~special
        is_nan = nan | (plus & minus)
        o, flags = Signal(32, reset_less=True), Signal(FLAGS_LAYOUT, reset_less=True)
        m.d.sync += [
            o[:23].eq(packed[:23]),
            o[23:31].eq(exponent[:8]),
            o[31].eq(sign),
            flags.overflow.eq(overflow),
            flags.underflow.eq(underflow),
            flags.inexact.eq((inexact & ~zero | lost | overflow | underflow) & ~special),
            flags.invalid.eq(plus & minus & ~nan),
        ]
        with m.If(special):
            m.d.sync += [o[:22].eq(0), o[22].eq(is_nan), o[23:31].eq(0xFF)]
            m.d.sync += o[31].eq(minus & ~is_nan)
        with m.Elif(overflow):
            m.d.sync += [o[:23].eq(0), o[23:31].eq(0xFF)]
        with m.Elif(zero | underflow):
            m.d.sync += [o[:31].eq(0), o[31].eq(sign & ~zero)]
        m.d.comb += [self.o.eq(o), self.flags.eq(flags)]


def _stage(m, value, name):
    return delay(m, value, 1, name=name, reset=False)
