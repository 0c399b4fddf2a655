"""Command queues and the semaphores that order them."""

import functools

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import ErrorSignature
from hw.isa.encoding import HEADER_LAYOUT, engine_layout
from hw.isa.error_codes import ErrorCode
from hw.primitives.ram import add_ram

__all__ = ["CHUNK_WIDTH", "CommandQueue", "Semaphores", "command_chunks"]

#: Commands an engine may have accepted and not finished.
IN_FLIGHT = 4
#: Bits of a command that enter its queue in one cycle, from the least significant up.
CHUNK_WIDTH = 64


@functools.cache
def command_chunks(opcode):
    """Chunks of a command of ``opcode``: header and the engine's fields. The rest is not queued."""
    return -(-(HEADER_LAYOUT.size + engine_layout(opcode).size) // CHUNK_WIDTH)


class Semaphores(wiring.Component):
    """Token counters shared by all queues.

    Takes have their turns, a port per cycle: what a port offers in its turn is granted in the next
    cycle when every counter in its mask is above zero then, and lowers them together. So a take
    waits up to ``max(queues, 2)`` cycles longer than its tokens. Of the gives the lowest port is
    accepted in each cycle; its tokens count in the next and can be taken after that. Counters hold
    0 to 15 and are 0 after reset; a token too many is reported on ``error`` (code
    ``SEMAPHORE_OVERFLOW``, the number of the lowest such counter).

    Members
    -------
    take : array of ``In(stream.Signature(count))`` -- accepted when granted
    give : array of ``In(stream.Signature(count))``
    error : ``Out(ErrorSignature())``
    fails : Out(1), as long as ``error`` is to come or is there, if no take is granted: a token
        comes to a counter at its maximum, or came in the cycle before
    """

    WIDTH = 4

    def __init__(self, *, count, queues):
        self.count = count
        self.queues = queues
        super().__init__(
            {
                "take": In(stream.Signature(count)).array(queues),
                "give": In(stream.Signature(count)).array(queues),
                "error": Out(ErrorSignature()),
                "fails": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        above = Signal(self.count)
        taken = Signal(self.count)
        given = Signal(self.count)
        takes, gives = ([ports[i] for i in range(self.queues)] for ports in (self.take, self.give))

        # With two turns at least, no port is looked at again before it knows the answer.
        turn = Signal(max(self.queues, 2), init=1)
        m.d.sync += turn.eq(turn.rotate_left(1))
        wanted = Signal(self.count, reset_less=True)
        asking = Signal(self.queues)
        able = Signal()
        m.d.sync += [
            wanted.eq(_chosen(turn, takes)),
            asking.eq(turn & Cat(port.valid for port in takes)),
        ]
        m.d.comb += [
            able.eq(wanted & ~above == 0),
            taken.eq(wanted & (able & asking.any()).replicate(self.count)),
            *(port.ready.eq(asking[index] & able) for index, port in enumerate(takes)),
        ]

        first, busy = [], Const(0)
        for port in gives:
            m.d.comb += port.ready.eq(~busy)
            first.append(port.valid & ~busy)
            busy = busy | port.valid
        m.d.sync += given.eq(_chosen(first, gives))

        overflow, full = Signal(self.count), Signal(self.count)
        for index in range(self.count):
            counter = Signal(self.WIDTH, name=f"counter{index}")
            m.d.comb += [
                above[index].eq(counter != 0),
                full[index].eq(given[index] & counter.all()),
                overflow[index].eq(full[index] & ~taken[index]),
            ]
            with m.If(given[index] & ~taken[index]):
                m.d.sync += counter.eq(counter + 1)
            with m.Elif(taken[index] & ~given[index]):
                m.d.sync += counter.eq(counter - 1)

        number = Signal(range(max(self.count, 2)))
        for index in reversed(range(self.count)):
            with m.If(overflow[index]):
                m.d.comb += number.eq(index)
        m.d.sync += [self.error.valid.eq(overflow.any()), self.error.address.eq(number)]
        m.d.comb += [
            self.error.code.eq(ErrorCode.SEMAPHORE_OVERFLOW),
            self.fails.eq(full.any() | self.error.valid),
        ]
        return m


def _chosen(select, ports):
    """Payload of the port whose bit of ``select`` is set, 0 if there is none."""
    chosen = Const(0)
    for bit, port in zip(select, ports, strict=False):
        chosen = chosen | (port.payload & bit.replicate(len(port.payload)))
    return chosen


class CommandQueue(wiring.Component):
    """Holds one engine's commands, starts each when its semaphores allow, signals when it is done.

    Commands come in and are kept in chunks, in a memory as narrow as that: few wires lead to the
    queues, and a command takes a flip-flop per bit only at the head. The earliest ``command`` is
    :attr:`latency` cycles after its last ``push``; commands start :attr:`interval` cycles apart
    or more. Empty after reset.

    Members
    -------
    push : ``In(stream of CHUNK_WIDTH bits)``, :func:`command_chunks` for every command; ready for
        all of them when it is for the first
    take, give : ``Out(stream of masks)``, to :class:`Semaphores`
    command : ``Out(stream of engine_layout)``, to the engine
    done : In(1), one pulse per command the engine has finished, in order
    empty : Out(1), nothing is queued or in flight
    starved : In(1), the engine can neither go on nor take a command before another engine does
    working : Out(1), the engine has a command and is not starved
    blocked : Out(1), nothing can move before another engine does: the head waits for semaphores or
        for an engine that is starved (or there is none), and what is in flight is starved
    """

    def __init__(self, config, opcode):
        self.depth = config.command_queue_depth
        self.chunks = command_chunks(opcode)
        masks = stream.Signature(config.semaphore_count)
        super().__init__(
            {
                "push": In(stream.Signature(CHUNK_WIDTH)),
                "take": Out(masks),
                "give": Out(masks),
                "command": Out(stream.Signature(engine_layout(opcode))),
                "done": In(1),
                "starved": In(1),
                "empty": Out(1),
                "working": Out(1),
                "blocked": Out(1),
            }
        )

    @property
    def latency(self):
        """One cycle per chunk, one of the memory, one to see the command, one for semaphores."""
        return self.chunks + 3

    @property
    def interval(self):
        """The same from the engine's acceptance of the command before."""
        return self.chunks + 3

    def elaborate(self, platform):
        m = Module()
        words = self.depth * self.chunks
        ram = add_ram(m, platform, name="commands", width=CHUNK_WIDTH, depth=max(words, 2))
        m.submodules.signals = signals = SyncFIFO(width=len(self.take.payload), depth=IN_FLIGHT)

        def advance(pointer):
            return Mux(pointer == words - 1, 0, pointer + 1)

        # In: room is reserved with the first chunk, and the command there is with the last.
        arriving = Signal(range(max(self.chunks, 2)))
        place = Signal(range(max(words, 2)))
        reserved = Signal(range(self.depth + 1))
        whole = Signal(range(self.depth + 1))
        first = Signal()
        last = Signal()
        left = Signal()
        pushed = self.push.valid & self.push.ready
        m.d.comb += [
            ram.write_en.eq(pushed),
            ram.write_address.eq(place),
            ram.write_data.eq(self.push.payload),
            first.eq(pushed & (arriving == 0)),
            last.eq(pushed & (arriving == self.chunks - 1)),
        ]
        with m.If(pushed):
            m.d.sync += [place.eq(advance(place)), arriving.eq(Mux(last, 0, arriving + 1))]
        # A register: from here it goes through the sequencer to the fetch.
        room = Signal(init=1)
        remaining = reserved + first - left
        m.d.comb += self.push.ready.eq(room)
        m.d.sync += [
            reserved.eq(remaining),
            room.eq(Mux(pushed, ~last, arriving != 0) | (remaining != self.depth)),
        ]

        # Out: the chunks shift into the head from the top.
        head = Signal(self.chunks * CHUNK_WIDTH, reset_less=True)
        header = data.View(HEADER_LAYOUT, head[: HEADER_LAYOUT.size])
        layout = self.command.payload.shape()
        waiting = Signal()
        granted = Signal()
        leaving = Signal(range(max(self.chunks, 2)))  # chunks still to be read
        origin = Signal(range(max(words, 2)))
        begin = Signal()
        shift = Signal()
        m.d.comb += [
            begin.eq(~waiting & (leaving == 0) & ~shift & (whole != 0)),
            ram.read_en.eq(begin | (leaving != 0)),
            ram.read_address.eq(origin),
            left.eq(shift & (leaving == 0)),
        ]
        m.d.sync += [whole.eq(whole + last - begin), shift.eq(ram.read_en)]
        with m.If(ram.read_en):
            m.d.sync += [
                leaving.eq(Mux(begin, self.chunks, leaving) - 1),
                origin.eq(advance(origin)),
            ]
        with m.If(shift):
            m.d.sync += head.eq(Cat(head, ram.read_data)[CHUNK_WIDTH:])

        # The head waits here for its semaphores, then for the engine.
        m.d.comb += [
            self.take.payload.eq(header.wait),
            self.take.valid.eq(waiting & ~granted),
            self.command.payload.eq(head[HEADER_LAYOUT.size :][: layout.size]),
            self.command.valid.eq(waiting & granted & signals.w_rdy),
            signals.w_data.eq(header.signal),
            signals.w_en.eq(self.command.valid & self.command.ready),
        ]
        with m.If(left):
            m.d.sync += [waiting.eq(1), granted.eq(0)]
        with m.If(self.take.valid & self.take.ready):
            m.d.sync += granted.eq(1)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += waiting.eq(0)

        # Commands finish in order, so their masks leave in order.
        finished = Signal(range(IN_FLIGHT + 1))
        gave = Signal()
        m.d.comb += [
            self.give.payload.eq(signals.r_data),
            self.give.valid.eq(finished != 0),
            gave.eq(self.give.valid & self.give.ready),
            signals.r_en.eq(gave),
        ]
        m.d.sync += finished.eq(finished + self.done - gave)

        m.d.comb += [
            self.empty.eq((reserved == 0) & ~waiting & ~signals.r_rdy),
            self.working.eq(signals.r_rdy & ~self.starved),
            self.blocked.eq(
                (~signals.r_rdy | self.starved)
                & Mux(waiting, Mux(granted, self.starved, ~self.take.ready), reserved == 0)
            ),
        ]
        return m
