"""MATMUL: streams vectors through the PE array, K tile by K tile, into the accumulators."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bus import ACCUMULATOR_READ_LATENCY, BUFFER_READ_LATENCY, BufferReadSignature
from .commands import MATMUL_LOOPS, Init, Opcode, command_layout
from .config import BUFFER_ADDRESS_WIDTH
from .loop_nest import Affine, Counter, LoopNest
from .pipeline import delay
from .weight_loader import weight_command_layout

__all__ = ["MatmulEngine"]

_COORDINATE = signed(18)


class MatmulEngine(wiring.Component):
    """Executes MATMUL commands: address generation, zero padding, tile and hazard interlocks.

    One vector enters the array per cycle unless the next tile's weights are not there yet
    (``stall_weights``), the accumulators it would add to are still in the pipeline
    (``stall_hazard``; only when a K tile has fewer vectors than :attr:`hazard_cycles`), or the
    buffer serves another client (``stall_buffer``). Between two commands there is a gap of
    3 cycles. The pipeline behind a vector never stops.

    The weight side of the next command is accepted as soon as the loader is free, so that its
    first tile loads while the last tile of this one streams.

    Parameters
    ----------
    core : CoreConfig
    array_latency : int
        cycles from a vector at the array to its sums
    psum_offset : int
        cycles from a vector at the array to the partial sums it is added to

    Members
    -------
    command : ``In(stream of MATMUL)``; ``done``: Out(1)
    weights : ``Out(stream)`` of ``weight_command_layout``, to the :class:`WeightLoader`
    tile_loaded : In(1); ``tile_used``, ``bias_used``: Out(1)
    read : ``Out(BufferReadSignature(core))``, the vectors
    x, x_valid, x_bank, x_channels : Out, to the array; weight banks take turns, tile by tile
    read_en, read_bank, read_address, init_zero, init_bias : Out, to the accumulators
    write_bank, write_address : Out, for the sums that leave the array in this cycle
    vectors, tiles, stall_weights, stall_hazard, stall_buffer, stall_command : Out(1), events
    """

    def __init__(self, core, *, array_latency, psum_offset):
        self.core = core
        self.array_latency = array_latency
        self.psum_offset = psum_offset
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.MATMUL))),
                "done": Out(1),
                "weights": Out(stream.Signature(weight_command_layout())),
                "tile_loaded": In(1),
                "tile_used": Out(1),
                "bias_used": Out(1),
                "read": Out(BufferReadSignature(core)),
                "x": Out(core.word_width),
                "x_valid": Out(1),
                "x_bank": Out(1),
                "x_channels": Out(range(core.columns + 1)),
                "read_en": Out(1),
                "read_bank": Out(1),
                "read_address": Out(16),
                "init_zero": Out(1),
                "init_bias": Out(1),
                "write_bank": Out(1),
                "write_address": Out(16),
                "vectors": Out(1),
                "tiles": Out(1),
                "stall_weights": Out(1),
                "stall_hazard": Out(1),
                "stall_buffer": Out(1),
                "stall_command": Out(1),
            }
        )

    @property
    def hazard_cycles(self):
        """Least cycles between two vectors that add to the same accumulators.

        The sums of the first are in the memory ``BUFFER_READ_LATENCY + array_latency`` cycles
        after it was issued and can be read from the next cycle on; the second reads
        ``psum_offset`` cycles (and the memory's own latency less the buffer's) after its issue.
        """
        written = BUFFER_READ_LATENCY + self.array_latency + 1
        return written - self._psum_read_delay

    @property
    def _psum_read_delay(self):
        return BUFFER_READ_LATENCY + self.psum_offset - ACCUMULATOR_READ_LATENCY

    def elaborate(self, platform):
        m = Module()
        layout = command_layout(Opcode.MATMUL)
        m.submodules.nest = nest = LoopNest(
            dict.fromkeys(MATMUL_LOOPS, 16),
            {
                "address": Affine(
                    BUFFER_ADDRESS_WIDTH,
                    dict.fromkeys(MATMUL_LOOPS, signed(BUFFER_ADDRESS_WIDTH)),
                ),
                "h": Affine(_COORDINATE, {"ho": 8, "kh": 8}),
                "w": Affine(_COORDINATE, {"wo": 8, "kw": 8}),
                "entry": Counter(16, through="n"),
            },
        )

        # Commands ----------------
        # ``pending`` has been given to the weight loader and waits for the vectors' side.
        command, pending = Signal(layout), Signal(layout)
        active, has_pending = Signal(), Signal()
        accept, begin, continues = Signal(), Signal(), Signal()
        m.d.comb += [
            self.weights.payload.address.eq(self.command.payload.w_address),
            self.weights.payload.bias.eq(self.command.payload.init == Init.BIAS),
            self.weights.payload.kw.eq(self.command.payload.kw_count),
            self.weights.payload.kh.eq(self.command.payload.kh_count),
            self.weights.payload.cb.eq(self.command.payload.cb_count),
            self.weights.valid.eq(self.command.valid & ~has_pending),
            self.command.ready.eq(self.weights.ready & ~has_pending),
            accept.eq(self.command.valid & self.command.ready),
            begin.eq(has_pending & (~active | (nest.next & nest.final))),
        ]
        with m.If(nest.next & nest.final):
            m.d.sync += active.eq(0)
        with m.If(begin):
            m.d.sync += [command.eq(pending), active.eq(1), has_pending.eq(0)]
            # Adding to the very sums of the command before is like a further K tile of it.
            m.d.sync += continues.eq(
                (pending.accumulator_address == command.accumulator_address)
                & (pending.accumulator_bank == command.accumulator_bank)
            )
        with m.If(accept):
            m.d.sync += [pending.eq(self.command.payload), has_pending.eq(1)]
        m.d.sync += nest.start.eq(begin)
        for loop in MATMUL_LOOPS:
            m.d.comb += [
                nest.count[loop].eq(command[f"{loop}_count"]),
                nest.stride["address"][loop].eq(command[f"{loop}_stride"]),
            ]
        m.d.comb += [
            nest.stride["h"]["ho"].eq(command.ho_step),
            nest.stride["h"]["kh"].eq(command.kh_step),
            nest.stride["w"]["wo"].eq(command.wo_step),
            nest.stride["w"]["kw"].eq(command.kw_step),
            nest.origin["address"].eq(command.x_address),
            nest.origin["h"].eq(command.h_origin),
            nest.origin["w"].eq(command.w_origin),
            nest.origin["entry"].eq(command.accumulator_address),
        ]

        # One vector waits here to be issued ----------------
        step = Signal(
            data.StructLayout(
                {
                    "address": BUFFER_ADDRESS_WIDTH,
                    "padding": 1,
                    "entry": 16,
                    "bank": 1,
                    "channels": range(self.core.columns + 1),
                    "init_zero": 1,
                    "init_bias": 1,
                    "reads_sums": 1,
                    "other_sums": 1,
                    "tile_start": 1,
                    "tile_end": 1,
                    "bias_end": 1,
                    "final": 1,
                }
            )
        )
        has_step, issue = Signal(), Signal()
        first, last = nest.first, nest.last
        first_tile = first.kw & first.kh & first.cb
        tile_end = last.wo & last.ho & last.n
        m.d.comb += nest.next.eq(nest.valid & (~has_step | issue))
        with m.If(nest.next):
            m.d.sync += [
                step.address.eq(nest.value.address),
                step.padding.eq(
                    (nest.value.h.as_unsigned() >= command.h_limit)
                    | (nest.value.w.as_unsigned() >= command.w_limit)
                ),
                step.entry.eq(nest.value.entry),
                step.bank.eq(command.accumulator_bank),
                step.channels.eq(
                    Mux(command.channels > self.core.columns, self.core.columns, command.channels)
                ),
                step.init_zero.eq(first_tile & (command.init == Init.ZERO)),
                step.init_bias.eq(first_tile & (command.init == Init.BIAS)),
                step.reads_sums.eq(~first_tile | (command.init == Init.ACCUMULATOR)),
                step.other_sums.eq(first_tile & ~continues),
                step.tile_start.eq(first.wo & first.ho & first.n),
                step.tile_end.eq(tile_end),
                step.bias_end.eq(first_tile & tile_end & (command.init == Init.BIAS)),
                step.final.eq(nest.final),
            ]
        with m.If(nest.next):
            m.d.sync += has_step.eq(1)
        with m.Elif(issue):
            m.d.sync += has_step.eq(0)

        # Interlocks ----------------
        loaded = Signal()
        with m.If(self.tile_loaded):
            m.d.sync += loaded.eq(1)
        with m.Elif(self.tile_used):
            m.d.sync += loaded.eq(0)
        has_weights = ~step.tile_start | loaded
        distance = self.hazard_cycles
        # ``vectors`` counts down from the distance over one tile; what is left at its end is how
        # long the next tile, which adds to the same sums in the same order, must wait. A command
        # that adds to other sums waits until the pipeline is empty.
        vectors, settle, drain = (
            Signal(range(distance + 1), name=name) for name in ("vectors", "settle", "drain")
        )
        left = Mux(step.tile_start, distance, vectors)
        for counter, start in ((settle, Mux(left == 0, 0, left - 1)), (drain, distance)):
            with m.If(issue & step.tile_end):
                m.d.sync += counter.eq(start)
            with m.Elif(counter != 0):
                m.d.sync += counter.eq(counter - 1)
        with m.If(issue):
            m.d.sync += vectors.eq(Mux(left == 0, 0, left - 1))
        waits = Mux(step.other_sums, drain, settle) != 0
        hazard = step.tile_start & step.reads_sums & waits
        go = Signal()
        m.d.comb += [
            go.eq(has_step & has_weights & ~hazard),
            self.read.valid.eq(go & ~step.padding),
            self.read.address.eq(step.address),
            issue.eq(go & (step.padding | self.read.ready)),
        ]

        # Behind the issue: fixed delays ----------------
        bank = Signal(init=1)
        with m.If(self.tile_used):
            m.d.sync += bank.eq(~bank)
        at_array = BUFFER_READ_LATENCY
        padding = delay(m, step.padding, at_array, name="padding")
        m.d.comb += [
            self.x_valid.eq(delay(m, issue, at_array, name="x_valid")),
            self.x_bank.eq(delay(m, bank ^ step.tile_start, at_array, name="x_bank")),
            self.x_channels.eq(delay(m, step.channels, at_array, name="x_channels")),
            self.x.eq(Mux(padding, 0, self.read.data)),
        ]
        at_read = self._psum_read_delay
        assert at_read >= 0
        tag = Signal(step.shape())
        m.d.comb += tag.eq(step)
        reads = delay(m, tag, at_read, name="psum_tag")
        reads_valid = delay(m, issue, at_read, name="psum_valid")
        m.d.comb += [
            self.read_en.eq(reads_valid),
            self.read_bank.eq(reads.bank),
            self.read_address.eq(reads.entry),
        ]
        m.d.sync += [self.init_zero.eq(reads.init_zero), self.init_bias.eq(reads.init_bias)]

        at_write = at_array + self.array_latency
        remaining = Signal(data.StructLayout({"entry": 16, "bank": 1, "final": 1}))
        m.d.comb += [
            remaining.entry.eq(reads.entry),
            remaining.bank.eq(reads.bank),
            remaining.final.eq(reads.final & reads_valid),
        ]
        writes = delay(m, remaining, at_write - at_read, name="write_tag")
        m.d.comb += [
            self.write_bank.eq(writes.bank),
            self.write_address.eq(writes.entry),
        ]
        m.d.sync += self.done.eq(writes.final)

        # The biases are free once the last vector of the first tile has read them: ``at_write``
        # cycles after its issue at the latest, and nobody is in a hurry.
        m.d.comb += [
            self.tile_used.eq(issue & step.tile_start),
            self.bias_used.eq(delay(m, issue & step.bias_end, at_write, name="bias_used")),
        ]

        m.d.comb += [
            self.vectors.eq(issue),
            self.tiles.eq(issue & step.tile_end),
            self.stall_weights.eq(has_step & ~has_weights),
            self.stall_hazard.eq(has_step & has_weights & hazard),
            self.stall_buffer.eq(go & ~issue),
            self.stall_command.eq(~has_step),
        ]
        return m
