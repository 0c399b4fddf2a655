"""LOAD: bytes from DRAM, packed row by row into buffer words."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import (
    RESP_DECERR,
    RESP_OKAY,
    BufferWriteSignature,
    ErrorSignature,
    ReadChannelSignature,
)
from hw.isa.encoding import BUFFER_ADDRESS_WIDTH, MEMORY_SIZE_WIDTH, Opcode, engine_layout
from hw.isa.error_codes import ErrorCode
from hw.primitives.stream_register import SkidBuffer

from .burst import BurstPlanner, planned_burst_layout
from .gearbox import Packer

__all__ = ["LoadEngine"]


class LoadEngine(wiring.Component):
    """Executes LOAD commands of one core.

    Bursts of the next command are requested while the beats of the current one arrive. Beats are
    held back (``read.data.ready`` low) only while the buffer refuses writes or words leave slower
    than beats arrive.

    Throughput: one beat per cycle, at most one word per cycle. Latency: the first burst is
    requested 4 cycles after the command; a word is written 2 cycles after its last beat. Between
    the beats of two commands at most 3 cycles pass, and one for each word that the first's last
    beat completes.

    An error, or ``stop``, ends everything until reset: no further burst is requested, the beats of
    the ones requested are taken and dropped, then ``busy`` falls. Words already packed are still
    written.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig

    Members
    -------
    command : commands, in order; accepted up to two ahead
    done : one cycle per command, when its last word has been written
    busy : a command is unfinished or (after an error or ``stop``) a burst is outstanding
    stop : see above
    memory_base, memory_size : the memory window in bytes; stable while commands are executed
    read : bursts of up to ``axi_burst_beats`` (rounded down to a power of two) beats,
        ``axi_outstanding_reads`` of them outstanding
    write : buffer words, all groups enabled
    beat : a beat was received in this cycle
    error : ``UNALIGNED_ADDRESS``, ``ILLEGAL_FIELD`` (a zero count; a run that ends inside a row,
        with the buffer word as address; the latter goes unseen where a word is one granule, as
        rows make no difference there), ``MEMORY_WINDOW``, ``READ_SLVERR``, ``READ_DECERR``
    """

    def __init__(self, config, core):
        self.config = config
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(engine_layout(Opcode.LOAD))),
                "done": Out(1),
                "busy": Out(1),
                "stop": In(1),
                "memory_base": In(config.axi_address_width),
                "memory_size": In(MEMORY_SIZE_WIDTH),
                "read": Out(ReadChannelSignature(config)),
                "write": Out(BufferWriteSignature(core)),
                "beat": Out(1),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        # What says where the engine is:
        #
        # state         meaning                             set by                    cleared by
        # ------------  ----------------------------------  ------------------------  -----------
        # halted        nothing new until reset             an error, stop            reset
        # halt          halted, or stop in this cycle
        # waiting       row and address of a command wait   the command is accepted   packer.row
        #               for the packer                                                takes them
        # word_address  of the next word                    packer.row, counts up
        # pending       bursts whose beats are due          a burst is requested      its last beat
        # begun         a beat of the burst has arrived     every beat                the last one
        # unfinished    commands, counts                    accepted: up              done: down
        m = Module()
        config, core = self.config, self.core
        granule = config.granule_bytes
        low = granule.bit_length() - 1
        m.submodules.planner = planner = BurstPlanner(config)
        m.submodules.packer = packer = Packer(
            granule_width=8 * granule,
            beat_granules=config.beat_bytes // granule,
            word_granules=core.word_bytes // granule,
            row_width=32 - low,
        )

        halted = Signal()
        halt = Signal()
        m.d.comb += [halt.eq(halted | self.stop), planner.halt.eq(halt)]
        with m.If(self.stop):
            m.d.sync += halted.eq(1)

        # A command goes to the planner, and what the packer needs of it waits here.
        row = Signal(32 - low)
        address = Signal(BUFFER_ADDRESS_WIDTH)
        waiting = Signal()
        m.d.comb += [
            planner.memory_base.eq(self.memory_base),
            planner.memory_size.eq(self.memory_size),
            planner.i.payload.eq(self.command.payload),
            planner.i.valid.eq(self.command.valid & ~waiting),
            self.command.ready.eq(planner.i.ready & ~waiting),
            packer.row.payload.eq(row),
            packer.row.valid.eq(waiting),
        ]
        word_address = Signal(BUFFER_ADDRESS_WIDTH)
        with m.If(waiting & packer.row.ready):
            m.d.sync += [waiting.eq(0), word_address.eq(address)]
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [
                waiting.eq(1),
                address.eq(self.command.payload.buffer_address),
                row.eq(self.command.payload.row_bytes[low:] - 1),
            ]

        pending, burst, bad = self._receive(m, halt)
        # Words.
        m.submodules.out = out = SkidBuffer(
            data.StructLayout(
                {"address": BUFFER_ADDRESS_WIDTH, "data": core.word_width, "final": 1}
            )
        )
        m.d.comb += [
            out.i.valid.eq(packer.o.valid),
            packer.o.ready.eq(out.i.ready),
            out.i.payload.address.eq(word_address),
            out.i.payload.data.eq(packer.o.payload.data),
            out.i.payload.final.eq(packer.o.payload.final),
            self.write.valid.eq(out.o.valid),
            out.o.ready.eq(self.write.ready),
            self.write.address.eq(out.o.payload.address),
            self.write.data.eq(out.o.payload.data),
            self.write.enable.eq(Const(-1, core.groups_per_word)),
        ]
        with m.If(packer.o.valid & packer.o.ready):
            m.d.sync += word_address.eq(word_address + 1)
        m.d.sync += self.done.eq(out.o.valid & out.o.ready & out.o.payload.final)

        unfinished = Signal(range(8))
        accepted = self.command.valid & self.command.ready
        m.d.sync += unfinished.eq(unfinished + accepted - self.done)
        m.d.comb += self.busy.eq(planner.o.valid | pending.r_rdy | (~halted & (unfinished != 0)))

        self._report(m, halt, halted, (bad, burst.address), word_address)
        return m

    def _receive(self, m, halt):
        """Bursts and their beats: what is needed again when beats arrive waits in a queue. Returns
        the queue, what it holds of the burst that arrives, and whether a beat is refused."""
        config, granule = self.config, self.config.granule_bytes
        planner, packer = m.submodules.planner, m.submodules.packer
        bursts = planned_burst_layout(config)
        m.submodules.pending = pending = SyncFIFO(
            width=bursts.size, depth=config.axi_outstanding_reads
        )
        burst = data.View(bursts, pending.r_data)
        m.d.comb += [
            self.read.request.payload.address.eq(planner.o.payload.address),
            self.read.request.payload.length.eq(planner.o.payload.length),
            self.read.request.valid.eq(planner.o.valid & pending.w_rdy),
            planner.o.ready.eq(self.read.request.ready & pending.w_rdy),
            pending.w_data.eq(planner.o.payload),
            pending.w_en.eq(planner.o.valid & planner.o.ready),
        ]

        # Beats.
        beat = self.read.data.payload
        bad = Signal()
        begun = Signal()  # a beat of this burst has arrived
        m.d.comb += [
            bad.eq(beat.resp != RESP_OKAY),
            packer.i.valid.eq(self.read.data.valid & ~halt & ~bad),
            packer.i.payload.data.eq(beat.data),
            packer.i.payload.offset.eq(burst.offset),
            packer.i.payload.end.eq(Mux(beat.last, burst.end, config.beat_bytes // granule - 1)),
            packer.i.payload.first.eq(burst.first & ~begun),
            packer.i.payload.last.eq(burst.last & beat.last),
            packer.i.payload.final.eq(burst.final & beat.last),
            self.read.data.ready.eq(packer.i.ready | halt | bad),
            self.beat.eq(self.read.data.valid & self.read.data.ready),
            pending.r_en.eq(self.beat & beat.last),
        ]
        with m.If(self.beat):
            m.d.sync += begun.eq(~beat.last)
        return pending, burst, bad

    def _report(self, m, halt, halted, refused, word_address):
        """Errors; the first one wins."""
        planner, packer = m.submodules.planner, m.submodules.packer
        beat = self.read.data.payload
        bad, burst_address = refused
        m.d.sync += self.error.valid.eq(0)
        with m.If(~halt):
            with m.If(self.read.data.valid & bad):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(
                        Mux(
                            beat.resp == RESP_DECERR,
                            ErrorCode.READ_DECERR,
                            ErrorCode.READ_SLVERR,
                        )
                    ),
                    self.error.address.eq(burst_address),
                ]
            with m.Elif(packer.cut_row):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(ErrorCode.ILLEGAL_FIELD),
                    self.error.address.eq(word_address),
                ]
            with m.Elif(planner.error.valid):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(planner.error.code),
                    self.error.address.eq(planner.error.address),
                ]
