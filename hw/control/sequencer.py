"""Run control: starts a program, checks and dispatches its commands, ends it cleanly."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import ErrorReportSignature
from hw.isa.encoding import COMMAND_WIDTH, HEADER_LAYOUT, Opcode, queue_opcodes
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .command_checks import command_checks
from .command_queue import CHUNK_WIDTH, command_chunks
from .loop_control import MOVED, moved_chunk
from .watchdog import Watchdog

__all__ = ["DEADLOCK_CYCLES", "Sequencer"]

#: Cycles without any possible progress after which a run is stopped; more than the turns of all
#: queues at the semaphores.
DEADLOCK_CYCLES = 64


class Sequencer(wiring.Component):
    """Walks one run through clear, dispatch and end.

    A run begins with one cycle of ``clear``, which resets everything but the registers, so that
    nothing is left of the run before. ``HALT`` ends it when all queues are empty, the first error
    and ``abort`` end it at once; of several in a cycle the error decides, then ``HALT``. In any
    case ``stop`` keeps the bus masters from new requests (the fetch may have gone on behind
    ``HALT``), and when nothing is outstanding ``clear`` drops all that remains. So no answer to one
    run can reach the next.

    A run in which nothing moves for ``watchdog`` cycles ends with WATCHDOG
    (:class:`~hw.control.watchdog.Watchdog`). If then, or behind any other end, the bus does not
    answer for so long, or ``abort`` comes again, ``finish`` comes without waiting for it. The stop
    goes on all the same until nothing is outstanding; a run that is started meanwhile begins behind
    it, or ends in the same two ways.

    Every command is checked (opcode, core, semaphores, fields below their least value or without
    a name) before it enters a queue, chunk by chunk
    (:class:`~hw.control.command_queue.CommandQueue`). A command takes a cycle for the checks and
    one for every chunk. An opcode that the core does not execute is undefined. The core and the
    semaphores of BATCH, REPEAT and ROWS must be 0. BATCH is left to
    :class:`~hw.control.batch_control.BatchControl`, which ends it with ``resume`` or the run with
    ``complete``; where a counter of a loop is not 0 it ends the run with OPEN_LOOP. REPEAT and ROWS
    are left to :class:`~hw.control.loop_control.LoopControl`, which ends them with ``repeated``,
    and for which a LOAD or STORE may have to wait (``hold``).

    Parameters
    ----------
    config : AdaGPConfig
    sources : int, ports that report errors

    Members
    -------
    start : In(1); ignored during a run; ``abort``: In(1), pulse: end it; ignored outside one
    watchdog : In(32), cycles, stable during a run; 0: for ever
    finish : Out(1), pulse at the end; ``stopped``: Out(1), with it: because of ``abort``
    draining : Out(1), level: the bus owes something to a run that has ended
    error : ``Out(ErrorReportSignature())``, one cycle for the first error of a run
    clear, stop : Out(1); ``begin``: Out(1), pulse after ``clear``: start fetching
    command : ``In(stream of 512 bits)``; ``address``: In(64), its DRAM address
    shift : Out(1), move the command offered down by a chunk; it is accepted with its last chunk
    batch : Out(1), level: a BATCH is the next command; ``drained``: Out(1), all queues are empty
    resume : In(1), pulse: the BATCH is over, the next command comes from elsewhere
    complete : In(1), level while ``batch``: end the run as HALT does
    bad_target, bad_first : In(1), level while ``batch``: end it with BATCH_TARGET, BATCH_FIRST
    arrives : Out(1), pulse: a new command is offered and being checked
    repeat : Out(1), level: a REPEAT or ROWS is the next command
    repeated : In(1), pulse: it is over; the fetch knows where it goes on
    bad_loop : In(1), level while ``repeat``: end the run with REPEAT_TARGET
    in_loop : In(1), a counter is not 0; ``row_waits``: In(1), a ROWS, if any, waits for all queues
    hold : In(1), nothing of the command offered enters a queue yet
    moved : In(1), level: its ``dram_address`` is to be replaced by ``moved_address``
    push : array of Out streams, core after core in the order of
        :func:`~hw.isa.encoding.queue_opcodes`
    empty, blocked : In, one bit per queue
    errors : array of ``In(ErrorReportSignature())``; a lower number goes first
    working : In, one bit per queue: its engine has a command and does not wait for another engine
    bus_busy : In, a bit per bus master that has something outstanding, in the order of ``masters``
    progress : In(1), a command has ended, a beat has moved, or the run waits for the host
    dispatched : Out(1), event
    """

    def __init__(self, config, *, sources):
        self.config = config
        self.sources = sources
        self.queues = [
            (core.index, opcode) for core in config.cores for opcode in queue_opcodes(core)
        ]
        self.masters = [Unit.FETCH] + [
            Unit[f"CORE{core.index}_{opcode.name}"]
            for core in config.cores
            for opcode in (Opcode.LOAD, Opcode.STORE)
        ]
        super().__init__(
            {
                "start": In(1),
                "abort": In(1),
                "watchdog": In(32),
                "finish": Out(1),
                "stopped": Out(1),
                "draining": Out(1),
                "error": Out(ErrorReportSignature()),
                "clear": Out(1),
                "stop": Out(1),
                "begin": Out(1),
                "command": In(stream.Signature(COMMAND_WIDTH)),
                "shift": Out(1),
                "address": In(config.axi_address_width),
                "batch": Out(1),
                "drained": Out(1),
                "resume": In(1),
                "complete": In(1),
                "bad_target": In(1),
                "bad_first": In(1),
                "arrives": Out(1),
                "repeat": Out(1),
                "repeated": In(1),
                "bad_loop": In(1),
                "in_loop": In(1),
                "hold": In(1),
                "moved": In(1),
                "moved_address": In(32),
                **({"row_waits": In(1)} if config.row_list_depth else {}),
                "empty": In(len(self.queues)),
                "blocked": In(len(self.queues)),
                "errors": In(ErrorReportSignature()).array(self.sources),
                "working": In(len(self.queues)),
                "bus_busy": In(len(self.masters)),
                "progress": In(1),
                "dispatched": Out(1),
                **{
                    f"push{number}": Out(stream.Signature(CHUNK_WIDTH))
                    for number in range(len(self.queues))
                },
            }
        )

    def elaborate(self, platform):
        # What says where the sequencer is:
        #
        # state              meaning                          set by               cleared by
        # -----------------  -------------------------------  -------------------  -----------------
        # running            between begin and finish         RUN                  STOP
        # checked            the command offered is checked   the cycle after it   its last chunk,
        #                                                     came                 start, resume
        # bad_opcode,        it is refused; with checked      checked's cycle
        #   bad_field
        # halting, batching, it is HALT; BATCH; REPEAT        checked's cycle
        #   repeating
        # target             queue that it goes to, one bit   checked's cycle
        # chunk              of the command, counts up        every chunk taken    the last one,
        #                                                                          start
        # waiting_for_queue  its queue is full                dispatch             a queue is ready
        # stuck, idle        nothing moves; for how long      blocked, bus idle    anything moves
        # found              an error was found here          bad_*, idle          the next cycle
        # ending             what follows CLEAR is END        finish, an error     start
        # failed             its error is known, or none      the error, abort     start
        #                    counts
        # aborted            that is because of abort         abort                start
        # asked              abort has come                   abort                RUN, STOP, start
        # reported           finish came in STOP              asked, expired       start
        # quiet              cycles of STOP without the bus   counts up            bus_busy, finish
        # halted             HALT or the last BATCH is over   drained, complete    the next cycle
        m = Module()
        own = Signal.like(self.error.code)  # code of an error found here
        found = Signal()
        running = Signal()

        checked, chunk, halted, waits = self._dispatch(m, running, found, own)
        self._find_deadlock(m, running, (checked, waits), found, own)
        self._add_states(m, running, found, own, (checked, chunk, halted))
        return m

    def _dispatch(self, m, running, found, own):
        """Checks the command offered and pushes it into its queue chunk by chunk, or ends the run.
        Returns ``checked``, ``chunk``, ``halted``, and whether it waits for all queues and whether
        for its own."""
        header = data.View(HEADER_LAYOUT, self.command.payload[: HEADER_LAYOUT.size])
        body = self.command.payload[HEADER_LAYOUT.size :]
        undefined, illegal = command_checks(self.config, self.queues, header, body)
        lists, repeats = self.config.row_list_depth, header.opcode == Opcode.REPEAT
        repeats = repeats | (header.opcode == Opcode.ROWS) if lists else repeats
        checked, bad_opcode, bad_field = Signal(), Signal(), Signal()
        halting, batching, repeating = Signal(), Signal(), Signal()
        target = Signal(len(self.queues))
        ready = Signal()
        m.d.comb += ready.eq(
            (target & Cat(self._push(n).ready for n in range(len(self.queues)))).any()
        )
        waiting_for_queue = Signal()
        m.d.comb += self.arrives.eq(running & self.command.valid & ~checked)
        with m.If(self.arrives):
            m.d.sync += [
                checked.eq(1),
                bad_opcode.eq(undefined),
                bad_field.eq(illegal),
                halting.eq(header.opcode == Opcode.HALT),
                batching.eq(header.opcode == Opcode.BATCH),
                repeating.eq(repeats),
                target.eq(
                    Cat(
                        (header.opcode == opcode) & (header.core == core)
                        for core, opcode in self.queues
                    )
                ),
            ]
        chunk, last_chunk = Signal(range(COMMAND_WIDTH // CHUNK_WIDTH)), Signal()
        plain = self.command.payload[:CHUNK_WIDTH]
        moved = Mux(self.moved, moved_chunk(plain, chunk, self.moved_address), plain)
        for number, (_, opcode) in enumerate(self.queues):
            push = self._push(number)
            m.d.comb += [
                push.payload.eq(moved if opcode in MOVED else plain),
                push.valid.eq(
                    running & checked & ~bad_opcode & ~bad_field & target[number] & ~self.hold
                ),
            ]
            with m.If(target[number] & (chunk == command_chunks(opcode) - 1)):
                m.d.comb += last_chunk.eq(1)
        halted = Signal()
        m.d.comb += self.drained.eq(self.empty.all())
        with m.If(running & checked):
            with m.If(bad_opcode):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.UNDEFINED_COMMAND)]
            with m.Elif(bad_field):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.ILLEGAL_FIELD)]
            with m.Elif(halting):
                m.d.comb += [halted.eq(self.drained), self.dispatched.eq(halted)]
            with m.Elif(batching):
                m.d.comb += [
                    self.batch.eq(1),
                    found.eq(self.bad_target | self.bad_first | self.in_loop),
                    own.eq(Mux(self.bad_first, ErrorCode.BATCH_FIRST, ErrorCode.BATCH_TARGET)),
                    halted.eq(self.complete),
                    self.dispatched.eq(self.complete | self.resume),
                ]
                with m.If(self.in_loop):
                    m.d.comb += own.eq(ErrorCode.OPEN_LOOP)
                with m.If(self.resume):
                    m.d.sync += checked.eq(0)
            with m.Elif(repeating):
                m.d.comb += [self.repeat.eq(1), found.eq(self.bad_loop)]
                m.d.comb += [own.eq(ErrorCode.REPEAT_TARGET), self.dispatched.eq(self.repeated)]
                m.d.comb += self.command.ready.eq(self.repeated)
                with m.If(self.repeated):
                    m.d.sync += checked.eq(0)
            with m.Elif(self.hold):
                pass
            with m.Elif(ready):
                m.d.comb += [
                    self.shift.eq(1),
                    self.command.ready.eq(last_chunk),
                    self.dispatched.eq(last_chunk),
                ]
                m.d.sync += chunk.eq(chunk + 1)
                with m.If(last_chunk):
                    m.d.sync += [checked.eq(0), chunk.eq(0)]
            with m.Else():
                m.d.comb += waiting_for_queue.eq(1)
        # The fetch takes this as "a command is wanted", even when there is none.
        with m.If(running & ~self.command.valid):
            m.d.comb += self.command.ready.eq(1)
        for_all = halting | batching | self.row_waits if lists else halting | batching
        return checked, chunk, halted, (for_all, waiting_for_queue)

    def _find_deadlock(self, m, running, waits, found, own):
        """Finds that no queue can go on. Registered: what blocks a queue comes from all over the
        machine."""
        checked, (for_all, for_queue) = waits
        idle = Signal(range(DEADLOCK_CYCLES + 1))
        stuck = Signal()
        m.d.sync += [
            stuck.eq(
                running
                & checked
                & (for_all & ~self.drained | for_queue)
                & self.blocked.all()
                & ~self.bus_busy.any()
            ),
            idle.eq(0),
        ]
        with m.If(stuck & running):
            m.d.sync += idle.eq(idle + 1)
            with m.If(idle == DEADLOCK_CYCLES):
                m.d.comb += [found.eq(1), own.eq(ErrorCode.DEADLOCK)]

    def _add_states(self, m, running, found, own, dispatch):
        """From start to finish, and the first error of a run. ``clear`` and ``stop``, which go to
        everything, are registers of their own."""
        checked, chunk, halted = dispatch
        failed, ending, aborted, reported = Signal(), Signal(), Signal(), Signal()
        asked, begins, gives_up = Signal(), Signal(), Signal()
        quiet = Signal(2)
        settled, stopping = Signal(), Signal()  # in STOP, and not in its first cycle
        watchdog = self._add_watchdog(m, begins | (stopping & ~settled), stopping)
        with m.If(self.abort):
            m.d.sync += asked.eq(1)
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.comb += begins.eq(self.start)
                with m.If(self.start):
                    m.d.sync += self.clear.eq(1)
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += begins.eq(self.start & reported)
                m.d.sync += self.clear.eq(0)
                with m.If(~ending | begins):
                    m.next = "BEGIN"
                with m.Elif(reported):
                    m.next = "IDLE"
                with m.Else():
                    m.next = "END"
            with m.State("BEGIN"):
                m.d.comb += self.begin.eq(1)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If(halted | self.error.valid | asked):
                    m.d.sync += [ending.eq(1), quiet.eq(0), self.stop.eq(1), asked.eq(0)]
                    with m.If(~halted & ~self.error.valid):
                        m.d.sync += [aborted.eq(1), failed.eq(1)]
                    m.next = "STOP"
            with m.State("STOP"):
                m.d.comb += [
                    stopping.eq(1),
                    begins.eq(self.start & reported),
                    gives_up.eq(~reported & settled & (asked | watchdog.expired)),
                ]
                with m.If(gives_up):
                    # With ``ending`` low, the run that is given up has not begun.
                    m.d.sync += [reported.eq(1), ending.eq(1), asked.eq(0)]
                # A request may be under way to the bus: look for a few cycles.
                with m.If(self.bus_busy.any()):
                    m.d.sync += quiet.eq(0)
                with m.Elif(quiet.all()):
                    m.d.sync += [self.stop.eq(0), self.clear.eq(1)]
                    m.next = "CLEAR"
                with m.Else():
                    m.d.sync += quiet.eq(quiet + 1)
            with m.State("END"):
                m.next = "IDLE"
        with m.If(begins):
            verdict = (failed, ending, aborted, reported)
            m.d.sync += [signal.eq(0) for signal in (*verdict, asked, checked, chunk)]
        m.d.sync += settled.eq(stopping)
        m.d.comb += [
            self.finish.eq(states.ongoing("END") | gives_up),
            self.stopped.eq(aborted | (gives_up & asked & ~ending)),
            self.draining.eq(stopping & (reported | ~ending)),
        ]

        # The first error of a run, also of what was still under way at HALT.
        listening, starved = Signal(), Signal()
        m.d.comb += [
            listening.eq(running | (stopping & ending & ~failed & ~reported)),
            starved.eq(Mux(running, watchdog.expired, gives_up & ~asked & ~failed)),
            self.error.valid.eq(found | starved),
            self.error.address.eq(self.address),
        ]
        with m.If(found):
            m.d.comb += [self.error.code.eq(own), self.error.unit.eq(Unit.SEQUENCER)]
        with m.Else():
            m.d.comb += [self.error.code.eq(ErrorCode.WATCHDOG), self.error.unit.eq(watchdog.unit)]
        for number in reversed(range(self.sources)):
            port = self.errors[number]
            with m.If(port.valid & listening):
                m.d.comb += [
                    self.error.valid.eq(1),
                    self.error.code.eq(port.code),
                    self.error.unit.eq(port.unit),
                    self.error.address.eq(port.address),
                ]
        with m.If(self.error.valid):
            m.d.sync += failed.eq(1)

    def _add_watchdog(self, m, restart, stopping):
        """Blames the engine that has worked for too long, or else who waits for the bus, or a
        MATMUL: now and then it waits for WEIGHTS and that for it. In STOP, in which engines stop,
        only who waits for the bus."""
        units = [Unit[f"CORE{core}_{opcode.name}"] for core, opcode in self.queues]
        engines = [n for n, unit in enumerate(units) if unit not in self.masters]
        late = [n for n, (_, opcode) in enumerate(self.queues) if opcode == Opcode.MATMUL]
        at_work, not_done = Cat(self.working[n] for n in engines), ~Cat(self.empty[n] for n in late)
        blamed = [*(units[n] for n in engines), *self.masters, *(units[n] for n in late)]
        m.submodules.watchdog = watchdog = Watchdog(blamed)
        m.d.comb += [
            watchdog.limit.eq(self.watchdog),
            watchdog.restart.eq(restart),
            watchdog.progress.eq(self.progress | self.dispatched),
            watchdog.suspects.eq(
                Cat(Mux(stopping, 0, at_work), self.bus_busy, Mux(stopping, 0, not_done))
            ),
        ]
        return watchdog

    def _push(self, number):
        return getattr(self, f"push{number}")
