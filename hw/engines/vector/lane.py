"""One channel of the vector engine: two adders, a multiplier, a choice, a conversion."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.arithmetic.convert import FloatConverter
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.formats import FLOAT32
from hw.isa.vector import Carry, Condition, Factor, Term
from hw.primitives.delay_line import DelayLine
from hw.primitives.pipeline import delay, register

__all__ = ["VectorLane"]

_MINUS_ZERO = 1 << 31
_ONE = FLOAT32.bias << FLOAT32.mantissa_bits
_NEXT = 1 + FloatAdder.LATENCY


class VectorLane(wiring.Component):
    """``v = (x | x + y | x - y | immediate) * factor``, ``w = v | v + carry``, and w or carry.

    With ``power`` a factor y or z stands for 2 to the power of its lowest 8 bits.

    One element per cycle through a pipeline that never stops. Steps that are left out add -0 or
    multiply by 1, which changes no number and raises no flag. Operands have to be float32 numbers
    without subnormals, with the canonical NaN only. Reset makes nothing valid.

    Partial sums: :attr:`STORED` cycles of the pipeline lead from reading a partial sum to reading
    the sum that replaced it.

    Parameters
    ----------
    fmt : FloatFormat
        Operand format.
    partials : int
        Entries of each of the two halves of the partial sums.

    Attributes
    ----------
    PARTIAL : int
        Cycles from the operands to the cycle in which the address of a partial sum counts: 13.
    STORED : int
        8 cycles.
    WIDE, NARROW : int
        Cycles from the operands to ``o``: 21 as float32, 23 as operand. From the cycle of
        ``tree`` on, :attr:`PARTIAL` fewer.

    Members
    -------
    x, y, z : In(32), active : In(1) -- an element; lanes that are not active give 0 and no flags
    valid : In(1), sampled : In(1) -- the condition counts only if it is
    term, factor, power, carry, condition, negate_product, negate_carry, add, keep, wide,
        immediate : In -- fields of the command, constant while in use
    relu : In(1) -- field of the command: ``o`` is +0 where it would be negative
    reduce : In(1) -- add to partial sums
    half, address : In -- :attr:`PARTIAL` cycles after the operands: the place of the partial sum
    even_fresh, odd_fresh : In(1) -- partial sums of that half count as +0
    tree, tree_active : In(1) -- in place of an element: add the partial sums of both halves
    write : In(2), write_address : In -- of the sum that leaves the adder, ``PARTIAL + _NEXT``
        cycles after the operands
    slow : In(1) -- field of the command: results are loaded and stay
    direct_load : In(1), direct : In(32) -- load a result
    stored : In(1) -- what the converter gives in this cycle, :attr:`NARROW` cycles after the
        operands, is a result
    o : Out(32) -- operand code in the low bits, or float32 if ``wide``
    nonfinite : Out(1) -- y of an active element is an infinity or NaN; 1 cycle after it
    flags : Out(4) -- flag events
    """

    PARTIAL = 1 + 2 * FloatAdder.LATENCY
    STORED = _NEXT + 1
    WIDE = PARTIAL + _NEXT + 1
    NARROW = WIDE + FloatConverter.LATENCY

    def __init__(self, fmt, partials):
        self._format = fmt
        self._partials = partials
        address = range(max(partials, 2))
        ones = "active valid sampled power negate_product negate_carry add keep wide relu "
        ones += "reduce half tree tree_active even_fresh odd_fresh slow direct_load stored"
        numbers = ("x", "y", "z", "immediate", "direct")
        super().__init__(
            {
                **dict.fromkeys(numbers, In(32)),
                **dict.fromkeys(ones.split(), In(1)),
                "term": In(2),
                "factor": In(2),
                "carry": In(1),
                "condition": In(2),
                "address": In(address),
                "write": In(2),
                "write_address": In(address),
                "o": Out(32),
                "nonfinite": Out(1),
                "flags": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = first = FloatAdder()
        m.submodules.multiplier = multiplier = FloatMultiplier()
        m.submodules.second = second = FloatAdder()
        m.submodules.converter = converter = FloatConverter(self._format)
        x, y, z = self.x, self.y, self.z

        # What goes along: the factor to the multiplier, the carry to the second adder and on.
        m.submodules.factors = factors = DelayLine(32, self.PARTIAL - multiplier.LATENCY)
        factor = Signal(32)
        with m.Switch(self.factor):
            for code, source in ((Factor.Y, y), (Factor.Z, z)):
                with m.Case(code):
                    m.d.comb += factor.eq(source)
            with m.Default():
                m.d.comb += factor.eq(_ONE)
        # Of 1.0 the lowest bits are 0: it is its own power.
        exponent = (factor[:8] + FLOAT32.bias)[:8]
        power = Cat(Const(0, FLOAT32.mantissa_bits), exponent)
        m.d.comb += factors.i.eq(Mux(self.power, power, factor))
        m.submodules.carries = carries = DelayLine(32, self.PARTIAL)
        m.submodules.others = others = DelayLine(32, _NEXT)
        m.d.comb += [
            carries.i.eq(Mux(self.carry == Carry.Z, z, y)),
            others.i.eq(carries.o),
        ]

        # Cycle 0: the condition, the operands of the first adder.
        taken = Signal()
        with m.Switch(self.condition):
            with m.Case(Condition.ALWAYS):
                m.d.comb += taken.eq(1)
            with m.Case(Condition.GREATER):
                m.d.comb += taken.eq(_greater(x, y))
            with m.Case(Condition.POSITIVE):
                m.d.comb += taken.eq(~z[31] & z[23:31].any())
            with m.Case(Condition.EQUAL):
                m.d.comb += taken.eq(z == self.immediate)
        finite = ~y[23:31].all()
        m.d.sync += self.nonfinite.eq(self.valid & self.active & ~finite)
        present = self.valid & self.active
        use_y = (self.term == Term.ADD) | (self.term == Term.SUBTRACT)
        turned = Cat(y[:31], y[31] ^ (self.term == Term.SUBTRACT))
        start = Mux(self.term == Term.IMMEDIATE, self.immediate, x)
        m.d.comb += [
            first.a.eq(register(m, start, name="first_a")),
            first.b.eq(register(m, Mux(use_y, turned, _MINUS_ZERO), name="first_b")),
            multiplier.a.eq(first.o),
            multiplier.b.eq(Mux(self.factor == Factor.U, first.o, factors.o)),
        ]
        live = delay(m, present & taken & self.sampled, _NEXT, name="live_u", reset=True)
        flags = first.flags & live.replicate(4)
        live = delay(m, live, multiplier.LATENCY, name="live_v", reset=True)
        flags |= multiplier.flags & live.replicate(4)
        there = delay(m, present, self.PARTIAL, name="there_v", reset=True)

        # Cycle PARTIAL: the operands of the second adder.
        even, odd = (self._partial_sums(m, half, second.o) for half in range(2))
        even, odd = Mux(self.even_fresh, 0, even), Mux(self.odd_fresh, 0, odd)
        product = Cat(multiplier.o[:31], multiplier.o[31] ^ self.negate_product)
        carried = Cat(carries.o[:31], carries.o[31] ^ self.negate_carry)
        addend = Mux(self.reduce, Mux(self.half, odd, even), Mux(self.add, carried, _MINUS_ZERO))
        m.d.comb += [
            second.a.eq(register(m, Mux(self.tree, even, product), name="second_a")),
            second.b.eq(register(m, Mux(self.tree, odd, addend), name="second_b")),
        ]
        live = delay(m, Mux(self.tree, self.tree_active, live), _NEXT, name="live_w", reset=True)
        there = delay(m, Mux(self.tree, self.tree_active, there), _NEXT, name="there_w", reset=True)
        flags |= second.flags & live.replicate(4)

        # Cycle PARTIAL + _NEXT: the choice.
        result = Signal(32, reset_less=True)
        other = others.o & self.keep.replicate(32)
        with m.If(self.direct_load):
            m.d.sync += result.eq(self.direct)
        with m.Elif(there):
            m.d.sync += result.eq(Mux(live, second.o, other))
        with m.Elif(~self.slow):
            m.d.sync += result.eq(0)
        m.d.comb += converter.i.eq(result)
        # Lanes that are not active hold 0, which raises no flags.
        flags |= converter.flags & (self.stored & ~self.wide).replicate(4)
        narrow = Cat(converter.o, result[len(converter.o) :])
        # The one NaN has no sign.
        negative = Mux(self.wide, result[31], converter.o[-1])
        m.d.comb += self.o.eq(Mux(self.relu & negative, 0, Mux(self.wide, result, narrow)))
        m.d.sync += self.flags.eq(flags)
        return m

    def _partial_sums(self, m, half, value):
        m.submodules[f"partial{half}"] = memory = Memory(shape=32, depth=self._partials, init=[])
        read, write = memory.read_port(domain="comb"), memory.write_port()
        m.d.comb += [
            read.addr.eq(self.address),
            write.addr.eq(self.write_address),
            write.data.eq(value),
            write.en.eq(self.write[half]),
        ]
        return read.data


def _greater(x, y):
    """Whether float32 ``x`` is NaN or above ``y``; zeros are equal. The one NaN is above all other
    numbers, so nothing but NaN is above it."""
    x_nan = x[23:31].all() & x[:23].any()
    zeros = ~x[23:31].any() & ~y[23:31].any()
    more, same = x[:31] > y[:31], x[:31] == y[:31]
    above = Mux(x[31] == y[31], Mux(x[31], ~more & ~same, more), y[31])
    return x_nan | (~zeros & above)


assert Const(_ONE, 32).value == 0x3F800000
assert FloatAdder.LATENCY == FloatMultiplier.LATENCY
