"""STORE: buffer words to DRAM, the padding of every row cut off."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import (
    BUFFER_READ_LATENCY,
    RESP_DECERR,
    RESP_OKAY,
    BufferReadSignature,
    ErrorSignature,
    WriteChannelSignature,
)
from hw.isa.encoding import BUFFER_ADDRESS_WIDTH, MEMORY_SIZE_WIDTH, Opcode, engine_layout
from hw.isa.error_codes import ErrorCode
from hw.primitives.pipeline import delay

from .burst import BurstPlanner
from .gearbox import RowCounter, Unpacker

__all__ = ["StoreEngine", "WordReader"]

#: Write bursts that may wait for their response.
OUTSTANDING_WRITES = 8
#: Words between the buffer and the unpacker; covers the buffer's latency.
WORD_QUEUE_DEPTH = 8


class WordReader(wiring.Component):
    """Reads the words of a STORE command and says how much of each is data.

    One word per cycle; two idle cycles from command to command. A word comes
    ``BUFFER_READ_LATENCY + 1`` cycles after its read was accepted. A read is only begun when there
    is room for its word, so ``o`` may stall for any time.

    Members
    -------
    i : commands; the DRAM fields are ignored
    read : port of the buffer
    o : words; ``top`` is the number of valid granules minus one, ``last`` ends a run
    halt : begin no further read
    cut_row : the run ends inside a row, or inside the valid part of word ``address``, whose read
        follows all the same: the word must not reach the DRAM
    """

    def __init__(self, config, core):
        granule = config.granule_bytes
        self.low = granule.bit_length() - 1
        self.word_granules = core.word_bytes // granule
        self.word = data.StructLayout(
            {"data": core.word_width, "top": range(self.word_granules), "last": 1}
        )
        super().__init__(
            {
                "i": In(stream.Signature(engine_layout(Opcode.STORE))),
                "read": Out(BufferReadSignature(core)),
                "o": Out(stream.Signature(self.word)),
                "halt": In(1),
                "cut_row": Out(1),
                "address": Out(BUFFER_ADDRESS_WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        low = self.low
        m.submodules.rows = rows = RowCounter(word_granules=self.word_granules, row_width=32 - low)
        m.submodules.words = words = SyncFIFO(width=self.word.size, depth=WORD_QUEUE_DEPTH)

        command = self.i.payload
        active = Signal()
        prime = Signal()
        extent = Signal(32 - low)  # granules of a run minus one
        left = Signal(32 - low)  # granules of this run that are not read yet, minus one
        runs = Signal(16)  # behind this one
        free = Signal(range(WORD_QUEUE_DEPTH + 1), init=WORD_QUEUE_DEPTH)
        room = Signal(init=1)

        rest = Signal(33 - low)
        run_end = Signal()
        ask = Signal()
        m.d.comb += [
            self.i.ready.eq(~active & ~prime & ~self.halt),
            rows.start.eq(self.i.ready),
            rows.row.eq(command.row_bytes[low:] - 1),
            rows.advance.eq(prime | ask),
            rest.eq(left - rows.top - 1),  # minus one as well: negative at the end
            run_end.eq(rest[-1]),
            # The end of the run must be the end of a row, and of a whole word's valid part.
            self.cut_row.eq(active & run_end & ~(rows.row_end & (left == rows.top))),
            self.read.valid.eq(active & room & ~self.halt),
            self.read.address.eq(self.address),
            ask.eq(self.read.valid & self.read.ready),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                prime.eq(self.i.valid),
                self.address.eq(command.buffer_address),
                extent.eq(command.run_bytes[low:] - 1),
                left.eq(command.run_bytes[low:] - 1),
                runs.eq(command.run_count - 1),
            ]
        with m.If(prime):
            m.d.sync += [prime.eq(0), active.eq(1)]
        with m.If(ask):
            m.d.sync += [self.address.eq(self.address + 1), left.eq(Mux(run_end, extent, rest))]
            with m.If(run_end):
                m.d.sync += [runs.eq(runs - 1), active.eq(runs != 0)]

        taken = Signal()
        next_free = Signal.like(free)
        m.d.comb += [
            taken.eq(self.o.valid & self.o.ready),
            next_free.eq(free + taken - ask),
        ]
        m.d.sync += [free.eq(next_free), room.eq(next_free != 0)]

        # What is known of a word travels beside the read.
        known = delay(m, Cat(ask, rows.top, run_end), BUFFER_READ_LATENCY, name="known", reset=True)
        m.d.comb += [
            words.w_en.eq(known[0]),
            words.w_data.eq(Cat(self.read.data, known[1:])),
            self.o.valid.eq(words.r_rdy),
            self.o.payload.eq(words.r_data),
            words.r_en.eq(self.o.ready),
        ]
        return m


class StoreEngine(wiring.Component):
    """Executes STORE commands of one core.

    Words of the next command are read, and its bursts requested, while the beats of the current
    one leave.

    Throughput: one beat per cycle, at most one word per cycle; one idle cycle per run.
    The first burst is requested 4 cycles after the command; a beat is offered
    ``BUFFER_READ_LATENCY`` + 2 cycles after the read of its last word.

    An error, or ``stop``, ends everything until reset: no further burst is requested, beats that
    are owed are sent without strobes, responses are awaited, then ``busy`` falls.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig

    Members
    -------
    command : commands, in order
    done : one cycle per command, when all its responses have come
    busy : a command is unfinished or (after an error or ``stop``) a burst is outstanding
    stop : see above
    memory_base, memory_size : the memory window in bytes; stable while commands are executed
    write : bursts of up to ``axi_burst_beats`` (rounded down to a power of two) beats,
        :data:`OUTSTANDING_WRITES` of them outstanding
    read : buffer words
    beat : a beat was sent in this cycle
    error : ``UNALIGNED_ADDRESS``, ``ILLEGAL_FIELD`` (a zero count; a run that ends inside a row,
        with the buffer word as address; the latter goes unseen where a word is one granule, as
        rows make no difference there), ``MEMORY_WINDOW``, ``WRITE_SLVERR``, ``WRITE_DECERR``
    """

    def __init__(self, config, core):
        self.config = config
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(engine_layout(Opcode.STORE))),
                "done": Out(1),
                "busy": Out(1),
                "stop": In(1),
                "memory_base": In(config.axi_address_width),
                "memory_size": In(MEMORY_SIZE_WIDTH),
                "write": Out(WriteChannelSignature(config)),
                "read": Out(BufferReadSignature(core)),
                "beat": Out(1),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        # What says where the engine is:
        #
        # state       meaning                               set by                    cleared by
        # ----------  ------------------------------------  ------------------------  -----------
        # halted      nothing new until reset               an error, stop            reset
        # halt        halted, or stop in this cycle
        # due         lengths of bursts with beats to send  a burst is requested      its last beat
        # pending     bursts without a response             a burst is requested      its response
        # offsets     where runs begin in their first beat  a run's first burst       its first word
        # sent        beats of the burst, counts up         every beat                the last one
        # blank       beats have no strobes                 halt, none is on offer    reset
        # unfinished  commands, counts                      accepted: up              done: down
        m = Module()
        config, core = self.config, self.core
        granule = config.granule_bytes
        beat_granules = config.beat_bytes // granule
        m.submodules.planner = planner = BurstPlanner(config)
        m.submodules.reader = reader = WordReader(config, core)
        m.submodules.unpacker = Unpacker(
            granule_width=8 * granule,
            beat_granules=beat_granules,
            word_granules=core.word_bytes // granule,
        )

        halted = Signal()
        halt = Signal()
        m.d.comb += [
            halt.eq(halted | self.stop),
            planner.halt.eq(halt),
            reader.halt.eq(halt),
        ]
        with m.If(self.stop):
            m.d.sync += halted.eq(1)

        # A command goes to the planner and the reader at once.
        m.d.comb += [
            planner.memory_base.eq(self.memory_base),
            planner.memory_size.eq(self.memory_size),
            planner.i.payload.eq(self.command.payload),
            reader.i.payload.eq(self.command.payload),
            planner.i.valid.eq(self.command.valid & reader.i.ready),
            reader.i.valid.eq(self.command.valid & planner.i.ready),
            self.command.ready.eq(planner.i.ready & reader.i.ready),
            self.read.valid.eq(reader.read.valid),
            self.read.address.eq(reader.read.address),
            reader.read.ready.eq(self.read.ready),
            reader.read.data.eq(self.read.data),
        ]

        due, pending, response_layout = self._add_bursts(m)
        self._send(m, halt, due)

        # Responses.
        response = data.View(response_layout, pending.r_data)
        bad = Signal()
        m.d.comb += [
            self.write.response.ready.eq(1),
            pending.r_en.eq(self.write.response.valid),
            bad.eq(self.write.response.valid & (self.write.response.payload != RESP_OKAY)),
        ]
        m.d.sync += self.done.eq(self.write.response.valid & response.final & ~bad & ~halt)

        unfinished = Signal(range(OUTSTANDING_WRITES + 4))
        accepted = self.command.valid & self.command.ready
        m.d.sync += unfinished.eq(unfinished + accepted - self.done)
        m.d.comb += self.busy.eq(planner.o.valid | pending.r_rdy | (~halted & (unfinished != 0)))

        self._report(m, halt, halted, bad, response.address)
        return m

    def _add_bursts(self, m):
        """A queue of bursts whose beats are due, one of those without a response, and where each
        run begins in its first beat. Returns both, and the layout of what the second holds."""
        config = self.config
        beat_granules = config.beat_bytes // config.granule_bytes
        planner, unpacker = m.submodules.planner, m.submodules.unpacker
        response_layout = data.StructLayout({"address": config.axi_address_width, "final": 1})
        m.submodules.due = due = SyncFIFO(width=8, depth=OUTSTANDING_WRITES)
        m.submodules.pending = pending = SyncFIFO(
            width=response_layout.size, depth=OUTSTANDING_WRITES
        )
        planned = planner.o.payload
        pending_in = data.View(response_layout, pending.w_data)
        m.d.comb += [
            self.write.request.payload.address.eq(planned.address),
            self.write.request.payload.length.eq(planned.length),
            self.write.request.valid.eq(planner.o.valid & pending.w_rdy),
            planner.o.ready.eq(self.write.request.ready & pending.w_rdy),
            due.w_data.eq(planned.length),
            pending_in.address.eq(planned.address),
            pending_in.final.eq(planned.final),
            due.w_en.eq(planner.o.valid & planner.o.ready),
            pending.w_en.eq(due.w_en),
        ]

        # Where each run begins in its first beat.
        if beat_granules == 1:
            m.d.comb += unpacker.offset.valid.eq(1)
        else:
            m.submodules.offsets = offsets = SyncFIFO(
                width=len(planned.offset), depth=OUTSTANDING_WRITES
            )
            m.d.comb += [
                offsets.w_data.eq(planned.offset),
                offsets.w_en.eq(due.w_en & planned.first),
                unpacker.offset.payload.eq(offsets.r_data),
                unpacker.offset.valid.eq(offsets.r_rdy),
                offsets.r_en.eq(unpacker.offset.ready),
            ]
        return due, pending, response_layout

    def _send(self, m, halt, due):
        """The beats of the bursts that are due; without strobes after a halt."""
        granule = self.config.granule_bytes
        beat_granules = self.config.beat_bytes // granule
        reader, unpacker = m.submodules.reader, m.submodules.unpacker
        beat = self.write.data.payload
        sent = Signal(8)  # beats of this burst
        blank = Signal()  # send beats without strobes
        m.d.comb += [
            unpacker.i.payload.eq(reader.o.payload),
            unpacker.i.valid.eq(reader.o.valid),
            reader.o.ready.eq(unpacker.i.ready),
            self.write.data.valid.eq(due.r_rdy & (unpacker.o.valid | blank)),
            unpacker.o.ready.eq(due.r_rdy & self.write.data.ready),
            beat.data.eq(unpacker.o.payload.data),
            beat.last.eq(sent == due.r_data),
            self.beat.eq(self.write.data.valid & self.write.data.ready),
            due.r_en.eq(self.beat & beat.last),
        ]
        for index in range(beat_granules):
            m.d.comb += beat.strb.word_select(index, granule).eq(
                (unpacker.o.payload.enable[index] & ~blank).replicate(granule)
            )
        # A beat on offer when the halt comes keeps its payload until it is taken.
        with m.If(halt & (~self.write.data.valid | self.write.data.ready)):
            m.d.sync += blank.eq(1)
        with m.If(self.beat):
            m.d.sync += sent.eq(sent + 1)
            with m.If(beat.last):
                m.d.sync += sent.eq(0)

    def _report(self, m, halt, halted, bad, address):
        """Errors; the first one wins."""
        planner, reader = m.submodules.planner, m.submodules.reader
        m.d.sync += self.error.valid.eq(0)
        with m.If(~halt):
            with m.If(bad):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(
                        Mux(
                            self.write.response.payload == RESP_DECERR,
                            ErrorCode.WRITE_DECERR,
                            ErrorCode.WRITE_SLVERR,
                        )
                    ),
                    self.error.address.eq(address),
                ]
            with m.Elif(planner.error.valid):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(planner.error.code),
                    self.error.address.eq(planner.error.address),
                ]
            with m.Elif(reader.cut_row):
                m.d.sync += [
                    halted.eq(1),
                    self.error.valid.eq(1),
                    self.error.code.eq(ErrorCode.ILLEGAL_FIELD),
                    self.error.address.eq(reader.address),
                ]
