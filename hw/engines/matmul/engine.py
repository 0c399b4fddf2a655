"""MATMUL: streams vectors through the PE array, K tile by K tile, into the accumulators."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import ACCUMULATOR_READ_LATENCY, BUFFER_READ_LATENCY, BufferReadSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import Opcode, command_layout
from hw.primitives.pipeline import delay
from hw.primitives.stream_register import SkidBuffer
from hw.primitives.transposer import BlockTransposer

from .address_generator import MatmulSteps

__all__ = ["MatmulEngine"]


class MatmulEngine(wiring.Component):
    """Executes MATMUL commands: zero padding, tile and hazard interlocks, transposition.

    One vector enters the array per cycle unless the next tile's weights are not there yet
    (``stall_weights``), the accumulators it would add to are still in the pipeline
    (``stall_hazard``; only when a K tile has fewer vectors than :attr:`hazard_cycles`), or the
    buffer serves another client (``stall_buffer``). Between two commands there is a gap of
    3 cycles. The pipeline behind a vector never stops.

    With ``transpose`` the words of ``rows`` pixels go through a
    :class:`~hw.primitives.transposer.BlockTransposer` and the vectors across them into the array:
    the first vector of a command comes ``rows`` cycles later than otherwise, and from then on one
    per cycle.

    Parameters
    ----------
    core : CoreConfig
    array_latency : int
        cycles from a vector at the array to its sums
    psum_offset : int
        cycles from a vector at the array to the partial sums it is added to
    one : int
        operand code of 1

    Members
    -------
    command : ``In(stream of MATMUL)``; ``done``: Out(1)
    tile_loaded : In(1); ``tile_used``, ``bias_used``: Out(1)
    starved : Out(1), nothing enters the array before ``tile_loaded``
    read : ``Out(BufferReadSignature(core))``, the vectors
    x, x_valid, x_bank, x_channels : Out, to the array; weight banks take turns, tile by tile
    read_en, read_bank, read_address, init_zero, init_bias : Out, to the accumulators
    write_bank, write_address : Out, for the sums that leave the array in this cycle
    vectors, tiles, stall_weights, stall_hazard, stall_buffer, stall_command : Out(1), events
    """

    def __init__(self, core, *, array_latency, psum_offset, one):
        self.core = core
        self.array_latency = array_latency
        self.psum_offset = psum_offset
        self.one = one
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.MATMUL))),
                "done": Out(1),
                "tile_loaded": In(1),
                "tile_used": Out(1),
                "bias_used": Out(1),
                "starved": Out(1),
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
        # What says where the engine is:
        #
        # state     meaning                                   set by             cleared by
        # --------  ----------------------------------------  -----------------  -----------------
        # waiting   up to two steps are not issued            steps              issue
        # go        the first of them may be issued: it is no vector, or has weights and no hazard
        # issue     it is, and the buffer takes its read
        # loaded    a tile's weights are in the array         tile_loaded        tile_used
        # bank      of the array's weights in use             tile_used: turns
        # vectors   cycles to this tile's first sums          every vector       counts down
        # settle,   cycles until the last tile's sums can be  a tile's end       counts down
        #   drain   added to; until all are in place
        # settles,  these are not 0                           a tile's end       their last step
        #   drains
        m = Module()
        m.submodules.steps = steps = MatmulSteps(self.core)
        wiring.connect(m, wiring.flipped(self.command), steps.command)

        # One step waits here to be issued; a second one may follow before that is known ----------
        point = steps.o.payload
        step_shape = data.StructLayout(
            {"address": BUFFER_ADDRESS_WIDTH, "reads": 1, "about": point["about"].shape()}
        )
        m.submodules.waiting = waiting = SkidBuffer(step_shape)
        m.d.comb += [
            waiting.i.valid.eq(steps.o.valid),
            steps.o.ready.eq(waiting.i.ready),
            waiting.i.payload.address.eq(point.address),
            waiting.i.payload.reads.eq(
                point.enters
                & (point.h.as_unsigned() < point.h_limit)
                & (point.w.as_unsigned() < point.w_limit)
            ),
            waiting.i.payload.about.eq(point.about),
        ]
        step = waiting.o.payload
        about = step.about
        has_step, issue = waiting.o.valid, waiting.o.ready

        go = Signal()
        vector = issue & about.vector
        ends = vector & about.tile_end
        has_weights, hazard = self._interlocks(m, about, vector, ends)
        m.d.comb += [
            go.eq(has_step & (~about.vector | (has_weights & ~hazard))),
            self.read.valid.eq(go & step.reads),
            self.read.address.eq(step.address),
            issue.eq(go & (~step.reads | self.read.ready)),
            self.starved.eq(has_step & ~has_weights),
        ]

        self._feed_array(m, step, issue, vector)
        self._feed_accumulators(m, about, vector, ends)

        m.d.comb += [
            self.vectors.eq(vector),
            self.tiles.eq(ends),
            self.stall_weights.eq(self.starved),
            self.stall_hazard.eq(has_step & has_weights & hazard),
            self.stall_buffer.eq(go & ~issue),
            self.stall_command.eq(~has_step | (issue & ~about.vector)),
        ]
        return m

    def _feed_array(self, m, step, issue, vector):
        """Behind the issue: words go into the array, or through the transposer, when they have
        been read."""
        about = step.about
        at_array = BUFFER_READ_LATENCY
        arrived = data.StructLayout({"valid": 1, "shift": 1, "reads": 1, "straight": 1, "ones": 1})
        now, then = Signal(arrived), Signal(arrived)
        m.d.comb += [
            now.valid.eq(vector),
            now.shift.eq(issue & about.shift),
            now.reads.eq(step.reads),
            now.straight.eq(~about.shift),
            now.ones.eq(about.ones),
            then.eq(delay(m, now, at_array, name="arrived", reset=True)),
        ]
        m.submodules.transposer = transposer = BlockTransposer(
            self.core.rows, self.core.operand_width
        )
        word = Signal(self.core.word_width)
        ones = sum(self.one << (self.core.operand_width * row) for row in range(self.core.rows))
        m.d.comb += [
            word.eq(Mux(then.ones, ones, Mux(then.reads, self.read.data, 0))),
            transposer.step.eq(then.shift),
            transposer.i.as_value().eq(word),
            self.x.eq(Mux(then.straight, word, transposer.o.as_value())),
            self.x_valid.eq(then.valid),
        ]
        bank = Signal(init=1)
        with m.If(self.tile_used):
            m.d.sync += bank.eq(~bank)
        m.d.comb += [
            self.x_bank.eq(delay(m, bank ^ about.tile_start, at_array, name="x_bank", reset=True)),
            self.x_channels.eq(delay(m, about.channels, at_array, name="x_channels", reset=True)),
        ]

    def _feed_accumulators(self, m, about, vector, ends):
        """Behind the issue: partial sums are read, written and finished after fixed delays."""
        at_array = BUFFER_READ_LATENCY
        at_read = self._psum_read_delay
        assert at_read >= 0
        reads = delay(m, about, at_read, name="psum_tag", reset=True)
        reads_valid = delay(m, vector, at_read, name="psum_valid", reset=True)
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
        writes = delay(m, remaining, at_write - at_read, name="write_tag", reset=True)
        m.d.comb += [
            self.write_bank.eq(writes.bank),
            self.write_address.eq(writes.entry),
        ]
        m.d.sync += self.done.eq(writes.final)

        # The biases are free once the last vector of the first tile has read them: ``at_write``
        # cycles after its issue at the latest, and nobody is in a hurry.
        m.d.comb += [
            self.tile_used.eq(vector & about.tile_start),
            self.bias_used.eq(
                delay(m, ends & about.init_bias, at_write, name="bias_used", reset=True)
            ),
        ]

    def _interlocks(self, m, about, vector, ends):
        """Whether the weights of the vector that waits are there, and whether its sums are not."""
        loaded = Signal()
        with m.If(self.tile_loaded):
            m.d.sync += loaded.eq(1)
        with m.Elif(self.tile_used):
            m.d.sync += loaded.eq(0)
        has_weights = ~about.tile_start | loaded
        distance = self.hazard_cycles
        # ``vectors`` counts down from the distance over one tile; what is left at its end is how
        # long the next tile, which adds to the same sums in the same order, must wait. A command
        # that adds to other sums waits until the pipeline is empty.
        vectors, settle, drain = (
            Signal(range(distance + 1), name=name) for name in ("vectors", "settle", "drain")
        )
        settles, drains = Signal(), Signal()  # the counters are not 0
        left = Mux(about.tile_start, distance, vectors)
        for counter, waits, start in (
            (settle, settles, Mux(left == 0, 0, left - 1)),
            (drain, drains, distance),
        ):
            with m.If(ends):
                m.d.sync += [counter.eq(start), waits.eq(start != 0)]
            with m.Elif(waits):
                m.d.sync += [counter.eq(counter - 1), waits.eq(counter != 1)]
        with m.If(vector):
            m.d.sync += vectors.eq(Mux(left == 0, 0, left - 1))
        waits = Mux(about.other_sums, drains, settles)
        return has_weights, about.tile_start & about.reads_sums & waits
