"""Division and square root of significands, one digit per cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLOAT32

__all__ = ["DigitRecurrence"]

_DIGITS = FLOAT32.mantissa_bits + 2


class DigitRecurrence(wiring.Component):
    """``a / b`` or the square root of ``a``, of positive normal float32 numbers, not yet rounded.

    Restoring recurrence with digits 0 and 1. With R the scaled remainder, S the result so far and
    2**-j the weight of the next digit, both operations subtract from 2 R if that is not negative:
    a division the divisor, a square root ``2 S + 2**-j``; this makes the digit 1. R starts with
    half the dividend or radicand, which is doubled first where that brings the result to between 1
    and 2; for a division the subtraction tells, in a cycle of its own.

    Operands outside of the normal numbers give a result without meaning after the same time. Signs
    are not looked at. One operation at a time; idle after reset.

    Attributes
    ----------
    LATENCY : int
        27 cycles, from ``start`` to ``done``.

    Members
    -------
    start : In(1) -- with the operands, while nothing is under way
    root : In(1) -- the square root of ``a``, not a quotient
    a, b : In(32)
    done : Out(1) -- the result stands; until the next ``start``
    exponent : Out(signed(10)) -- with the bias of float32
    significand : Out(25) -- leading one and 24 bits of fraction
    sticky : Out(1) -- something non-zero follows
    """

    LATENCY = _DIGITS + 2

    start: In(1)
    root: In(1)
    a: In(32)
    b: In(32)
    done: Out(1)
    exponent: Out(signed(10))
    significand: Out(_DIGITS)
    sticky: Out(1)

    def elaborate(self, platform):
        m = Module()
        running = Signal()
        prepare = Signal()
        root = Signal(reset_less=True)
        divisor = Signal(_DIGITS, reset_less=True)
        remainder = Signal(_DIGITS + 1, reset_less=True)
        result = Signal(_DIGITS, reset_less=True)
        weight = Signal(_DIGITS, reset_less=True)
        exponent = Signal(signed(10), reset_less=True)

        # All with 24 fraction bits.
        twice = Cat(Const(0, 1), remainder)
        subtrahend = Mux(root, Cat(Const(0, 1), result) | weight, divisor)
        difference = Signal(_DIGITS + 3)
        m.d.comb += difference.eq(twice - subtrahend)
        digit = ~difference[-1]
        scale = prepare & ~root & ~digit
        with m.If((running & ~prepare) | scale):
            m.d.sync += remainder.eq(Mux(digit, difference, twice))
        with m.If(scale):
            m.d.sync += exponent.eq(exponent - 1)
        with m.If(running):
            m.d.sync += prepare.eq(0)
        with m.If(running & ~prepare):
            m.d.sync += [
                result.eq(result | (weight & digit.replicate(_DIGITS))),
                weight.eq(weight >> 1),
                running.eq(~weight[0]),
                self.done.eq(weight[0]),
            ]

        a_exponent, b_exponent = self.a[23:31], self.b[23:31]
        bias = FLOAT32.bias
        with m.If(self.start):
            m.d.sync += [
                running.eq(1),
                prepare.eq(1),
                self.done.eq(0),
                root.eq(self.root),
                divisor.eq(Cat(Const(0, 1), self.b[:23], Const(1, 1))),
                # Radicands with an odd exponent are twice as large.
                remainder.eq(Cat(self.a[:23], Const(1, 1)) << (self.root & ~self.a[23])),
                result.eq(0),
                weight.eq(1 << (_DIGITS - 1)),
                exponent.eq(
                    Mux(self.root, (a_exponent + bias) >> 1, a_exponent - b_exponent + bias)
                ),
            ]
        m.d.comb += [
            self.exponent.eq(exponent),
            self.significand.eq(result),
            self.sticky.eq(remainder.any()),
        ]
        return m
