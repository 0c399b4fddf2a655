"""Weight side of a matrix multiplication: brings biases and weight tiles into the PE array."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bus import BUFFER_READ_LATENCY, BufferReadSignature
from .config import BUFFER_ADDRESS_WIDTH
from .loop_nest import LoopNest
from .pipeline import delay

__all__ = ["WeightLoader", "weight_command_layout"]


def weight_command_layout():
    """What the weight side needs of a MATMUL command."""
    return data.StructLayout(
        {"address": BUFFER_ADDRESS_WIDTH, "bias": 1, "kw": 16, "kh": 16, "cb": 16}
    )


class WeightLoader(wiring.Component):
    """Reads ``bias_words`` words (if asked) and then ``columns`` words for every K tile.

    Words lie one after the other from ``address``; word c of a tile holds the weights of column
    c, one per row. Runs ahead of the vectors by up to two tiles (the weight registers are
    double-buffered) and by one set of biases. Throughput: one column per cycle. Idle after reset.

    Members
    -------
    command : ``In(stream of weight_command_layout)``
    read : ``Out(BufferReadSignature(core))``
    w_valid, w_bank, w_column, w_data : Out, the array's weight port; banks take turns
    tile_loaded : Out(1), pulse in the cycle in which the last column of a tile is on ``w_data``
    tile_used : In(1), pulse when the loaded tile becomes the active one; the first column of the
        next tile follows 3 cycles later at the earliest
    bias : Out(32 * columns), stable from the ``tile_loaded`` that follows it to ``bias_used``
    bias_used : In(1), pulse when the biases of a command that has some are no longer needed
    """

    def __init__(self, core):
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(weight_command_layout())),
                "read": Out(BufferReadSignature(core)),
                "w_valid": Out(1),
                "w_bank": Out(1),
                "w_column": Out(range(max(core.columns, 2))),
                "w_data": Out(core.word_width),
                "tile_loaded": Out(1),
                "tile_used": In(1),
                "bias": Out(32 * core.columns),
                "bias_used": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self.core
        m.submodules.nest = nest = LoopNest({"kw": 16, "kh": 16, "cb": 16}, {})
        command = Signal(weight_command_layout())
        for loop in ("kw", "kh", "cb"):
            m.d.comb += nest.count[loop].eq(command[loop])

        free, take = Signal(init=1), Signal()
        with m.If(take):
            m.d.sync += free.eq(0)
        with m.Elif(self.tile_used):
            m.d.sync += free.eq(1)
        bias_held = Signal()
        with m.If(self.bias_used):
            m.d.sync += bias_held.eq(0)

        # Requests: at most one per cycle, each with a tag that its data meets two cycles later.
        address = Signal(BUFFER_ADDRESS_WIDTH)
        word = Signal(range(max(core.columns, core.bias_words, 2)))
        bank = Signal()
        accept, is_bias, last = Signal(), Signal(), Signal()
        m.d.comb += [
            self.read.address.eq(address),
            accept.eq(self.read.valid & self.read.ready),
        ]
        with m.If(accept):
            m.d.sync += [address.eq(address + 1), word.eq(word + 1)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.command.ready.eq(1)
                with m.If(self.command.valid):
                    m.d.sync += [
                        command.eq(self.command.payload),
                        address.eq(self.command.payload.address),
                        word.eq(0),
                        nest.start.eq(1),
                    ]
                    m.next = "BIAS"
            with m.State("BIAS"):
                m.d.sync += nest.start.eq(0)
                with m.If(~command.bias):
                    m.next = "TILE"
                with m.Else():
                    m.d.comb += [
                        is_bias.eq(1),
                        self.read.valid.eq((word != 0) | ~bias_held),
                    ]
                    with m.If(accept & (word == core.bias_words - 1)):
                        m.d.sync += [word.eq(0), bias_held.eq(1)]
                        m.next = "TILE"
            with m.State("TILE"):
                m.d.comb += [
                    self.read.valid.eq(nest.valid & ((word != 0) | free)),
                    take.eq(accept & (word == 0)),
                    last.eq(word == core.columns - 1),
                    nest.next.eq(accept & last),
                ]
                with m.If(accept & last):
                    m.d.sync += [word.eq(0), bank.eq(~bank)]
                    with m.If(nest.final):
                        m.next = "IDLE"

        def arrives(signal):
            return delay(m, signal, BUFFER_READ_LATENCY)

        m.d.comb += [
            self.w_valid.eq(arrives(accept & ~is_bias)),
            self.w_bank.eq(arrives(bank)),
            self.w_column.eq(arrives(word)),
            self.w_data.eq(self.read.data),
            self.tile_loaded.eq(arrives(accept & ~is_bias & last)),
        ]
        words = Signal(core.bias_words * core.word_width)
        with m.If(arrives(accept & is_bias)):
            m.d.sync += words.eq(Cat(words, self.read.data)[core.word_width :])
        m.d.comb += self.bias.eq(words)
        return m
