"""Float32 division, square root and exponential."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .digit_recurrence import DigitRecurrence
from .float_exponential import ExponentialRecurrence
from .float_round import FloatPacker, classify

__all__ = ["FloatSpecial", "SpecialOperation", "SpecialRequest", "SpecialResult"]


class SpecialOperation(enum.Enum, shape=2):
    """What :class:`FloatSpecial` does. The code 3 divides, too."""

    DIVIDE = 0
    SQUARE_ROOT = 1
    EXPONENTIAL = 2


class SpecialRequest(data.Struct):
    """``b`` is the divisor and ignored by the other operations."""

    operation: SpecialOperation
    a: 32
    b: 32


class SpecialResult(data.Struct):
    """Float32 bits; flags: invalid, overflow, underflow, inexact from bit 0 up."""

    bits: 32
    flags: 4


class FloatSpecial(wiring.Component):
    """``a / b``, the square root of ``a`` or e to the power of ``a``, in float32.

    Quotient and root are correctly rounded: nearest, ties to even. The exponential is monotonic
    and less than 0.54 units in the last place off. Subnormal operands count as zeros with their
    sign, results below the smallest normal number (after rounding) become zeros with their sign;
    NaN is canonical. Invalid are 0/0, infinity/infinity and roots of negative numbers; x/0 is an
    infinity without a flag (docs/numerics.md).

    Small rather than fast: one operation at a time. ``i`` is ready when the unit is idle, which it
    is after reset. The result is offered a number of cycles after the operands were accepted that
    depends on the operation only; the unit is idle again in the cycle after the result was taken,
    so operations can follow each other every ``LATENCY + 1`` cycles.

    Attributes
    ----------
    LATENCY : dict[SpecialOperation, int]
        29 cycles for quotients and roots, 66 for exponentials.

    Members
    -------
    i : In(stream.Signature(SpecialRequest))
    o : Out(stream.Signature(SpecialResult))
    """

    LATENCY = {
        SpecialOperation.DIVIDE: DigitRecurrence.LATENCY + FloatPacker.LATENCY,
        SpecialOperation.SQUARE_ROOT: DigitRecurrence.LATENCY + FloatPacker.LATENCY,
        SpecialOperation.EXPONENTIAL: ExponentialRecurrence.LATENCY + FloatPacker.LATENCY,
    }

    i: In(stream.Signature(SpecialRequest))
    o: Out(stream.Signature(SpecialResult))

    def elaborate(self, platform):
        m = Module()
        m.submodules.recurrence = recurrence = DigitRecurrence()
        m.submodules.exponential = exponential = ExponentialRecurrence()
        m.submodules.packer = packer = FloatPacker()

        operation, a_bits, b_bits = (self.i.payload[name] for name in ("operation", "a", "b"))
        is_exponential = operation == SpecialOperation.EXPONENTIAL
        is_root = operation == SpecialOperation.SQUARE_ROOT
        accept = Signal()
        m.d.comb += [
            accept.eq(self.i.valid & self.i.ready),
            recurrence.start.eq(accept & ~is_exponential),
            recurrence.root.eq(is_root),
            recurrence.a.eq(a_bits),
            recurrence.b.eq(b_bits),
            exponential.start.eq(accept & is_exponential),
            exponential.a.eq(a_bits),
        ]

        # Results that the operands' kinds decide; they replace what the recurrences give.
        a, b = classify(a_bits), classify(b_bits)
        negative, negative_b = a_bits[31], b_bits[31]
        outcome = Signal(data.StructLayout(dict.fromkeys(("sign", "zero", "infinite", "nan"), 1)))
        invalid = Signal()
        with m.If(is_exponential):
            m.d.comb += [
                outcome.zero.eq(a.infinite & negative),
                outcome.infinite.eq(a.infinite & ~negative),
                outcome.nan.eq(a.nan),
            ]
        with m.Elif(is_root):
            m.d.comb += [
                invalid.eq(negative & ~a.zero & ~a.nan),
                outcome.sign.eq(negative),
                outcome.zero.eq(a.zero),
                outcome.infinite.eq(a.infinite),
                outcome.nan.eq(a.nan | invalid),
            ]
        with m.Else():
            m.d.comb += [
                invalid.eq((a.zero & b.zero) | (a.infinite & b.infinite)),
                outcome.sign.eq(negative ^ negative_b),
                outcome.zero.eq(a.zero | b.infinite),
                outcome.infinite.eq(a.infinite | b.zero),
                outcome.nan.eq(a.nan | b.nan | invalid),
            ]
        kind = Signal(5, reset_less=True)
        choose = Signal(reset_less=True)
        with m.If(accept):
            m.d.sync += [kind.eq(Cat(outcome, invalid)), choose.eq(is_exponential)]

        def chosen(name):
            return Mux(choose, getattr(exponential, name), getattr(recurrence, name))

        m.d.comb += [
            packer.significand.eq(chosen("significand")),
            packer.exponent.eq(Mux(choose, exponential.exponent, recurrence.exponent).as_signed()),
            packer.sticky.eq(chosen("sticky")),
            Cat(packer.sign, packer.zero, packer.infinite, packer.nan, packer.invalid).eq(kind),
        ]

        # Everything stands still from ``done`` on, so the packer keeps its result.
        busy, packed, valid = Signal(), Signal(), Signal()
        m.d.sync += [packed.eq(busy & chosen("done")), valid.eq(busy & packed)]
        with m.If(accept):
            m.d.sync += busy.eq(1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [busy.eq(0), packed.eq(0), valid.eq(0)]
        m.d.comb += [
            self.i.ready.eq(~busy),
            self.o.valid.eq(valid),
            self.o.payload.bits.eq(packer.o),
            self.o.payload.flags.eq(packer.flags),
        ]
        return m
