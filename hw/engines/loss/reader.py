"""Brings the numbers of three rows of outputs, labels and targets out of the buffer."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BUFFER_READ_LATENCY, BufferReadSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.formats import FLOAT32
from hw.primitives.pipeline import delay, register

__all__ = ["LossReader", "Wanted"]


class Wanted(data.Struct):
    """What is read for a slot: the row's label; the next target; the next output of the row whose
    maximum is sought, of the one whose powers are added up, and of the one whose gradient is made.
    """

    label: 1
    target: 1
    largest: 1
    power: 1
    gradient: 1


class LossReader(wiring.Component):
    """Reads what the next slot takes.

    Rows are dense: a number of 32 bits takes ``chunks_per_wide`` lanes, the least significant bits
    first. Where that divides the lanes of a word it is one read; else one for each lane, and the
    number may continue in the next word. All rows of outputs are read at the same place. Without
    stalls ``fetched`` is back the number of reads + 3 cycles after ``start``.

    Parameters
    ----------
    fmt : FloatFormat
    core : CoreConfig

    Members
    -------
    load : In(1) -- begin with the rows at ``x_address`` and ``target_address``
    x_address, x_stride, target_address : In
    x_wide, target_wide : In(1) -- numbers have 32 bits; else they are operands
    squared : In(1) -- of outputs, only ``wanted.largest`` is used
    start : In(1) -- read what is ``wanted``; with ``load``, or while ``fetched``
    wanted : In(Wanted)
    row_end : In(1) -- with ``start``: the target wanted is its row's last
    next_row : In(1) -- on to the next row of outputs; only while ``fetched``
    label, largest, power, gradient : Out(32) -- float32 bits, or the label. If ``squared``, power
        is the target and gradient the output
    place : Out -- word in which the last label begins
    fetched : Out(1) -- everything wanted is there, and stays until ``start``
    clear : In(1) -- drop what is under way; ``read.valid`` is low from the next cycle on
    read : Out(BufferReadSignature(core))
    """

    def __init__(self, fmt, core):
        self._format = fmt
        self._core = core
        address = BUFFER_ADDRESS_WIDTH
        super().__init__(
            {
                "load": In(1),
                "x_address": In(address),
                "x_stride": In(16),
                "target_address": In(address),
                "x_wide": In(1),
                "target_wide": In(1),
                "squared": In(1),
                "start": In(1),
                "wanted": In(Wanted),
                "row_end": In(1),
                "next_row": In(1),
                "label": Out(32),
                "largest": Out(32),
                "power": Out(32),
                "gradient": Out(32),
                "place": Out(address),
                "fetched": Out(1),
                "clear": In(1),
                "read": Out(BufferReadSignature(core)),
            }
        )

    def elaborate(self, platform):
        # What says where the reader is:
        #
        # todo            what still has to be read, a bit each    start         accepted; clear
        # part            which read of a number it is             counts up     last part: 0
        # x_first, x_lane lane of the slot's output, of the read   accepted      next_row, load: 0
        # t_lane          lane of the next target or label         accepted      end of row, load: 0
        # ends            the row's last target is wanted          start
        m = Module()
        core = self._core
        chunks = core.chunks_per_wide
        whole = core.rows % chunks == 0
        lanes = range(max(core.rows, 2))
        todo = Signal(Wanted)
        chosen = Signal(Wanted)
        bits, left = chosen.as_value(), todo.as_value()
        accept, final, wide = Signal(), Signal(), Signal()
        target = chosen.label | chosen.target
        m.d.comb += [
            bits.eq(Cat(bit & ~left[:place].any() for place, bit in enumerate(left))),
            self.read.valid.eq(left.any()),
            accept.eq(self.read.valid & self.read.ready),
            wide.eq(chosen.label | Mux(chosen.target, self.target_wide, self.x_wide)),
        ]
        part = Signal(range(max(chunks, 2)))
        if whole:
            m.d.comb += final.eq(1)
            step = Mux(wide, chunks, 1)
        else:
            m.d.comb += final.eq(~wide | (part == chunks - 1))
            step = Const(1, 1)
            with m.If(accept):
                m.d.sync += part.eq(Mux(final, 0, part + 1))
        with m.If(accept & final):
            m.d.sync += left.eq(left & ~bits)
        with m.If(self.clear | self.load):
            m.d.sync += [left.eq(0), part.eq(0)]
        with m.If(self.start & ~self.clear):
            m.d.sync += left.eq(self.wanted.as_value())

        lane = self._places(m, (chosen, todo), (accept, final, part), target, step, lanes)
        self._arrivals(m, (bits, left.any(), accept, final, wide), lane, whole)
        return m

    def _places(self, m, wanted, request, target, step, lanes):
        """Addresses and lanes of what is read next; returns the lane."""
        chosen, todo = wanted
        accept, final, part = request
        core = self._core

        def place(name):
            return Signal(BUFFER_ADDRESS_WIDTH, name=name, reset_less=True)

        # The row whose maximum is sought, the one before, and the one before that, which is not
        # read; where the next number of each is.
        base0, base1, base2 = (place(f"base{index}") for index in range(3))
        largest, power, gradient, targets = map(place, ("at0", "at1", "at3", "targets"))
        x_first, x_lane, t_lane = (
            Signal(lanes, name=name, reset_less=True) for name in ("x_first", "x_lane", "t_lane")
        )
        lane, following = Signal(lanes), Signal(lanes)
        address, behind = Signal(BUFFER_ADDRESS_WIDTH), Signal(BUFFER_ADDRESS_WIDTH)
        last_lane = Signal()
        m.d.comb += [
            lane.eq(Mux(target, t_lane, x_lane)),
            last_lane.eq(lane + step == core.rows),
            following.eq(Mux(last_lane, 0, lane + step)),
            behind.eq(address + 1),
            self.read.address.eq(address),
        ]
        places = (targets, targets, largest, power, gradient)
        for index, register_ in enumerate(places):
            with m.If(chosen.as_value()[index]):
                m.d.comb += address.eq(register_)
        # A slot's outputs are in the same lane of their rows; the last of them moves on.
        others = todo.as_value()[2:] & ~chosen.as_value()[2:]
        ends = Signal(reset_less=True)
        with m.If(self.start):
            m.d.sync += ends.eq(self.row_end)
        ends = ends | chosen.label
        with m.If(accept & ~target):
            m.d.sync += x_lane.eq(following)
            with m.If(final):
                with m.If(others.any()):
                    m.d.sync += x_lane.eq(x_first)
                with m.Else():
                    m.d.sync += x_first.eq(following)
            for bit, register_ in ((2, largest), (3, power), (4, gradient)):
                with m.If(chosen.as_value()[bit] & last_lane):
                    m.d.sync += register_.eq(behind)
        with m.If(accept & target):
            m.d.sync += t_lane.eq(following)
            with m.If(final & ends):
                m.d.sync += t_lane.eq(0)
            with m.If(last_lane | (final & ends)):
                m.d.sync += targets.eq(behind)
            with m.If(chosen.label & (part == 0)):
                m.d.sync += self.place.eq(targets)
        with m.If(self.next_row):
            m.d.sync += [
                base0.eq(base0 + self.x_stride),
                base1.eq(base0),
                base2.eq(base1),
                largest.eq(base0 + self.x_stride),
                power.eq(base0),
                gradient.eq(base2),
                x_first.eq(0),
                x_lane.eq(0),
            ]
        with m.If(self.load):
            m.d.sync += [
                base0.eq(self.x_address),
                largest.eq(self.x_address),
                targets.eq(self.target_address),
                x_first.eq(0),
                x_lane.eq(0),
                t_lane.eq(0),
                self.place.eq(0),
            ]
        return lane

    def _arrivals(self, m, request, lane, whole):
        """What comes back: which of the words' lanes, and whose it is."""
        core = self._core
        width, chunks = core.operand_width, core.chunks_per_wide
        bits, under_way, accept, final, wide = request
        owner = bits & (accept & final).replicate(len(bits))
        arrives = Cat(wide, accept, owner)
        for stage in range(BUFFER_READ_LATENCY + 1):
            later = Signal(2 + len(bits), name=f"arrives_{stage + 1}")
            m.d.sync += later.eq(arrives)
            with m.If(self.clear | self.load):
                m.d.sync += later.eq(0)
            under_way |= later[1]
            arrives = later
        is_wide, arrived, owner = arrives[0], arrives[1], arrives[2:]
        m.d.comb += self.fetched.eq(~under_way)

        # Words come a long way: one of every four pieces is chosen in front of a register, one of
        # those behind it.
        size = chunks if whole else 1
        shift = size.bit_length() - 1
        at = delay(m, lane, BUFFER_READ_LATENCY, name="lane", reset=True)
        place = at[shift:]
        pieces, step = [], size * width
        for first in range(0, core.rows // size, 4):
            four = self.read.data[step * first : step * min(first + 4, core.rows // size)]
            chosen = four.word_select(place[:2], step)
            pieces.append(register(m, chosen, name=f"piece{first}"))
        piece = pieces[0]
        if len(pieces) > 1:
            piece = Array(pieces)[register(m, place[2:], name="four")]
        if whole:
            number = piece
            code = piece.word_select(register(m, at[:shift], name="inside"), width)
        else:
            kept, number = Signal(chunks * width, reset_less=True), Signal(chunks * width)
            m.d.comb += number.eq(Cat(kept, piece)[width:])
            with m.If(arrived):
                m.d.sync += kept.eq(number)
            code = piece
        value = Mux(is_wide, number, _widen(self._format, code))
        label, target, largest, power, gradient = owner
        for output, comes in (
            (self.label, label),
            (self.largest, largest),
            (self.power, power | target),
            (self.gradient, gradient | (largest & self.squared)),
        ):
            with m.If(comes):
                m.d.sync += output.eq(value)


def _widen(fmt, code):
    """The operand ``code`` as float32; subnormal ones are zeros with their sign."""
    fraction = code[: fmt.mantissa_bits]
    exponent = code[fmt.mantissa_bits : fmt.width - 1]
    fill = Const(0, FLOAT32.mantissa_bits - fmt.mantissa_bits)
    if fmt.exponent_bits == FLOAT32.exponent_bits:
        wide = exponent
    else:
        offset = FLOAT32.bias - fmt.bias
        wide = Mux(exponent.any(), Mux(exponent.all(), 0xFF, exponent + offset), 0)[:8]
    return Cat(fill, fraction, wide, code[-1])
