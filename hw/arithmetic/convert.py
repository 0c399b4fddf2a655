"""Conversion of results to the operand format: float32 to a smaller float, int32 to an integer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLOAT32
from hw.primitives.pipeline import register

from .float_round import classify

__all__ = ["FloatConverter", "Requantizer"]


class FloatConverter(wiring.Component):
    """Round float32 to a smaller format, nearest, ties to even, one number per cycle.

    Subnormal inputs count as zeros with their sign. As if the exponent had no limits, then
    magnitudes beyond the format become infinity (overflow, inexact) and those below its smallest
    normal number zeros with their sign (underflow, inexact). NaN is canonical.

    Parameters
    ----------
    fmt : FloatFormat
        At most 22 bits of fraction.

    Attributes
    ----------
    LATENCY : int
        2 cycles.

    Members
    -------
    i : In(32)
    o : Out(fmt.width)
    flags : Out(4) -- invalid (never), overflow, underflow, inexact from bit 0 up
    """

    LATENCY = 2

    def __init__(self, fmt):
        if fmt.mantissa_bits >= FLOAT32.mantissa_bits:
            raise ValueError(
                f"Format must have less than {FLOAT32.mantissa_bits} bits of fraction, "
                f"not {fmt.mantissa_bits}"
            )
        self._format = fmt
        super().__init__({"i": In(32), "o": Out(fmt.width), "flags": Out(4)})

    def elaborate(self, platform):
        m = Module()
        fmt = self._format
        drop = FLOAT32.mantissa_bits - fmt.mantissa_bits
        kind = classify(self.i)

        # Cycle 1: round; a carry out of the fraction goes on into the exponent.
        guard, sticky = self.i[drop - 1], self.i[: drop - 1].any()
        up = guard & (sticky | self.i[drop])
        rounded = register(m, (self.i[drop:31] + up)[: 31 - drop], name="rounded")
        sign = register(m, self.i[31], name="sign")
        special = register(m, Cat(kind.zero, kind.infinite, kind.nan, guard | sticky), name="kind")
        zero, infinite, nan, inexact = special

        # Cycle 2: limits of the exponent, in float32's bias.
        exponent = rounded[fmt.mantissa_bits :]
        offset = FLOAT32.bias - fmt.bias
        finite = ~(zero | infinite | nan)
        over = finite & (exponent >= fmt.exponent_max + offset)
        under = finite & (exponent <= offset)
        fraction = Signal(fmt.mantissa_bits, reset_less=True)
        code = Signal(fmt.exponent_bits, reset_less=True)
        m.d.sync += [fraction.eq(rounded), code.eq(exponent - offset)]
        with m.If(over | infinite | nan | under | zero):
            m.d.sync += fraction.eq(Mux(nan, 1 << (fmt.mantissa_bits - 1), 0))
        with m.If(under | zero):
            m.d.sync += code.eq(0)
        with m.If(over | infinite | nan):
            m.d.sync += code.eq(fmt.exponent_max)
        flags = Cat(Const(0, 1), over, under, (finite & inexact) | over | under)
        m.d.comb += [
            self.o.eq(Cat(fraction, code, register(m, sign & ~nan, name="sign_out"))),
            self.flags.eq(register(m, flags, name="flags_out")),
        ]
        return m


class Requantizer(wiring.Component):
    """``o = saturate(round(i * multiplier / 2 ** shift))``, one number per cycle.

    The product is exact, rounding is to the nearest integer, ties to even.

    Parameters
    ----------
    fmt : IntFormat

    Attributes
    ----------
    LATENCY : int
        6 cycles.
    MAX_SHIFT : int
        Largest shift, 47.

    Members
    -------
    i : In(signed(32))
    multiplier : In(16) -- constant while numbers are under way, like ``shift``
    shift : In(6) -- 0 to ``MAX_SHIFT``
    o : Out(fmt.width)
    flags : Out(4) -- invalid (never), overflow (saturated), underflow (never), inexact
    """

    LATENCY = 6
    MAX_SHIFT = 47

    def __init__(self, fmt):
        self._format = fmt
        super().__init__(
            {
                "i": In(signed(32)),
                "multiplier": In(16),
                "shift": In(6),
                "o": Out(fmt.width),
                "flags": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._format.width

        # Cycles 1 and 2: the product, in two halves.
        low = register(m, self.i[:16] * self.multiplier, name="low")
        high = register(m, self.i[16:].as_signed() * self.multiplier, name="high")
        upper = register(m, (high + low[16:])[:32].as_signed(), name="upper")
        lower = register(m, low[:16], name="lower")

        # Cycle 3: shift by multiples of 16. One bit behind the point is kept, the guard; ones that
        # fall out below it are remembered.
        product = Cat(Const(0, 1), lower, upper).as_signed()
        coarse = self.shift[4:]
        shifted = register(
            m, Mux(coarse[1], product >> 32, Mux(coarse[0], product >> 16, product)), name="coarse"
        )
        sticky = register(
            m,
            (coarse.any() & product[:16].any()) | (coarse[1] & product[16:32].any()),
            name="sticky",
        )

        # Cycle 4: shift by up to 15.
        fine = self.shift[:4]
        keep = width + 2
        value = register(m, shifted >> fine, name="fine")
        lost = Const(0)
        for bit in range(15):
            lost = lost | (shifted[bit] & (fine > bit))
        sticky = register(m, sticky | lost, name="sticky_fine")

        # Cycle 5: round the low bits; the bits above tell whether they are all of it.
        guard, integer = value[0], value[1:keep].as_signed()
        rounded = register(
            m, (integer + (guard & (sticky | integer[0])))[: width + 2].as_signed(), name="rounded"
        )
        negative = value[-1]
        outside = register(
            m, (value[keep - 1 :] != negative.replicate(len(value) - keep + 1)), name="outside"
        )
        negative = register(m, negative, name="negative")
        inexact = register(m, guard | sticky, name="inexact")

        # Cycle 6: saturate.
        saturate = outside | ~((rounded[width - 1 :] == 0) | (rounded[width - 1 :].all()))
        limit = Cat((~negative).replicate(width - 1), negative)
        result = register(m, Mux(saturate, limit, rounded[:width]), name="result")
        flags = Cat(Const(0, 1), saturate, Const(0, 1), saturate | inexact)
        m.d.comb += [self.o.eq(result), self.flags.eq(register(m, flags, name="flags_out"))]
        return m
