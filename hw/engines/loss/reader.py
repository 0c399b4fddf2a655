"""Brings the numbers of two rows, outputs and targets, out of the buffer one at a time."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BUFFER_READ_LATENCY, BufferReadSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.formats import FLOAT32
from hw.primitives.pipeline import delay, register

__all__ = ["LossReader"]


class LossReader(wiring.Component):
    """Reads the next number of the outputs or of the targets.

    Rows are dense: a number of 32 bits takes ``chunks_per_wide`` lanes, the least significant bits
    first, and may continue in the next word. Each lane is a read of its own. Without stalls
    ``done`` follows ``start`` after the number of lanes + 3 cycles.

    Parameters
    ----------
    fmt : FloatFormat
    core : CoreConfig

    Members
    -------
    load : In(1) -- begin with the rows at ``x_address`` and ``target_address``
    x_address, x_stride, target_address : In
    start : In(1) -- read a number; not before ``done`` of the one before
    target : In(1) -- of the targets; constant from ``start`` to ``done``, like ``wide``
    wide : In(1) -- the number has 32 bits; else it is an operand
    value : Out(32) -- the bits of a wide number, or the operand as float32
    done : Out(1) -- ``value`` is there, and stays until the next ``start``
    place : Out -- word in which the wide number last read from the targets begins; 0 after ``load``
    rewind : In(1) -- back to the start of the outputs' row; a cycle before ``start`` or earlier
    next_row : In(1) -- on to the next row of both; a cycle before ``start`` or earlier, two if that
        is of the outputs
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
                "start": In(1),
                "target": In(1),
                "wide": In(1),
                "value": Out(32),
                "done": Out(1),
                "place": Out(address),
                "rewind": In(1),
                "next_row": In(1),
                "clear": In(1),
                "read": Out(BufferReadSignature(core)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self._core
        width, chunks = core.operand_width, core.chunks_per_wide
        lanes = range(max(core.rows, 2))

        # Where the row of outputs and the next numbers are. Both rows share an adder.
        x_row = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        x_address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        target_address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        x_lane, target_lane = Signal(lanes, reset_less=True), Signal(lanes, reset_less=True)
        lane, last_lane, carry = Signal(lanes), Signal(), Signal()
        address, behind = Signal(BUFFER_ADDRESS_WIDTH), Signal(BUFFER_ADDRESS_WIDTH)
        left = Signal(range(chunks + 1))
        accept = Signal()
        # Targets are selected while they are read and to move on to their next row.
        is_target, next_row, rewind, moved = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            rewind.eq(self.rewind),
            is_target.eq(self.target | self.next_row),
            next_row.eq(self.next_row),
            moved.eq(next_row | self.load),
        ]
        m.d.comb += [
            lane.eq(Mux(is_target, target_lane, x_lane)),
            address.eq(Mux(is_target, target_address, x_address)),
            last_lane.eq(lane == core.rows - 1),
            carry.eq(Mux(next_row, lane != 0, last_lane)),
            behind.eq(address + carry),
            self.read.valid.eq(left != 0),
            self.read.address.eq(address),
            accept.eq(self.read.valid & self.read.ready),
        ]
        next_lane = Mux(last_lane | next_row, 0, lane + 1)
        with m.If(accept):
            m.d.sync += left.eq(left - 1)
        with m.If(self.start):
            m.d.sync += left.eq(Mux(self.wide, chunks, 1))
        with m.If(accept & is_target & (left == chunks)):
            m.d.sync += self.place.eq(target_address)
        with m.If(accept & ~is_target):
            m.d.sync += [x_address.eq(behind), x_lane.eq(next_lane)]
        with m.If(rewind | moved):
            m.d.sync += [x_address.eq(x_row), x_lane.eq(0)]
        with m.If((accept & is_target) | next_row):
            m.d.sync += [target_address.eq(behind), target_lane.eq(next_lane)]
        with m.If(next_row):
            m.d.sync += x_row.eq(x_row + self.x_stride)
        with m.If(self.load):
            m.d.sync += [
                x_row.eq(self.x_address),
                target_address.eq(self.target_address),
                target_lane.eq(0),
                self.place.eq(0),
            ]
        with m.If(self.clear):
            m.d.sync += left.eq(0)

        # What comes back.
        arrives, final = accept, left == 1
        for stage in range(BUFFER_READ_LATENCY):
            valid = Signal(name=f"arrives_{stage + 1}")
            m.d.sync += valid.eq(arrives & ~self.clear)
            arrives = valid
        # Words come a long way: one of every four lanes is chosen in front of a register, one of
        # those behind it.
        at = delay(m, lane, BUFFER_READ_LATENCY, name="lane", reset=True)
        pieces = []
        for first in range(0, core.rows, 4):
            four = self.read.data[width * first : width * min(first + 4, core.rows)]
            pieces.append(register(m, four.word_select(at[:2], width), name=f"piece{first}"))
        piece = pieces[0]
        if len(pieces) > 1:
            piece = Array(pieces)[register(m, at[2:], name="four")]
        kept, number = Signal(chunks * width, reset_less=True), Signal(chunks * width)
        arrived = Signal()
        m.d.sync += arrived.eq(arrives)
        m.d.comb += number.eq(kept)
        with m.If(arrived):
            m.d.comb += number.eq(Cat(kept, piece)[width:])
            m.d.sync += kept.eq(number)
        m.d.sync += self.done.eq(
            arrives & delay(m, final, BUFFER_READ_LATENCY, name="final", reset=True)
        )
        narrow = _widen(self._format, number[-width:])
        m.d.comb += self.value.eq(Mux(register(m, self.wide, name="is_wide"), number, narrow))
        return m


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
