"""One channel of post-processing: ReLU, pooling, scaling, conversion."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.convert import FloatConverter, Requantizer
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.primitives.pipeline import delay, register

__all__ = ["PostLane"]


class PostLane(wiring.Component):
    """Reduce windows of accumulators to one result each.

    Elements of a window arrive one after the other. Maximum: one element per cycle. Sum: an
    element may follow :attr:`SUM_INTERVAL` cycles after the one before. Results come in order, at
    most one per cycle, a fixed number of cycles after the last element of their window, which
    depends on ``sum`` and ``wide`` and is at most :attr:`MAX_LATENCY`.

    Floats: the window is reduced in float32, a sum rounds after every addition; the result is
    multiplied by ``scale``, rounded, and then converted. Accumulators are expected as a column
    leaves them: without subnormals, and with the canonical NaN only. Integers: sums wrap in 32
    bits; ``wide`` results are not scaled.

    Parameters
    ----------
    fmt : FloatFormat or IntFormat
        Operand format.

    Members
    -------
    valid : In(1) -- an element
    i : In(32) -- float32 or int32
    first, last : In(1) -- it is the first, the last one of its window
    active : In(1) -- the lane carries a channel; if not, its result is 0 without flags. The same
        for all elements of a window.
    relu, sum, wide : In(1), scale : In(32) -- fields of the command, constant while in use
    clear : In(1) -- forget elements that are under way; no result comes from them
    o_valid : Out(1) -- a result
    o : Out(32) -- operand code in the low bits, or 32 bits if ``wide``
    flags : Out(4) -- flag events; those of a result come not later than the result
    """

    def __init__(self, fmt):
        self._format = fmt
        members = dict.fromkeys(
            ("valid", "first", "last", "active", "relu", "sum", "wide", "clear"), In(1)
        )
        super().__init__(
            {
                **members,
                "i": In(32),
                "scale": In(32),
                "o_valid": Out(1),
                "o": Out(32),
                "flags": Out(4),
            }
        )
        add = FloatAdder.LATENCY if fmt.is_float else 0
        self.SUM_INTERVAL = add + 1

    def latency(self, *, sum=False, wide=False):
        """Cycles from the last element of a window to ``o_valid``; ``sum`` means a sum of more
        than one element."""
        if not self._format.is_float:
            return 3 if wide else 3 + Requantizer.LATENCY
        cycles = 3 + FloatMultiplier.LATENCY
        cycles += FloatAdder.LATENCY if sum else 0
        return cycles if wide else cycles + FloatConverter.LATENCY

    def elaborate(self, platform):
        m = Module()

        # Cycle 1: ReLU; lanes without a channel become 0.
        x = Signal(32, reset_less=True)
        m.d.sync += x.eq(self.i)
        with m.If(~self.active | (self.relu & self.i[31])):
            m.d.sync += x.eq(0)
        valid = self._strobe(m, self.valid, 1, name="x_valid")
        first = register(m, self.first, name="x_first")
        last = register(m, self.last, name="x_last")
        active = register(m, self.active, name="x_active")

        # Cycle 2: the window so far; ``done`` when it is whole.
        window = Signal(32, reset_less=True)
        window_active = Signal(reset_less=True)
        done = Signal()
        with m.If(valid & first):
            m.d.sync += [window.eq(x), window_active.eq(active)]
        if self._format.is_float:
            self._float(m, x, valid, first, last, window, window_active, done)
        else:
            self._integer(m, x, valid, first, last, window, window_active, done)
        return m

    def _float(self, m, x, valid, first, last, window, window_active, done):
        m.submodules.adder = adder = FloatAdder()
        m.submodules.multiplier = multiplier = FloatMultiplier()
        m.submodules.converter = converter = FloatConverter(self._format)

        add = valid & self.sum & ~first
        added = self._strobe(m, add, adder.LATENCY, name="added")
        added_last = self._strobe(m, add & last, adder.LATENCY, name="added_last")
        m.d.comb += [adder.a.eq(window), adder.b.eq(x)]
        with m.If(added):
            m.d.sync += window.eq(adder.o)
        with m.If(valid & ~first & ~self.sum & _greater(x, window)):
            m.d.sync += window.eq(x)
        whole = valid & last & (first | ~self.sum)
        m.d.comb += done.eq(self._strobe(m, whole | added_last, 1, name="done"))

        m.d.comb += [
            multiplier.a.eq(window),
            multiplier.b.eq(self.scale),
            converter.i.eq(multiplier.o),
        ]
        multiplied = self._strobe(m, done, multiplier.LATENCY, name="multiplied")
        converted = self._strobe(m, multiplied, converter.LATENCY, name="converted")
        multiplied_active = delay(
            m, window_active, multiplier.LATENCY, name="multiplied_active", reset=True
        )
        converted_active = delay(
            m, multiplied_active, converter.LATENCY, name="converted_active", reset=True
        )
        narrow = Cat(converter.o, multiplier.o[len(converter.o) :])
        self._output(
            m,
            valid=Mux(self.wide, multiplied, converted),
            active=Mux(self.wide, multiplied_active, converted_active),
            value=Mux(self.wide, multiplier.o, narrow),
            flags=(adder.flags & added.replicate(4))
            | (multiplier.flags & (multiplied & multiplied_active).replicate(4))
            | (converter.flags & (converted & converted_active & ~self.wide).replicate(4)),
        )

    def _integer(self, m, x, valid, first, last, window, window_active, done):
        m.submodules.requantizer = requantizer = Requantizer(self._format)

        total = window.as_signed() + x.as_signed()
        overflow = register(m, total[32] ^ total[31], name="overflow")
        added = self._strobe(m, valid & self.sum & ~first, 1, name="added")
        greater = x.as_signed() > window.as_signed()
        with m.If(valid & ~first & (self.sum | greater)):
            m.d.sync += window.eq(Mux(self.sum, total[:32], x))
        m.d.comb += done.eq(self._strobe(m, valid & last, 1, name="done"))

        m.d.comb += [
            requantizer.i.eq(window),
            requantizer.multiplier.eq(self.scale[:16]),
            requantizer.shift.eq(self.scale[16:22]),
        ]
        # Not of a wide result: the next command may begin before it would come out.
        converted = self._strobe(m, done & ~self.wide, requantizer.LATENCY, name="converted")
        converted_active = delay(
            m, window_active, requantizer.LATENCY, name="converted_active", reset=True
        )
        self._output(
            m,
            valid=Mux(self.wide, done, converted),
            active=Mux(self.wide, window_active, converted_active),
            value=Mux(self.wide, window, Cat(requantizer.o, window[len(requantizer.o) :])),
            flags=Cat(Const(0, 1), added & overflow)
            | (requantizer.flags & (converted & converted_active).replicate(4)),
        )

    def _output(self, m, *, valid, active, value, flags):
        """Last cycle: lanes without a channel become 0 again, whatever the scale made of them."""
        output = Signal(32, reset_less=True)
        m.d.sync += output.eq(value)
        with m.If(~active):
            m.d.sync += output.eq(0)
        m.d.comb += [
            self.o.eq(output),
            self.o_valid.eq(self._strobe(m, valid, 1, name="output_valid")),
            self.flags.eq(
                delay(m, flags & (~self.clear).replicate(4), 1, name="flags_out", reset=True)
            ),
        ]

    def _strobe(self, m, value, cycles, *, name):
        """``value`` as it was ``cycles`` cycles ago, unless ``clear`` came since."""
        for stage in range(cycles):
            bit = Signal(name=f"{name}_{stage + 1}")
            m.d.sync += bit.eq(value & ~self.clear)
            value = bit
        return value


def _greater(x, y):
    """Whether float32 ``x`` is above ``y``; zeros are equal. NaN with sign 0 is above all."""
    magnitude = x[:31] > y[:31]
    zeros = ~x[23:31].any() & ~y[23:31].any()
    # Both negative: the order turns round. Equal numbers then count as greater, harmlessly.
    return ~zeros & Mux(x[31] == y[31], magnitude ^ x[31], y[31])
