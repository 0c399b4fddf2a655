"""Command fetch: reads the program from DRAM ahead of its execution."""

from functools import partial

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import RESP_DECERR, RESP_OKAY, ErrorSignature, ReadChannelSignature
from hw.isa.encoding import COMMAND_BYTES, COMMAND_WIDTH, MEMORY_SIZE_WIDTH
from hw.isa.error_codes import ErrorCode

from .command_queue import CHUNK_WIDTH
from .command_ring import CommandRing

__all__ = ["CommandFetch"]

#: Commands requested ahead of the one that is being dispatched.
AHEAD = 4
#: Commands that are kept, those included: so far back a jump needs no memory.
KEPT = 32


class CommandFetch(wiring.Component):
    """Streams the commands of a program, one burst per command, :data:`AHEAD` in flight.

    The program lies at ``program_address`` in the memory window, aligned to
    :data:`~hw.isa.encoding.COMMAND_BYTES`, and inside the address space. Every requested
    beat has a place reserved, so the read channel is never held up. The first burst is requested
    3 cycles after ``start``. Throughput: one command per ``512 / axi_data_width + 1`` cycles. Idle
    after reset.

    A ``jump`` to one of the last KEPT - AHEAD commands that were taken reads them again from where
    they are kept; the first of them is offered ``512 / axi_data_width + 2`` cycles after the jump,
    one cycle more than the command behind the jump would have been. Any other jump drops what was
    fetched: the first burst is requested 2 cycles after it, when fewer than AHEAD are outstanding.

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
        # offset       of the next request, counts up        start, a far jump
        # fresh        target and more belong to offset      any other cycle          start,
        #                                                                             starting,
        #                                                                             requested,
        #                                                                             a far jump
        # unread       commands requested and not taken      requested, a near jump:  taken: down
        #                                                    up
        # passed       commands taken and still kept         taken: up, to its limit  jump
        # outstanding  bursts without their last beat        requested: up            received: down
        # stale        those of them to be dropped           a far jump               received: down
        # refused      the next command that is not whole    a beat with an error     reset,
        #              could not be read                                              a far jump
        # no_address   DECERR was the reason                 the same                 reset
        # count        beats of the command in words         a beat shifts in: up     taken
        m = Module()
        config = self.config
        beats = COMMAND_WIDTH // config.axi_data_width
        m.submodules.ring = ring = CommandRing(width=config.axi_data_width, depth=KEPT * beats)

        running = Signal()
        offset = Signal(33)
        end = Signal(33)
        unread = Signal(range(KEPT + 1))
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

        fail = partial(self._fail, running)
        starting = self._start(m, running, offset, end)
        near = Signal()
        far = Signal()

        target = Signal(config.axi_address_width)
        more = Signal()
        m.d.sync += [target.eq(self.memory_base + offset), more.eq(offset + COMMAND_BYTES <= end)]
        fresh = Signal()  # target and more belong to offset
        m.d.sync += fresh.eq(~starting & ~self.start & ~requested & ~far)
        m.d.comb += [
            request.payload.address.eq(target),
            request.payload.length.eq(beats - 1),
            request.valid.eq(
                running & fresh & more & (unread < AHEAD) & (outstanding != AHEAD) & ~refused
            ),
        ]
        with m.If(requested):
            m.d.sync += offset.eq(offset + COMMAND_BYTES)
        with m.If(stale.any() & received):
            m.d.sync += stale.eq(stale - 1)
        with m.If(far):
            m.d.sync += [offset.eq(self.jump_target), stale.eq(outstanding + requested - received)]

        # Data ----------------
        # A command that could not be read is never whole, and nothing behind it is kept. It may lie
        # behind the last one that is executed, so it is an error only when it is wanted.
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

        empty = self._offer(m, running, (unread, requested), (near, far))
        at_refused = running & refused & empty
        at_end = running & fresh & ~more & (unread == 0) & (outstanding == 0)
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

    def _offer(self, m, running, requests, jumps):
        """Commands: beats shift in from the top until one is whole. Returns whether there is
        neither a whole command nor a beat to go on with."""
        config, ring = self.config, m.submodules.ring
        beats = COMMAND_WIDTH // config.axi_data_width
        unread, requested = requests
        near, far = jumps
        words = Signal(COMMAND_WIDTH)
        count = Signal(range(beats + 1))
        taken = Signal()
        m.d.comb += [
            self.command.payload.eq(words),
            self.command.valid.eq((count == beats) & running),
            taken.eq(self.command.valid & self.command.ready),
            ring.o.ready.eq(count != beats),
        ]
        with m.If(ring.o.valid & ring.o.ready):
            m.d.sync += [
                words.eq(Cat(words, ring.o.payload)[config.axi_data_width :]),
                count.eq(count + 1),
            ]
        with m.If(self.shift):
            m.d.sync += words.eq(words.shift_right(CHUNK_WIDTH))

        # Where a jump goes: how many commands in front of this one, and whether these are kept.
        jump_address = Signal.like(self.address)
        low = COMMAND_BYTES.bit_length() - 1
        back = Signal(33 - low)  # forward it is larger than any program
        passed = Signal(range(KEPT - AHEAD + 1))
        kept = Signal()
        m.d.sync += [
            jump_address.eq(self.memory_base + self.jump_target),
            back.eq((self.address - jump_address)[low:33]),
            kept.eq(back <= passed),
        ]
        distance = back[: len(passed)]
        m.d.comb += [
            near.eq(taken & self.jump & kept),
            far.eq(taken & self.jump & ~kept),
            ring.rewind.eq(near),
            ring.distance.eq((distance + 1) * beats),
            ring.flush.eq(far),
        ]
        m.d.sync += unread.eq(unread + requested - taken)
        with m.If(taken):
            m.d.sync += [count.eq(0), self.address.eq(self.address + COMMAND_BYTES)]
            with m.If(passed != KEPT - AHEAD):
                m.d.sync += passed.eq(passed + 1)
            with m.If(self.jump):
                m.d.sync += [
                    self.address.eq(jump_address),
                    passed.eq(Mux(kept, passed - distance, 0)),
                    unread.eq(Mux(kept, unread + requested + distance, 0)),
                ]
        return ring.empty & (count != beats)
