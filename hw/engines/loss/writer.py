"""Packs operands into words and writes them to the buffer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferWriteSignature
from hw.config import BUFFER_ADDRESS_WIDTH

__all__ = ["LossWriter"]


class LossWriter(wiring.Component):
    """Collects ``rows`` operands and writes them as one word, word after word.

    One operand per cycle, except while a word waits for the buffer.

    Parameters
    ----------
    core : CoreConfig

    Members
    -------
    seek : In(1) -- the next word goes to ``address``; only while ``idle``
    address : In
    i : In(stream.Signature(operand_width))
    flush : In(1) -- fill up the word with zeros; not together with ``i.valid``
    idle : Out(1) -- everything is written
    clear : In(1) -- forget everything; ``write.valid`` is low from the next cycle on
    write : Out(BufferWriteSignature(core)) -- whole words
    """

    def __init__(self, core):
        self._core = core
        super().__init__(
            {
                "seek": In(1),
                "address": In(BUFFER_ADDRESS_WIDTH),
                "i": In(stream.Signature(core.operand_width)),
                "flush": In(1),
                "idle": Out(1),
                "clear": In(1),
                "write": Out(BufferWriteSignature(core)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self._core
        word = Signal(core.word_width, reset_less=True)
        address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        lane = Signal(range(max(core.rows, 2)))
        full, shift = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            shift.eq(~full & (self.i.valid | (self.flush & (lane != 0)))),
            self.idle.eq(~full & (lane == 0)),
            self.write.valid.eq(full),
            self.write.address.eq(address),
            self.write.data.eq(word),
            self.write.enable.eq(~0),
        ]
        with m.If(shift):
            piece = Mux(self.i.valid, self.i.payload, 0)
            m.d.sync += word.eq(Cat(word, piece)[core.operand_width :])
            with m.If(lane == core.rows - 1):
                m.d.sync += [lane.eq(0), full.eq(1)]
            with m.Else():
                m.d.sync += lane.eq(lane + 1)
        with m.If(full & self.write.ready):
            m.d.sync += [full.eq(0), address.eq(address + 1)]
        with m.If(self.seek):
            m.d.sync += address.eq(self.address)
        with m.If(self.clear):
            m.d.sync += [lane.eq(0), full.eq(0)]
        return m
