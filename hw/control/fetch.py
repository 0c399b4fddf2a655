"""Command fetch: reads the program from DRAM ahead of its execution."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.bus.signatures import RESP_DECERR, RESP_OKAY, ErrorSignature, ReadChannelSignature
from hw.isa.encoding import COMMAND_WIDTH, MEMORY_SIZE_WIDTH
from hw.isa.error_codes import ErrorCode
from hw.isa.packing import LINE_BYTES

from .command_reader import CommandReader
from .command_ring import CommandRing

__all__ = ["CommandFetch"]

#: Lines requested ahead of the one that is being read.
AHEAD = 4
#: Lines that are kept, those included: so far back a jump needs no memory.
KEPT = 32


def _bits(size):
    """Bits of a place inside something of ``size`` bytes, a power of two."""
    return (size - 1).bit_length()


class CommandFetch(wiring.Component):
    """Streams the commands of a program, one burst per line of LINE_BYTES, :data:`AHEAD` in flight.

    The program lies at ``program_address`` in the memory window, aligned to
    :data:`~hw.isa.packing.LINE_BYTES`, and inside the address space; only whole lines of it are
    read. Every requested beat has a place reserved, so the read channel is never held up. The first
    burst is requested 3 cycles after ``start``. Throughput: that of
    :class:`~hw.control.command_reader.CommandReader`. Idle after reset.

    A ``jump`` to what is still kept, that is the last KEPT - AHEAD lines that were read, reads it
    again from there, a cycle later than the command behind the jump would have been. Any other jump
    drops what was fetched: the first burst, from the beat with the command to the end of its line,
    is requested 2 cycles after it, when fewer than AHEAD are outstanding.

    Members
    -------
    start : In(1), begin with the command at ``first``; the fetch must be idle
    stop : In(1), request nothing more and drop what arrives
    first : In(32), offset in the memory window, in the program
    memory_base, memory_size, program_address, program_size : In, bytes, stable while running
    read : ``Out(ReadChannelSignature(config))``
    command : ``Out(stream of 512 bits)``; ``address``: Out, its DRAM address
    jump : In(1), with the command that is taken: the next one is that at ``jump_target``
    jump_target : In(32), offset in the memory window, in the program; stable in the 3 cycles before
        ``jump``, in which ``command`` is offered
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
                "jump": In(1),
                "jump_target": In(32),
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
        # offset       of the next request's first beat      start, a far jump
        # fresh        target and more belong to offset      any other cycle          start,
        #                                                                             starting,
        #                                                                             requested,
        #                                                                             a far jump
        # unread       beats requested and not taken         requested, a near jump:  taken: down
        #                                                    up
        # passed       beats taken and still kept            taken: up, to its limit  jump
        # outstanding  bursts without their last beat        requested: up            received: down
        # stale        those of them to be dropped           a far jump               received: down
        # refused      the beat behind those that are there  a beat with an error     reset,
        #              could not be read                                              a far jump
        # no_address   DECERR was the reason                 the same                 reset
        m = Module()
        config = self.config
        beats = 8 * LINE_BYTES // config.axi_data_width
        m.submodules.ring = ring = CommandRing(width=config.axi_data_width, depth=KEPT * beats)
        m.submodules.reader = reader = CommandReader(config)

        running = Signal()
        offset = Signal(33)
        end = Signal(33)
        unread = Signal(range(KEPT * beats + 1))
        outstanding = Signal(range(AHEAD + 1))
        stale = Signal(range(AHEAD + 1))
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

        starting = self._start(m, running, offset, end)
        near = Signal()
        far = Signal()

        # A request begins at its beat and ends with the line.
        target = Signal(config.axi_address_width)
        more = Signal()
        low, line = _bits(config.beat_bytes), _bits(LINE_BYTES)
        m.d.sync += [target.eq(self.memory_base + offset), more.eq(offset[line:] < end[line:])]
        fresh = Signal()  # target and more belong to offset
        m.d.sync += fresh.eq(~starting & ~self.start & ~requested & ~far)
        m.d.comb += [
            request.payload.address.eq(target),
            request.payload.length.eq(~offset[low:line]),
            request.valid.eq(
                running & fresh & more & (unread <= (AHEAD - 1) * beats) & (outstanding != AHEAD)
                & ~refused
            ),
        ]  # fmt: skip
        with m.If(requested):
            m.d.sync += offset.eq(Cat(Const(0, line), (offset[line:] + 1)[: 33 - line]))
        with m.If(stale.any() & received):
            m.d.sync += stale.eq(stale - 1)
        with m.If(far):
            m.d.sync += [
                offset.eq(self._beat_of(self.jump_target)),
                stale.eq(outstanding + requested - received),
            ]

        # Data ----------------
        # A beat that could not be read is not kept, nor what is behind it. It may lie behind the
        # last command that is executed, so it is an error only when it is wanted.
        beat = self.read.data
        good, ours = Signal(), Signal()
        m.d.comb += [
            good.eq(beat.payload.resp == RESP_OKAY),
            ours.eq(beat.valid & running & ~stale.any() & ~refused),
            beat.ready.eq(1),
            ring.i.payload.eq(beat.payload.data),
            ring.i.valid.eq(ours & good),
        ]
        with m.If(ours & ~good):
            m.d.sync += [refused.eq(1), no_address.eq(beat.payload.resp == RESP_DECERR)]
        with m.If(far):
            m.d.sync += refused.eq(0)

        starved = self._offer(m, running, (unread, requested), (near, far))
        at_refused = running & refused & starved
        at_end = running & fresh & ~more & (unread == 0) & (outstanding == 0) & reader.wants
        # Whether a command is wanted comes late in a cycle: only ``valid`` waits for it.
        with m.If(running):
            lost = Mux(no_address, int(ErrorCode.READ_DECERR), int(ErrorCode.READ_SLVERR))
            m.d.sync += [
                self.error.code.eq(Mux(at_refused, lost, int(ErrorCode.PROGRAM_END))),
                self.error.address.eq(self.address),
            ]
        with m.If((at_refused | at_end) & self.command.ready):
            m.d.sync += [self.error.valid.eq(1), running.eq(0)]

        with m.If(self.stop):
            m.d.sync += running.eq(0)
        return m

    def _start(self, m, running, offset, end):
        """From ``start`` to ``running``: addresses are added up, and checked a cycle later. Returns
        the strobe that says that they are there."""
        width = self.config.axi_address_width
        start_address = Signal(width)
        behind = Signal(width + 2)
        starting = Signal()
        checking = Signal()

        def fail(code, address):
            return [
                self.error.valid.eq(1),
                self.error.code.eq(code),
                self.error.address.eq(address),
            ]

        with m.If(self.start):
            m.d.sync += [
                start_address.eq(self.memory_base + self.first),
                offset.eq(self._beat_of(self.first)),
                end.eq(self.program_address + self.program_size),
                starting.eq(1),
            ]
        with m.If(starting):
            m.d.sync += [
                starting.eq(0),
                checking.eq(1),
                behind.eq(self.memory_base + end),
            ]
        with m.If(checking):
            m.d.sync += checking.eq(0)
            with m.If(self.program_address[: _bits(LINE_BYTES)].any()):
                m.d.sync += fail(ErrorCode.UNALIGNED_ADDRESS, start_address)
            with m.Elif((end > self.memory_size) | (behind > 1 << width)):
                m.d.sync += fail(ErrorCode.MEMORY_WINDOW, behind)
            with m.Else():
                m.d.sync += running.eq(1)
        m.d.comb += [
            m.submodules.reader.locate.eq(starting),
            m.submodules.reader.target.eq(start_address),
        ]
        return starting

    def _beat_of(self, place):
        """Where the beat with the byte at ``place`` begins."""
        low = _bits(self.config.beat_bytes)
        return Cat(Const(0, low), place[low:])

    def _offer(self, m, running, requests, jumps):
        """From the ring to the sequencer, and back where a jump goes. Returns whether the reader
        wants a beat that is not there."""
        ring, reader = m.submodules.ring, m.submodules.reader
        beats = 8 * LINE_BYTES // self.config.axi_data_width
        unread, requested = requests
        near, far = jumps
        taken, read = Signal(), Signal()
        connect(m, ring.o, reader.i)
        m.d.comb += [
            reader.running.eq(running),
            reader.shift.eq(self.shift),
            self.command.payload.eq(reader.command.payload),
            self.command.valid.eq(reader.command.valid),
            reader.command.ready.eq(self.command.ready),
            taken.eq(self.command.valid & self.command.ready),
            read.eq(ring.o.valid & ring.o.ready),
            self.address.eq(reader.address),
        ]

        # Where a jump goes: how many beats in front of the next one, and whether these are kept.
        jump_address = Signal.like(self.address)
        low = _bits(self.config.beat_bytes)
        back = Signal(33 - low)  # forward it is larger than any program
        passed = Signal(range((KEPT - AHEAD) * beats + 1))
        kept = Signal()
        m.d.sync += [
            jump_address.eq(self.memory_base + self.jump_target),
            back.eq(reader.place[low:33] - jump_address[low:33]),
            kept.eq(back <= passed),
        ]
        distance = back[: len(passed)]
        m.d.comb += [
            near.eq(taken & self.jump & kept),
            far.eq(taken & self.jump & ~kept),
            ring.rewind.eq(near),
            ring.distance.eq(distance),
            ring.flush.eq(far),
        ]
        with m.If(taken & self.jump):
            m.d.comb += [reader.locate.eq(1), reader.target.eq(jump_address)]
        # Nothing is read while a command is offered.
        asked = Mux(requested, self.read.request.payload.length + 1, 0)
        m.d.sync += unread.eq(Mux(far, 0, unread + asked + Mux(near, distance, 0) - read))
        with m.If(read & (passed != (KEPT - AHEAD) * beats)):
            m.d.sync += passed.eq(passed + 1)
        with m.If(near | far):
            m.d.sync += passed.eq(Mux(kept, passed - distance, 0))
        return ring.empty & reader.wants
