"""What the instructions of the threads need beside adder and multiplier."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.digit_recurrence import DigitRecurrence
from hw.arithmetic.float_round import FloatPacker, classify
from hw.formats import FLOAT32

from .microcode import CONSTANTS, Constant, Instruction, SourceA, SourceB
from .threads import THREADS

__all__ = ["SlopeDivider", "ThreadOperands"]

#: Fraction of the square root of 2, cut.
_ROOT_FRACTION = 0x3504F3


class ThreadOperands(wiring.Component):
    """Operands of an instruction, combinational.

    Members
    -------
    instruction : In(Instruction), page : In(2) -- and its thread
    register_a, register_b : In(32) -- what it reads
    last : In(32) -- the result of the thread's last instruction
    is_total : In(1) -- that is the total; the mantissa is asked for in the next slot or later
    correct : In(1) -- the largest output of the thread's row is the label's
    value_scale : In(32)
    a, b : Out(32)
    """

    instruction: In(Instruction)
    page: In(2)
    register_a: In(32)
    register_b: In(32)
    last: In(32)
    is_total: In(1)
    correct: In(1)
    value_scale: In(32)
    a: Out(32)
    b: Out(32)

    def elaborate(self, platform):
        m = Module()
        word = self.instruction
        fraction, exponent = self.last[:23], self.last[23:31]
        large = fraction > _ROOT_FRACTION
        # Of the totals: registers come late.
        larges, nans = (Signal(THREADS, name=name, reset_less=True) for name in ("large", "nan"))
        with m.If(self.is_total):
            nan = exponent.all() & fraction.any()
            m.d.sync += larges.bit_select(self.page, 1).eq(large)
            m.d.sync += nans.bit_select(self.page, 1).eq(nan)
        offset = CONSTANTS[Constant.EXPONENT_OFFSET] >> 8
        with m.Switch(word.source_a):
            with m.Case(SourceA.REGISTER):
                m.d.comb += self.a.eq(self.register_a)
            with m.Case(SourceA.LAST):
                m.d.comb += self.a.eq(self.last)
            with m.Case(SourceA.MANTISSA):
                nan, above = (bits.bit_select(self.page, 1) for bits in (nans, larges))
                code = Mux(nan, FLOAT32.exponent_max, FLOAT32.bias - above)
                m.d.comb += self.a.eq(Cat(self.register_a[:23], code[:8]))
            with m.Case(SourceA.EXPONENT):
                code = exponent - FLOAT32.bias + large
                m.d.comb += self.a.eq(Cat(code[:8], Const(offset, 24)))

        table = [CONSTANTS[number] for number in Constant if number in CONSTANTS]
        constant, chosen = Signal(32), Signal(32)
        m.d.comb += constant.eq(Array(Const(value, 32) for value in table)[word.b[:3]])
        with m.If(word.b == Constant.CORRECT_NOW):
            m.d.comb += constant.eq(Mux(self.correct, CONSTANTS[Constant.ONE], 0))
        with m.If(word.b == Constant.VALUE_SCALE):
            m.d.comb += constant.eq(self.value_scale)
        with m.Switch(word.source_b):
            with m.Case(SourceB.REGISTER):
                m.d.comb += chosen.eq(self.register_b)
            with m.Case(SourceB.LAST):
                m.d.comb += chosen.eq(self.last)
            with m.Case(SourceB.CONSTANT):
                m.d.comb += chosen.eq(constant)
        m.d.comb += self.b.eq(Cat(chosen[:31], chosen[31] ^ word.subtract))
        return m


class SlopeDivider(wiring.Component):
    """``a / b`` in float32, correctly rounded, for m - 1 over m + 1, with m between sqrt(1/2) and
    sqrt(2): ``b`` is a normal positive number, or NaN if ``a`` is. One at a time.

    Attributes
    ----------
    LATENCY : int
        29 cycles from ``start`` on; the result stays until the next ``start``.

    Members
    -------
    start : In(1), a : In(32), b : In(32)
    o : Out(32), flags : Out(4)
    """

    LATENCY = DigitRecurrence.LATENCY + FloatPacker.LATENCY

    start: In(1)
    a: In(32)
    b: In(32)
    o: Out(32)
    flags: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.submodules.recurrence = recurrence = DigitRecurrence()
        m.submodules.packer = packer = FloatPacker()
        found = classify(self.a)
        kind = Signal(3, reset_less=True)
        with m.If(self.start):
            m.d.sync += kind.eq(Cat(self.a[31], found.zero, found.nan))
        m.d.comb += [
            recurrence.start.eq(self.start),
            recurrence.a.eq(self.a),
            recurrence.b.eq(self.b),
            packer.significand.eq(recurrence.significand),
            packer.exponent.eq(recurrence.exponent),
            packer.sticky.eq(recurrence.sticky),
            Cat(packer.sign, packer.zero, packer.nan).eq(kind),
            self.o.eq(packer.o),
            self.flags.eq(packer.flags),
        ]
        return m
