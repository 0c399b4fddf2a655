"""The exponential of a float32 number, one digit per cycle."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLOAT32
from hw.primitives.pipeline import register

from .multiplier import RegisteredMultiplier

__all__ = ["ExponentialRecurrence", "exponential_constants"]

_FRACTION_BITS = 34
_INTEGER_DIGITS = 8
_FACTORS = 16
_REST_WIDTH = _FRACTION_BITS + _INTEGER_DIGITS

# Steps of two cycles: digits 0 to 23, then the last factor, and before them the operand.
_MULTIPLY, _ADD, _LOAD, _ALIGN, _CONVERT = 24, 25, 26, 27, 31
_STEPS = 32


def exponential_constants() -> tuple[int, list[int]]:
    """With 34 fraction bits: 256 ln 2, rounded down; what the digits subtract, rounded up."""
    with localcontext(Context(prec=60)):
        unit, two = Decimal(2**_FRACTION_BITS), Decimal(2)
        values = [two.ln() * 2**j for j in reversed(range(_INTEGER_DIGITS))]
        values += [(1 + two**-k).ln() for k in range(1, _FACTORS + 1)]
        top = int((two.ln() * unit * 2**_INTEGER_DIGITS).to_integral_value(ROUND_FLOOR))
        return top, [int((value * unit).to_integral_value(ROUND_CEILING)) for value in values]


class ExponentialRecurrence(wiring.Component):
    """e to the power of ``a``, of a finite float32 number, not yet rounded.

    ``a`` becomes a fixed-point number x, negative ones become ``256 ln 2 + a``. The digits
    subtract 128 ln 2, 64 ln 2, ... ln 2 (these make the exponent) and ln(1 + 2**-k) for k from 1
    to 16 if that leaves something that is not negative; every digit 1 of the latter multiplies the
    result by 1 + 2**-k with a shift and an addition. The result is at last multiplied by 1 + the
    rest. Every rounding is towards a smaller result and the constants are rounded so, by which it
    grows with ``a`` (docs/numerics.md).

    Magnitudes of 128 and more give an exponent that is too large or too small for float32. NaN and
    infinities give a result without meaning after the same time. One operation at a time; idle
    after reset.

    Attributes
    ----------
    LATENCY : int
        64 cycles, from ``start`` to ``done``.

    Members
    -------
    start : In(1) -- with the operand, while nothing is under way
    a : In(32)
    done : Out(1) -- the result stands; until the next ``start``
    exponent : Out(signed(10)) -- with the bias of float32
    significand : Out(25) -- leading one and 24 bits of fraction
    sticky : Out(1) -- something non-zero follows: always, unless ``a`` is zero
    """

    LATENCY = 2 * _STEPS

    start: In(1)
    a: In(32)
    done: Out(1)
    exponent: Out(signed(10))
    significand: Out(25)
    sticky: Out(1)

    def elaborate(self, platform):
        m = Module()
        top, constants = exponential_constants()
        running, second = Signal(), Signal()
        step = Signal(5)
        with m.If(running):
            m.d.sync += [second.eq(~second), step.eq(step + second)]
            with m.If(second & (step == _ADD)):
                m.d.sync += [running.eq(0), self.done.eq(1)]
        with m.If(self.start):
            m.d.sync += [running.eq(1), second.eq(1), step.eq(_LOAD), self.done.eq(0)]
        integer = ~step[3] & ~step[4]
        fraction = step[3] ^ step[4]

        # The operand as a fixed-point number: 41 bits, shifted right by up to 63.
        code = self.a[23:31]
        zero = ~code.any()
        distance = Signal(signed(9))
        m.d.comb += distance.eq(FLOAT32.bias + 6 - code)
        negative = Signal(reset_less=True)
        nonzero = Signal(reset_less=True)
        huge = Signal(reset_less=True)
        # For this step and the next ones, from _LOAD on.
        align = Signal(5)
        # One less than what the shifter shifts by. Aligning by 16: for bit 4 of the distance once,
        # for bit 5 twice.
        amount = Signal(4, reset_less=True)
        with m.If(second):
            m.d.sync += align.eq(align >> 1)
            with m.If(step == _ALIGN):
                m.d.sync += amount.eq(15)
            with m.If(fraction | (step == _INTEGER_DIGITS - 1)):
                m.d.sync += amount.eq(amount + 1)
        with m.If(self.start):
            m.d.sync += [
                align.eq(Cat(Const(0b11, 2), distance[4], distance[5].replicate(2))),
                amount.eq(distance),
                negative.eq(self.a[31] & ~zero),
                nonzero.eq(~zero),
                huge.eq(distance < 0),
            ]

        # Digits: compared in the first cycle, subtracted in the second.
        power = Signal(_REST_WIDTH, reset_less=True)
        rest = Signal(_REST_WIDTH, reset_less=True)
        exponent = Signal(_INTEGER_DIGITS, reset_less=True)
        convert = Signal()
        m.d.comb += convert.eq(step == _CONVERT)
        ones = (1 << _REST_WIDTH) - 1
        table = [ones - value for value in constants[1:]] + [0] * (_STEPS - len(constants))
        table = Array(Const(value, _REST_WIDTH) for value in [*table, ones - constants[0]])
        operand = Signal(_REST_WIDTH, reset_less=True)
        with m.If(second):
            m.d.sync += operand.eq(table[step])
        with m.If(convert & ~second):
            m.d.sync += operand.eq(power ^ negative.replicate(_REST_WIDTH))
        difference = Signal(_REST_WIDTH + 1)
        m.d.comb += difference.eq((Cat(Const(1), rest) + Cat(~convert, operand))[1:])
        digit = register(m, difference[-1], name="digit")
        with m.If(second & (convert | ((integer | fraction) & digit))):
            m.d.sync += rest.eq(difference)
        with m.If(second & integer):
            m.d.sync += exponent.eq(Cat(digit, exponent))
        # It follows the operand until there is something to do: ``start`` may come late.
        with m.If(~running):
            m.d.sync += rest.eq(Mux(self.a[31] & ~zero, top, 0))

        # The product: shifted in the first cycle, added in the second. An operand is moved by
        # adding it to zero.
        m.submodules.multiplier = multiplier = RegisteredMultiplier(18, 18, is_signed=False)
        m.d.comb += [multiplier.a.eq(power[17:35]), multiplier.b.eq(rest[:18])]
        addend = Signal(_REST_WIDTH, reset_less=True)
        with m.If(~second):
            m.d.sync += addend.eq(
                Mux(step == _ADD, multiplier.o[17:], _shift_right(m, power, amount))
            )
        with m.If(second & (align[0] | (fraction & digit) | (step == _ADD))):
            m.d.sync += power.eq(power + addend)
        with m.If(~second & align[0]):
            m.d.sync += power.eq(0)
        with m.If(second & convert):
            m.d.sync += power.eq(1 << _FRACTION_BITS)
        with m.If(self.start):
            # One place further left than x: the first shift is by one too much. Beyond the range
            # of the shift x is 0: too small to count, or huge.
            m.d.sync += [power.eq(0), addend.eq(Cat(Const(0, 18), self.a[:23], Const(1)))]
            with m.If(zero | distance[6:].any()):
                m.d.sync += addend.eq(0)

        signs = Cat(exponent, negative ^ huge, negative).as_signed()
        m.d.comb += [
            self.exponent.eq(signs + FLOAT32.bias),
            self.significand.eq(power[10:35]),
            self.sticky.eq(nonzero),
        ]
        return m


def _shift_right(m, value, amount):
    """``value`` shifted right by one more than ``amount``."""
    value = value[1:]
    for stage in range(len(amount)):
        shifted = Signal(_REST_WIDTH - 1, name=f"shifted_{1 << stage}")
        m.d.comb += shifted.eq(Mux(amount[stage], value >> (1 << stage), value))
        value = shifted
    return value
