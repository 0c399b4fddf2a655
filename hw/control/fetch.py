"""Command fetch: reads the program from DRAM ahead of its execution."""

from functools import partial

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import RESP_DECERR, RESP_OKAY, ErrorSignature, ReadChannelSignature
from hw.isa.encoding import COMMAND_BYTES, COMMAND_WIDTH, MEMORY_SIZE_WIDTH
from hw.isa.error_codes import ErrorCode

from .command_queue import CHUNK_WIDTH

__all__ = ["CommandFetch"]

#: Commands requested ahead of the one that is being dispatched.
AHEAD = 4


class CommandFetch(wiring.Component):
    """Streams the commands of a program, one burst per command, :data:`AHEAD` in flight.

    The program lies at ``program_address`` in the memory window, aligned to
    :data:`~hw.isa.encoding.COMMAND_BYTES`, and inside the address space. Every requested
    beat has a place reserved, so the read channel is never held up. The first burst is requested
    3 cycles after ``start``. Throughput: one command per ``512 / axi_data_width + 1`` cycles. Idle
    after reset.

    Members
    -------
    start : In(1), begin with the command at ``first``; the fetch must be idle
    stop : In(1), request nothing more and drop what arrives
    first : In(32), offset in the memory window, in the program
    memory_base, memory_size, program_address, program_size : In, bytes, stable while running
    read : ``Out(ReadChannelSignature(config))``
    command : ``Out(stream of 512 bits)``; ``address``: Out, its DRAM address
    shift : In(1), move the command offered down by CHUNK_WIDTH bits; not before it is valid
    busy : Out(1), a burst is outstanding
    error : ``Out(ErrorSignature())``: ``UNALIGNED_ADDRESS``, ``MEMORY_WINDOW``; and, when the
        consumer wants the command in question, not before, ``READ_SLVERR`` (also for EXOKAY),
        ``READ_DECERR``, ``PROGRAM_END`` (it is behind the last one)
    """

    def __init__(self, config):
        self.config = config
        width = config.axi_address_width
        super().__init__(
            {
                "start": In(1),
                "first": In(32),
                "stop": In(1),
                "memory_base": In(width),
                "memory_size": In(MEMORY_SIZE_WIDTH),
                "program_address": In(32),
                "program_size": In(32),
                "read": Out(ReadChannelSignature(config)),
                "command": Out(stream.Signature(COMMAND_WIDTH)),
                "shift": In(1),
                "address": Out(width),
                "busy": Out(1),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        # What says where the fetch is:
        #
        # state        meaning                               set by                   cleared by
        # -----------  ------------------------------------  -----------------------  --------------
        # starting     start_address and end are known       start                    the next cycle
        # checking     they are checked                      starting                 the next cycle
        # running      commands are fetched                  checking, nothing wrong  an error, stop
        # offset       of the next request, counts up        start
        # fresh        target and more belong to offset      any other cycle          start,
        #                                                                             starting,
        #                                                                             requested
        # room         commands that may be requested        taken: up                requested:
        #                                                                             down
        # outstanding  bursts without their last beat        requested: up            received: down
        # refused      the next command that is not whole    a beat with an error     reset
        #              could not be read
        # no_address   DECERR was the reason                 the same                 reset
        # count        beats of the command in words         a beat shifts in: up     taken
        m = Module()
        config = self.config
        beats = COMMAND_WIDTH // config.axi_data_width
        m.submodules.fifo = fifo = SyncFIFO(width=config.axi_data_width, depth=AHEAD * beats)

        running = Signal()
        offset = Signal(33)
        end = Signal(33)
        room = Signal(range(AHEAD + 1), init=AHEAD)
        outstanding = Signal(range(AHEAD + 1))
        requested, received = Signal(), Signal()
        request = self.read.request
        m.d.comb += [
            requested.eq(request.valid & request.ready),
            received.eq(self.read.data.valid & self.read.data.ready & self.read.data.payload.last),
            self.busy.eq((outstanding != 0) | request.valid),
        ]
        m.d.sync += outstanding.eq(outstanding + requested - received)

        refused = Signal()
        no_address = Signal()

        # Requests ----------------
        m.d.sync += self.error.valid.eq(0)

        fail = partial(self._fail, running)
        starting = self._start(m, running, offset, end)

        target = Signal(config.axi_address_width)
        more = Signal()
        m.d.sync += [target.eq(self.memory_base + offset), more.eq(offset + COMMAND_BYTES <= end)]
        fresh = Signal()  # target and more belong to offset
        m.d.sync += fresh.eq(~starting & ~self.start & ~requested)
        m.d.comb += [
            request.payload.address.eq(target),
            request.payload.length.eq(beats - 1),
            request.valid.eq(running & fresh & more & (room != 0) & ~refused),
        ]
        with m.If(requested):
            m.d.sync += offset.eq(offset + COMMAND_BYTES)

        # Data ----------------
        # A command that could not be read is never whole, and nothing behind it is kept. It may lie
        # behind the last one that is executed, so it is an error only when it is wanted.
        beat = self.read.data
        good = Signal()
        m.d.comb += [
            good.eq(beat.payload.resp == RESP_OKAY),
            beat.ready.eq(1),
            fifo.w_data.eq(beat.payload.data),
            fifo.w_en.eq(beat.valid & running & good & ~refused),
        ]
        with m.If(beat.valid & running & ~good & ~refused):
            m.d.sync += [refused.eq(1), no_address.eq(beat.payload.resp == RESP_DECERR)]

        empty = self._offer(m, fifo, running, room, requested)
        at_refused = running & refused & empty
        at_end = running & fresh & ~more & (room == AHEAD) & (outstanding == 0)
        with m.If(at_refused & self.command.ready):
            m.d.sync += fail(
                Mux(no_address, int(ErrorCode.READ_DECERR), int(ErrorCode.READ_SLVERR)),
                self.address,
            )
        with m.Elif(at_end & self.command.ready):
            m.d.sync += fail(ErrorCode.PROGRAM_END, self.address)

        with m.If(self.stop):
            m.d.sync += running.eq(0)
        return m

    def _fail(self, running, code, address):
        return [
            self.error.valid.eq(1),
            self.error.code.eq(code),
            self.error.address.eq(address),
            running.eq(0),
        ]

    def _start(self, m, running, offset, end):
        """From ``start`` to ``running``: addresses are added up, and checked a cycle later. Returns
        the strobe that says that they are there."""
        fail = partial(self._fail, running)
        width = self.config.axi_address_width
        start_address = Signal(width)
        behind = Signal(width + 2)
        starting = Signal()
        checking = Signal()
        with m.If(self.start):
            m.d.sync += [
                start_address.eq(self.memory_base + self.first),
                offset.eq(self.first),
                end.eq(self.program_address + self.program_size),
                starting.eq(1),
            ]
        with m.If(starting):
            m.d.sync += [
                starting.eq(0),
                checking.eq(1),
                self.address.eq(start_address),
                behind.eq(self.memory_base + end),
            ]
        with m.If(checking):
            m.d.sync += checking.eq(0)
            with m.If(start_address[: COMMAND_BYTES.bit_length() - 1].any()):
                m.d.sync += fail(ErrorCode.UNALIGNED_ADDRESS, start_address)
            with m.Elif((end > self.memory_size) | (behind > 1 << width)):
                m.d.sync += fail(ErrorCode.MEMORY_WINDOW, behind)
            with m.Else():
                m.d.sync += running.eq(1)
        return starting

    def _offer(self, m, fifo, running, room, requested):
        """Commands: beats shift in from the top until one is whole. Returns whether there is
        neither a whole command nor a beat to go on with."""
        config = self.config
        beats = COMMAND_WIDTH // config.axi_data_width
        words = Signal(COMMAND_WIDTH)
        count = Signal(range(beats + 1))
        taken = Signal()
        m.d.comb += [
            self.command.payload.eq(words),
            self.command.valid.eq((count == beats) & running),
            taken.eq(self.command.valid & self.command.ready),
            fifo.r_en.eq(count != beats),
        ]
        m.d.sync += room.eq(room - requested + taken)
        with m.If(fifo.r_en & fifo.r_rdy):
            m.d.sync += [
                words.eq(Cat(words, fifo.r_data)[config.axi_data_width :]),
                count.eq(count + 1),
            ]
        with m.If(self.shift):
            m.d.sync += words.eq(words.shift_right(CHUNK_WIDTH))
        with m.If(taken):
            m.d.sync += [count.eq(0), self.address.eq(self.address + COMMAND_BYTES)]
        return ~fifo.r_rdy & (count != beats)
