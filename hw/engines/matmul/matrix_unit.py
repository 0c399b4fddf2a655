"""The multiplying half of a core: PE array, accumulators, and what controls them."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.array.pe_array import PEArray
from hw.bus.signatures import AccumulatorReadSignature, BufferReadSignature
from hw.isa.encoding import Opcode, command_layout
from hw.memory.accumulator import AccumulatorMemory

from .engine import MatmulEngine
from .weight_loader import WeightLoader

__all__ = ["MATMUL_EVENTS", "MatrixUnit"]

#: Events of the MATMUL engine that are counted.
MATMUL_EVENTS = (
    "vectors",
    "tiles",
    "stall_weights",
    "stall_buffer",
    "stall_hazard",
    "stall_command",
)


class MatrixUnit(wiring.Component):
    """Executes WEIGHTS and MATMUL commands on a PE array and holds the sums for post-processing.

    Timing and interlocks: :class:`~hw.engines.matmul.weight_loader.WeightLoader`, for WEIGHTS, and
    :class:`~hw.engines.matmul.engine.MatmulEngine`. Reset drops all work; the sums survive it.

    Members
    -------
    weights : ``In(stream of WEIGHTS)``; ``weights_done``: Out(1), all words have been read
    weights_held, weights_quiet : Out(1), ``holds`` and ``quiet`` of the loader
    command : ``In(stream of MATMUL)``; ``done``: Out(1), the sums are in the accumulators
    starved : Out(1), the array waits for weights
    x_read, w_read : ``Out(BufferReadSignature(core))``, vectors and weights
    sums : ``In(AccumulatorReadSignature(core))``
    flags : Out(4), float flags raised in this cycle
    outside_write, outside_read, outside_address : Out, an accumulator entry that does not exist
    vectors, tiles, stall_weights, stall_buffer, stall_hazard, stall_command : Out(1), events
    """

    def __init__(self, config, core):
        self.config = config
        self.core = core
        super().__init__(
            {
                "weights": In(stream.Signature(command_layout(Opcode.WEIGHTS))),
                "weights_done": Out(1),
                "weights_held": Out(1),
                "weights_quiet": Out(1),
                "command": In(stream.Signature(command_layout(Opcode.MATMUL))),
                "starved": Out(1),
                "done": Out(1),
                "x_read": Out(BufferReadSignature(core)),
                "w_read": Out(BufferReadSignature(core)),
                "sums": In(AccumulatorReadSignature(core)),
                "flags": Out(4),
                "outside_write": Out(1),
                "outside_read": Out(1),
                "outside_address": Out(16),
                **{event: Out(1) for event in MATMUL_EVENTS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self.core
        m.submodules.array = array = PEArray(
            self.config.format, core.rows, core.columns, lut_rows=core.lut_multiplier_rows
        )
        m.submodules.accumulators = accumulators = AccumulatorMemory(core)
        m.submodules.matmul = matmul = MatmulEngine(
            core,
            array_latency=array.LATENCY,
            psum_offset=array.PSUM_OFFSET,
            one=self.config.format.one,
        )
        m.submodules.weights = weights = WeightLoader(core)

        connect(m, flipped(self.command), matmul.command)
        connect(m, flipped(self.weights), weights.command)
        connect(m, matmul.read, flipped(self.x_read))
        connect(m, weights.read, flipped(self.w_read))
        connect(m, flipped(self.sums), accumulators.post)
        m.d.comb += [
            self.done.eq(matmul.done),
            self.starved.eq(matmul.starved),
            self.weights_done.eq(weights.done),
            self.weights_held.eq(weights.holds),
            self.weights_quiet.eq(weights.quiet),
            matmul.tile_loaded.eq(weights.tile_loaded),
            weights.tile_used.eq(matmul.tile_used),
            weights.bias_used.eq(matmul.bias_used),
            array.w_valid.eq(weights.w_valid),
            array.w_bank.eq(weights.w_bank),
            array.w_column.eq(weights.w_column),
            array.w_data.eq(weights.w_data),
            array.x.eq(matmul.x),
            array.x_valid.eq(matmul.x_valid),
            array.weight_bank.eq(matmul.x_bank),
            array.lane_enable.eq(Cat(matmul.x_channels > c for c in range(core.columns))),
            array.psum.eq(accumulators.psum),
            accumulators.bias.eq(weights.bias),
            accumulators.read_en.eq(matmul.read_en),
            accumulators.read_bank.eq(matmul.read_bank),
            accumulators.read_address.eq(matmul.read_address),
            accumulators.init_zero.eq(matmul.init_zero),
            accumulators.init_bias.eq(matmul.init_bias),
            accumulators.write_en.eq(array.o_valid),
            accumulators.write_bank.eq(matmul.write_bank),
            accumulators.write_address.eq(matmul.write_address),
            accumulators.write_data.eq(array.o),
            self.flags.eq(array.o_flags.as_value()),
            self.outside_write.eq(accumulators.outside_write),
            self.outside_read.eq(accumulators.outside_post),
            self.outside_address.eq(accumulators.outside_address),
            *(getattr(self, event).eq(getattr(matmul, event)) for event in MATMUL_EVENTS),
        ]
        return m
