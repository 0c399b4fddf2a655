"""Float32 adder."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.pipeline import delay, register

from .float_round import FloatPacker, classify

__all__ = ["FloatAdder"]


class FloatAdder(wiring.Component):
    """``o = a + b`` in float32, rounded once, nearest, ties to even.

    Subnormal operands count as zeros with their sign, results below the smallest normal number
    become zeros with their sign. An exact zero is +0 unless both operands are negative. NaN is
    canonical. One sum per cycle, without handshake: ``o`` and ``flags`` belong to the operands of
    :attr:`LATENCY` cycles before.

    Attributes
    ----------
    LATENCY : int
        6 cycles.

    Members
    -------
    a, b : In(32)
    o : Out(32)
    flags : Out(4) -- invalid, overflow, underflow, inexact from bit 0 up
    """

    LATENCY = 4 + FloatPacker.LATENCY

    a: In(32)
    b: In(32)
    o: Out(32)
    flags: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = packer = FloatPacker()

        # Cycle 1: order by magnitude, distance of the exponents, special cases.
        swap = Signal()
        m.d.comb += swap.eq(self.a[:31] < self.b[:31])
        exponent_a, exponent_b = self.a[23:31], self.b[23:31]
        distance = register(
            m,
            Mux(swap, (exponent_b - exponent_a)[:8], (exponent_a - exponent_b)[:8]),
            name="distance",
        )
        a, b = classify(self.a), classify(self.b)
        big = Mux(swap, self.b, self.a)
        small = Mux(swap, self.a, self.b)
        both_zero = a.zero & b.zero
        big_fraction = register(m, big[:23], name="big_fraction")
        big_one = register(m, ~both_zero, name="big_one")
        small_significand = Signal(24, reset_less=True)
        m.d.sync += small_significand.eq(Cat(small[:23], Const(1)))
        with m.If(a.zero | b.zero):
            m.d.sync += small_significand.eq(0)
        exponent = big[23:31]
        subtract = self.a[31] ^ self.b[31]
        clash = a.infinite & b.infinite & subtract
        special = Cat(
            a.infinite | b.infinite, a.nan | b.nan | clash, clash, self.a[31] & self.b[31]
        )

        # Cycle 2: align the smaller one; two bits behind the last place and a sticky bit.
        wide = Cat(Const(0, 2), small_significand)
        shifted = Signal(26)
        lost = Signal()
        _shift_right(m, wide, distance[:5], shifted, lost)
        far = distance[5:].any()
        aligned = Signal(27, reset_less=True)
        m.d.sync += aligned.eq(Cat(lost, shifted))
        with m.If(far):
            m.d.sync += aligned.eq(small_significand[23])
        big_significand = register(
            m, Cat(big_fraction & big_one.replicate(23), big_one), name="big_significand"
        )
        subtract = delay(m, register(m, subtract, name="subtract"), 1, name="subtract", reset=True)

        # Cycle 3: add or subtract. The sum is positive: the bigger one comes first.
        total = Signal(28)
        operand = aligned ^ subtract.replicate(27)
        minuend = Cat(Const(0, 3), big_significand)
        m.d.comb += total.eq((Cat(Const(1), minuend) + Cat(subtract, operand, subtract))[1:29])
        total_register = register(m, total, name="total")
        # Index of the first group of four bits that is not zero, from the top.
        groups = [total[28 - 4 * i - 4 : 28 - 4 * i].any() for i in range(7)]
        coarse = Const(6, 3)
        for index in reversed(range(6)):
            coarse = Mux(groups[index], index, coarse)
        coarse = register(m, coarse[:3], name="coarse")
        nothing = register(m, ~total.any(), name="nothing")

        # Cycle 4: normalise.
        by_groups = Signal(28)
        m.d.comb += by_groups.eq(_shift_groups(total_register, coarse))
        top = by_groups[24:]
        fine = Mux(top[3], 0, Mux(top[2], 1, Mux(top[1], 2, 3)))[:2]
        normal = register(m, (by_groups << fine)[:28], name="normal")
        exponent = delay(m, register(m, exponent, name="exponent"), 2, name="exponent", reset=True)
        exponent = register(
            m, (exponent + 1 - Cat(fine, coarse))[:10].as_signed(), name="exponent_normal"
        )
        nothing = register(m, nothing, name="nothing_normal")

        special = delay(m, special, 4, name="special", reset=True)
        negative = delay(m, big[31], 4, name="negative", reset=True)
        m.d.comb += [
            packer.significand.eq(normal[3:]),
            packer.sticky.eq(normal[:3].any()),
            packer.exponent.eq(exponent),
            packer.zero.eq(nothing),
            Cat(packer.infinite, packer.nan, packer.invalid).eq(special),
            packer.sign.eq(Mux(nothing, special[3], negative)),
            self.o.eq(packer.o),
            self.flags.eq(packer.flags),
        ]
        return m


def _shift_right(m, value, amount, result, lost):
    """Combinational ``result = value >> amount``; ``lost`` tells that ones fell out."""
    dropped = []
    for stage in reversed(range(len(amount))):
        step = 1 << stage
        dropped.append(amount[stage] & value[:step].any())
        shifted = Signal(len(value), name=f"shifted_{step}")
        m.d.comb += shifted.eq(Mux(amount[stage], value >> step, value))
        value = shifted
    m.d.comb += [result.eq(value), lost.eq(Cat(dropped).any())]


def _shift_groups(value, amount):
    """``value`` shifted left by four times ``amount``, within its width."""
    for stage in reversed(range(len(amount))):
        value = Mux(amount[stage], (value << (4 << stage))[: len(value)], value)
    return value
