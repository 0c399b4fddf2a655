"""Between two batches: what BATCH does."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import UpdateSignature
from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, STAGE_LAYOUT, STAGES, PhaseCode
from hw.isa.encoding import COMMAND_BYTES, HEADER_LAYOUT, Opcode, command_layout
from hw.isa.packing import LINE_BYTES, WORD_BYTES

from .batch_schedule import BatchSchedule

__all__ = ["BATCH_REGISTERS", "BATCH_UPDATES", "BatchControl", "connect_batches"]

#: Ports of a register's content, and those that change one.
BATCH_REGISTERS = (
    "batches",
    "batches_ready",
    "batches_done",
    "epoch_batches",
    "warm_up",
    *(f"stage{number}" for number in range(STAGES)),
    "epoch",
    "epoch_batch",
    "phase",
)
BATCH_UPDATES = ("batches_done_update", "epoch_update", "epoch_batch_update", "phase_update")

#: Bits of a place in a word of the program, in a line of it.
_WORD_BITS = (WORD_BYTES - 1).bit_length()
_LINE_BITS = (LINE_BYTES - 1).bit_length()


class BatchControl(wiring.Component):
    """Executes BATCH: ends a batch, waits for the inputs of the next, sends the fetch to it.

    While ``offered``, all four targets are checked: each a multiple of WORD_BYTES inside the
    program. A command that says ``first`` must be the first one of the run. Behind the checks, when
    the queues are ``drained`` and no error is about to end the run, the batch is counted and the
    position moves on, unless the command says ``first``. Then the run is ``complete`` if BATCHES
    are done; otherwise it waits until BATCHES_READY is above BATCHES_DONE. Both registers may
    change at any time. Last, the phase is stored and the fetch, which has stopped, is reset and
    started at the target for the phase and the parity of BATCHES_DONE. From ``drained`` to that
    start it is 4 cycles (with ``first`` 3), up to 6 more at the end of an epoch, and what the host
    takes.

    Idle after reset, which is also between two runs.

    Members
    -------
    begin : In(1), pulse: a run starts; the phase of its first batch is looked up
    offered : In(1), a BATCH is at the head of the stream, as long as it stays there
    command : In(512); drained : In(1), all queues are empty
    fails : In(1), an error ends the run in this cycle or the next: what is drained does not count
    fetch_busy : In(1)
    bad_target : Out(1), level: a target of the command is not in the program
    bad_first : Out(1), level: the command says ``first`` and is not
    complete : Out(1), level: the run ends here
    hold : Out(1), the fetch stops; ``jump``: Out(1), pulse, the last cycle of the command: the
        fetch is reset, and starts in the next cycle, in which ``begin_jump`` is high, at ``target``
    program_address, program_size, and those of BATCH_REGISTERS : In, see hw/registers/map.py
    those of BATCH_UPDATES : ``Out(UpdateSignature(width))``
    waiting : Out(1), for the host
    batch : Out(1), pulse: a batch is done; ``in_gp``: Out(1), the same for Phase GP only
    """

    def __init__(self):
        super().__init__(
            {
                "begin": In(1),
                "offered": In(1),
                "command": In(8 * COMMAND_BYTES),
                "drained": In(1),
                "fails": In(1),
                "fetch_busy": In(1),
                "bad_target": Out(1),
                "bad_first": Out(1),
                "complete": Out(1),
                "hold": Out(1),
                "jump": Out(1),
                "begin_jump": Out(1),
                "target": Out(32),
                "program_address": In(32),
                "program_size": In(32),
                "batches": In(32),
                "batches_ready": In(32),
                "batches_done": In(32),
                "epoch_batches": In(EPOCH_BATCH_WIDTH),
                "warm_up": In(EPOCH_WIDTH),
                **{f"stage{number}": In(STAGE_LAYOUT) for number in range(STAGES)},
                "epoch": In(EPOCH_WIDTH),
                "epoch_batch": In(EPOCH_BATCH_WIDTH),
                "phase": In(2),
                "epoch_update": Out(UpdateSignature(EPOCH_WIDTH)),
                "epoch_batch_update": Out(UpdateSignature(EPOCH_BATCH_WIDTH)),
                "batches_done_update": Out(UpdateSignature(32)),
                "phase_update": Out(UpdateSignature(2)),
                "waiting": Out(1),
                "batch": Out(1),
                "in_gp": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.schedule = schedule = BatchSchedule()
        for name in ("epoch_batches", "warm_up", "epoch", "epoch_batch"):
            m.d.comb += getattr(schedule, name).eq(getattr(self, name))
        for number in range(STAGES):
            name = f"stage{number}"
            m.d.comb += getattr(schedule, name).eq(getattr(self, name))
        layout = command_layout(Opcode.BATCH)
        fields = data.View(layout, self.command[HEADER_LAYOUT.size :][: layout.size])

        # Targets: one after the other to be checked, then the one that is wanted.
        check = Signal(range(4 + 2))
        checking = Signal()
        targets = Array([fields.bp_even, fields.bp_odd, fields.gp_even, fields.gp_odd])
        wanted = Cat(self.batches_done[0], schedule.phase == PhaseCode.GP)
        place = Signal(32)
        inside = Signal()
        # In front of the program it is large: a program that the fetch has begun ends in 32 bits.
        m.d.comb += place.eq(self.target - self.program_address)
        m.d.sync += [
            self.target.eq(targets[Mux(checking, check[:2], wanted)]),
            inside.eq(
                ~self.target[:_WORD_BITS].any()
                & (place[_LINE_BITS:] < self.program_size[_LINE_BITS:])
            ),
        ]

        over = Signal()
        supplied = Signal()
        begun = Signal()  # a BATCH of this run is over
        m.d.sync += [
            over.eq(self.batches_done >= self.batches),
            supplied.eq(self.batches_ready > self.batches_done),
        ]
        m.d.comb += [
            schedule.locate.eq(self.begin),
            self.hold.eq(self.offered),
            self.epoch_update.value.eq(schedule.next_epoch),
            self.epoch_batch_update.value.eq(schedule.next_epoch_batch),
            self.epoch_update.valid.eq(self.batch),
            self.epoch_batch_update.valid.eq(self.batch),
            self.batches_done_update.valid.eq(self.batch | self.begin),
            self.batches_done_update.value.eq(Mux(self.begin, 0, self.batches_done + 1)),
            self.phase_update.valid.eq(self.jump),
            self.phase_update.value.eq(schedule.phase),
            schedule.advance.eq(self.batch),
            self.in_gp.eq(self.batch & (self.phase == PhaseCode.GP)),
        ]
        m.d.sync += self.begin_jump.eq(self.jump)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += check.eq(0)
                with m.If(self.offered):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += checking.eq(1)
                m.d.sync += check.eq(check + 1)
                with m.If(fields.first & begun):
                    m.next = "BAD_FIRST"
                with m.Elif((check >= 2) & ~inside):
                    m.next = "BAD"
                with m.Elif(check == 5):
                    m.next = "DRAIN"
            with m.State("BAD"):
                m.d.comb += self.bad_target.eq(1)
            with m.State("BAD_FIRST"):
                m.d.comb += self.bad_first.eq(1)
            with m.State("DRAIN"):
                with m.If(self.offered & self.drained & ~self.fails & schedule.ready):
                    with m.If(fields.first):
                        m.next = "WAIT"
                    with m.Else():
                        m.d.comb += self.batch.eq(1)
                        m.next = "COUNTED"
            with m.State("COUNTED"):
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(~self.offered):
                    pass  # an error has ended the run
                with m.Elif(over):
                    m.d.comb += self.complete.eq(1)
                with m.Elif(~supplied):
                    m.d.comb += self.waiting.eq(1)
                with m.Elif(schedule.ready & ~self.fetch_busy):
                    m.next = "JUMP"
            with m.State("JUMP"):
                m.d.comb += self.jump.eq(self.offered)
                m.d.sync += begun.eq(1)
                m.next = "IDLE"
        return m


def connect_batches(m, batches, *, sequencer, fetch, restart):
    """Put a :class:`BatchControl` between a sequencer and a fetch that are connected already;
    ``restart``, a Signal, resets the fetch."""
    m.d.comb += [
        batches.begin.eq(sequencer.begin),
        batches.offered.eq(sequencer.batch),
        batches.command.eq(sequencer.command.payload),
        batches.drained.eq(sequencer.drained),
        batches.fetch_busy.eq(fetch.busy),
        sequencer.resume.eq(batches.jump),
        sequencer.complete.eq(batches.complete),
        sequencer.bad_target.eq(batches.bad_target),
        sequencer.bad_first.eq(batches.bad_first),
        restart.eq(batches.jump),
    ]
    with m.If(batches.hold):
        m.d.comb += fetch.stop.eq(1)
    with m.If(batches.begin_jump):
        m.d.comb += [fetch.start.eq(1), fetch.first.eq(batches.target)]
