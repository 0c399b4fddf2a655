"""Float32 multiplier."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.pipeline import delay, register

from .float_round import FloatPacker, classify

__all__ = ["FloatMultiplier"]


class FloatMultiplier(wiring.Component):
    """``o = a * b`` in float32, rounded once, nearest, ties to even.

    Subnormal operands count as zeros with their sign, results below the smallest normal number
    (after rounding) become zeros with their sign. NaN is canonical. One product per cycle, without
    handshake: ``o`` and ``flags`` belong to the operands of :attr:`LATENCY` cycles before.

    The significands are multiplied in four pieces of at most 18 x 18 bits, the size of the
    multipliers of common FPGAs, between registers of their own: what surrounds a multiplier block
    may be far from it.

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

        # Cycle 1: the operands; cycle 2: partial products, sum of exponents, special cases.
        a_bits = register(m, self.a, name="a_bits")
        b_bits = register(m, self.b, name="b_bits")
        a, b = classify(a_bits), classify(b_bits)
        a_low, a_high = a_bits[:18], Cat(a_bits[18:23], Const(1))
        b_low, b_high = b_bits[:18], Cat(b_bits[18:23], Const(1))
        low = register(m, a_low * b_low, name="low")
        middle_a = register(m, a_high * b_low, name="middle_a")
        middle_b = register(m, a_low * b_high, name="middle_b")
        high = register(m, a_high * b_high, name="high")
        exponent_sum = register(m, a_bits[23:31] + b_bits[23:31], name="exponent_sum")
        sign = a_bits[31] ^ b_bits[31]
        zero = a.zero | b.zero
        infinite = a.infinite | b.infinite
        invalid = zero & infinite
        special = Cat(sign, zero, infinite, a.nan | b.nan | invalid, invalid & ~a.nan & ~b.nan)

        # Cycle 3: the two middle products together.
        middle = register(m, middle_a + middle_b, name="middle")
        outer = register(m, Cat(low[18:], high), name="outer")
        sticky = register(m, low[:18].any(), name="sticky")
        exponent = register(m, (exponent_sum - 127).as_signed(), name="exponent")

        # Cycle 4: bits 18 and up of the product. It is below 4; its leading bit is bit 29 or 28.
        product = register(m, (outer + middle)[:30], name="product")
        sticky = register(m, sticky, name="sticky_product")
        exponent_low = register(m, exponent, name="exponent_low")
        exponent_high = register(m, (exponent + 1)[:10].as_signed(), name="exponent_high")

        two = product[29]
        m.d.comb += [
            packer.significand.eq(Mux(two, product[5:30], product[4:29])),
            packer.sticky.eq(sticky | product[:4].any() | (two & product[4])),
            packer.exponent.eq(Mux(two, exponent_high, exponent_low)),
            Cat(packer.sign, packer.zero, packer.infinite, packer.nan, packer.invalid).eq(
                delay(m, special, 3, name="special", reset=True)
            ),
            self.o.eq(packer.o),
            self.flags.eq(packer.flags),
        ]
        return m
