"""Command queues and the semaphores that order them."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from .bus import ErrorSignature
from .commands import command_layout
from .errors import ErrorCode

__all__ = ["CommandQueue", "Semaphores", "queue_entry_layout"]

#: Commands an engine may have accepted and not finished.
IN_FLIGHT = 4


def queue_entry_layout(config, opcode):
    """A queued command: its fields, and the semaphores it waits for and signals."""
    return data.StructLayout(
        {
            "wait": config.semaphore_count,
            "signal": config.semaphore_count,
            "command": command_layout(opcode),
        }
    )


class Semaphores(wiring.Component):
    """Token counters shared by all queues.

    In each cycle one queue may take tokens and one may give tokens; lower port numbers go first.
    A ``take`` is granted when every counter in its mask is above zero, and lowers them together.
    Counters hold 0 to 15 and are 0 after reset; a token too many is reported on ``error`` (code
    ``SEMAPHORE_OVERFLOW``, the number of the lowest such counter).

    Members
    -------
    take : array of ``In(stream.Signature(count))`` -- accepted when granted
    give : array of ``In(stream.Signature(count))``
    error : ``Out(ErrorSignature())``
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
            }
        )

    def elaborate(self, platform):
        m = Module()
        above = Signal(self.count)
        taken, given = Signal(self.count), Signal(self.count)

        busy = Const(0)
        for port in (self.take[i] for i in range(self.queues)):
            able = port.valid & (port.payload & ~above == 0)
            m.d.comb += port.ready.eq((port.payload & ~above == 0) & ~busy)
            with m.If(able & ~busy):
                m.d.comb += taken.eq(port.payload)
            busy = busy | able
        busy = Const(0)
        for port in (self.give[i] for i in range(self.queues)):
            m.d.comb += port.ready.eq(~busy)
            with m.If(port.valid & ~busy):
                m.d.comb += given.eq(port.payload)
            busy = busy | port.valid

        overflow = Signal(self.count)
        for index in range(self.count):
            counter = Signal(self.WIDTH, name=f"counter{index}")
            m.d.comb += [
                above[index].eq(counter != 0),
                overflow[index].eq(given[index] & ~taken[index] & counter.all()),
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
        m.d.comb += self.error.code.eq(ErrorCode.SEMAPHORE_OVERFLOW)
        return m


class CommandQueue(wiring.Component):
    """Holds one engine's commands, starts each when its semaphores allow, signals when it is done.

    The earliest ``command`` is :attr:`LATENCY` cycles after its ``push``; commands start
    :attr:`INTERVAL` cycles apart or more. Empty after reset.

    Members
    -------
    push : ``In(stream of queue_entry_layout)``
    take, give : ``Out(stream of masks)``, to :class:`Semaphores`
    command : ``Out(stream of command_layout)``, to the engine
    done : In(1), one pulse per command the engine has finished, in order
    empty : Out(1), nothing is queued or in flight
    blocked : Out(1), nothing can move before somebody else signals: the head waits for
        semaphores (or there is none) and nothing is in flight
    """

    LATENCY = 3
    INTERVAL = 3

    def __init__(self, config, opcode):
        self.depth = config.command_queue_depth
        self.entry = queue_entry_layout(config, opcode)
        masks = stream.Signature(config.semaphore_count)
        super().__init__(
            {
                "push": In(stream.Signature(self.entry)),
                "take": Out(masks),
                "give": Out(masks),
                "command": Out(stream.Signature(command_layout(opcode))),
                "done": In(1),
                "empty": Out(1),
                "blocked": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = SyncFIFO(width=self.entry.size, depth=self.depth)
        m.submodules.signals = signals = SyncFIFO(width=len(self.take.payload), depth=IN_FLIGHT)
        entry = data.View(self.entry, fifo.r_data)
        m.d.comb += [
            fifo.w_data.eq(self.push.payload),
            fifo.w_en.eq(self.push.valid),
            self.push.ready.eq(fifo.w_rdy),
        ]

        # The head waits here for its semaphores, then for the engine.
        head = Signal(self.entry)
        waiting, granted = Signal(), Signal()
        m.d.comb += [
            self.take.payload.eq(head.wait),
            self.take.valid.eq(waiting & ~granted),
            self.command.payload.eq(head.command),
            self.command.valid.eq(waiting & granted & signals.w_rdy),
            signals.w_data.eq(head.signal),
            signals.w_en.eq(self.command.valid & self.command.ready),
            fifo.r_en.eq(~waiting),
        ]
        with m.If(~waiting & fifo.r_rdy):
            m.d.sync += [head.eq(entry), waiting.eq(1), granted.eq(0)]
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
            self.empty.eq(~fifo.r_rdy & ~waiting & ~signals.r_rdy),
            self.blocked.eq(
                ~signals.r_rdy & Mux(waiting, ~granted & ~self.take.ready, ~fifo.r_rdy)
            ),
        ]
        return m
