"""Run control: starts a program, checks and dispatches its commands, ends it cleanly."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bus import ErrorSignature
from .commands import (
    COMMAND_WIDTH,
    COMMANDS,
    HEADER_LAYOUT,
    SEMAPHORE_MASK_WIDTH,
    Opcode,
    command_layout,
)
from .errors import ErrorCode
from .queue import queue_entry_layout

__all__ = ["DEADLOCK_CYCLES", "QUEUE_OPCODES", "Sequencer"]

#: Opcodes that have a queue in every core, in the order of the sequencer's ports.
QUEUE_OPCODES = (Opcode.LOAD, Opcode.MATMUL, Opcode.POST, Opcode.STORE)
#: Cycles without any possible progress after which a run is stopped.
DEADLOCK_CYCLES = 64


class Sequencer(wiring.Component):
    """Walks one run through clear, dispatch and end.

    A run begins with one cycle of ``clear``, which resets everything but the registers, so that
    nothing is left of the run before. ``HALT`` ends it when all queues are empty. The first error
    ends it too: ``stop`` keeps the bus masters from new requests, and when nothing is outstanding
    ``clear`` drops all remaining work.

    Every command is checked (opcode, core, semaphores, fields below their least value or without
    a name) before it enters a queue. Throughput: one command in 2 cycles.

    Parameters
    ----------
    config : AdaGPConfig
    units : list of int
        unit number that is reported with the error of each port of ``errors``
    own_unit : int
        unit number of the sequencer's own errors

    Members
    -------
    start : In(1); ignored while ``busy``
    busy : Out(1), from the start to the end
    ended : Out(1), pulse at the end; the error outputs are then valid
    error_code, error_unit, error_address : Out; code 0 without an error
    clear, stop : Out(1); ``begin``: Out(1), pulse after ``clear``: start fetching
    command : ``In(stream of 512 bits)``; ``address``: In(64), its DRAM address
    push : array of Out streams, core after core in the order of :data:`QUEUE_OPCODES`
    empty, blocked : In, one bit per queue
    errors : array of ``In(ErrorSignature())``
    bus_busy : In(1), a bus master has something outstanding
    dispatched : Out(1), event
    """

    def __init__(self, config, *, units, own_unit):
        self.config = config
        self.units = list(units)
        self.own_unit = own_unit
        self.queues = [(core.index, opcode) for core in config.cores for opcode in QUEUE_OPCODES]
        super().__init__(
            {
                "start": In(1),
                "busy": Out(1),
                "ended": Out(1),
                "error_code": Out(8),
                "error_unit": Out(8),
                "error_address": Out(64),
                "clear": Out(1),
                "stop": Out(1),
                "begin": Out(1),
                "command": In(stream.Signature(COMMAND_WIDTH)),
                "address": In(config.axi_address_width),
                "empty": In(len(self.queues)),
                "blocked": In(len(self.queues)),
                "errors": In(ErrorSignature()).array(len(self.units)),
                "bus_busy": In(1),
                "dispatched": Out(1),
                **{
                    f"push{number}": Out(stream.Signature(queue_entry_layout(config, opcode)))
                    for number, (_, opcode) in enumerate(self.queues)
                },
            }
        )

    def elaborate(self, platform):
        m = Module()
        own = Signal(ErrorSignature().members["code"].shape)  # code of an error found here
        found = Signal()
        running = Signal()

        # Check and dispatch ----------------
        header = data.View(HEADER_LAYOUT, self.command.payload[: HEADER_LAYOUT.size])
        body = self.command.payload[HEADER_LAYOUT.size :]
        undefined, illegal = self._checks(header, body)
        checked, bad_opcode, bad_field = Signal(), Signal(), Signal()
        halting = Signal()
        target = Signal(len(self.queues))
        ready = Signal()
        m.d.comb += ready.eq(
            (target & Cat(self._push(n).ready for n in range(len(self.queues)))).any()
        )
        waiting_for_queue = Signal()
        with m.If(running & self.command.valid & ~checked):
            m.d.sync += [
                checked.eq(1),
                bad_opcode.eq(undefined),
                bad_field.eq(illegal),
                halting.eq(header.opcode == Opcode.HALT),
                target.eq(
                    Cat(
                        (header.opcode == opcode) & (header.core == core)
                        for core, opcode in self.queues
                    )
                ),
            ]
        for number, (_, opcode) in enumerate(self.queues):
            push = self._push(number)
            layout = command_layout(opcode)
            m.d.comb += [
                push.payload.wait.eq(header.wait),
                push.payload.signal.eq(header.signal),
                push.payload.command.eq(body[: layout.size]),
                push.valid.eq(running & checked & ~bad_opcode & ~bad_field & target[number]),
            ]
        finish = Signal()
        with m.If(running & checked):
            with m.If(bad_opcode):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.UNDEFINED_COMMAND)]
            with m.Elif(bad_field):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.ILLEGAL_FIELD)]
            with m.Elif(halting):
                m.d.comb += [finish.eq(self.empty.all()), self.dispatched.eq(finish)]
            with m.Elif(ready):
                m.d.comb += [self.command.ready.eq(1), self.dispatched.eq(1)]
                m.d.sync += checked.eq(0)
            with m.Else():
                m.d.comb += waiting_for_queue.eq(1)
        # The fetch takes this as "a command is wanted", even when there is none.
        with m.If(running & ~self.command.valid):
            m.d.comb += self.command.ready.eq(1)

        # No progress ----------------
        idle = Signal(range(DEADLOCK_CYCLES + 1))
        stuck = (
            running
            & checked
            & (halting & ~finish | waiting_for_queue)
            & self.blocked.all()
            & ~self.bus_busy
        )
        m.d.sync += idle.eq(0)
        with m.If(stuck):
            m.d.sync += idle.eq(idle + 1)
            with m.If(idle == DEADLOCK_CYCLES):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.DEADLOCK)]

        # States ----------------
        error = Signal()
        quiet = Signal(2)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [
                        self.error_code.eq(ErrorCode.NONE),
                        self.error_unit.eq(0),
                        self.error_address.eq(0),
                        error.eq(0),
                        checked.eq(0),
                    ]
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += [self.busy.eq(1), self.clear.eq(1)]
                with m.If(error):
                    m.next = "END"
                with m.Else():
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += [self.busy.eq(1), self.begin.eq(1)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [self.busy.eq(1), running.eq(1)]
                with m.If(finish):
                    m.next = "END"
                with m.If(found):
                    m.d.sync += [
                        self.error_code.eq(own),
                        self.error_unit.eq(self.own_unit),
                        self.error_address.eq(self.address),
                    ]
                for unit, port in reversed(list(zip(self.units, self._errors(), strict=True))):
                    with m.If(port.valid):
                        m.d.sync += [
                            self.error_code.eq(port.code),
                            self.error_unit.eq(unit),
                            self.error_address.eq(port.address),
                        ]
                with m.If(found | Cat(port.valid for port in self._errors()).any()):
                    m.d.sync += [error.eq(1), quiet.eq(0)]
                    m.next = "STOP"
            with m.State("STOP"):
                # A request may be under way to the bus for a cycle: look twice.
                m.d.comb += [self.busy.eq(1), self.stop.eq(1)]
                with m.If(self.bus_busy):
                    m.d.sync += quiet.eq(0)
                with m.Elif(quiet.all()):
                    m.next = "CLEAR"
                with m.Else():
                    m.d.sync += quiet.eq(quiet + 1)
            with m.State("END"):
                m.d.comb += [self.busy.eq(1), self.ended.eq(1)]
                m.next = "IDLE"
        return m

    def _push(self, number):
        return getattr(self, f"push{number}")

    def _errors(self):
        return [self.errors[number] for number in range(len(self.units))]

    def _checks(self, header, body):
        """Whether the opcode is undefined here, and whether any field is out of range."""
        known, illegal = Const(0), Const(0)
        for opcode, fields in COMMANDS.items():
            is_opcode = header.opcode == opcode
            known = known | is_opcode
            if not fields:
                continue
            view = data.View(command_layout(opcode), body[: command_layout(opcode).size])
            for field in fields:
                if field.minimum is not None:
                    assert field.minimum == 1
                    illegal = illegal | (is_opcode & ~view[field.name].any())
                if field.enum is not None and len(field.enum) < 1 << field.width:
                    named = Cat(view[field.name] == value for value in field.enum).any()
                    illegal = illegal | (is_opcode & ~named)
        illegal = illegal | (header.core >= len(self.config.cores))
        count = self.config.semaphore_count
        if count < SEMAPHORE_MASK_WIDTH:
            illegal = illegal | header.wait[count:].any() | header.signal[count:].any()
        return ~known, illegal
