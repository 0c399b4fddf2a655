"""The schedule of ADA-GP in hardware: which phase a batch belongs to."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, STAGE_LAYOUT, STAGES, PhaseCode

__all__ = [
    "BatchSchedule",
]


class BatchSchedule(wiring.Component):
    """Walks from batch to batch and says the phase of each.

    The first ``warm_up`` epochs are WARM_UP. Then come the stages; one whose ``epochs`` is 0 has no
    end, and behind the last one that ends every batch is BP. A round that an epoch's end cuts off
    does not go on in the next epoch. A batch at the place ``epoch_batches - 1`` or behind it is the
    last of its epoch; epochs stay at their largest number. A stage without ``bp`` is GP throughout,
    one without ``gp`` is BP.

    ``locate`` finds the phase of any position: up to 7 cycles for the stage, one per bit of
    ``epoch_batch`` for the place in the round. ``advance`` takes 1 cycle, behind the last batch of
    an epoch up to 8. Idle after reset.

    Members
    -------
    warm_up : In, epochs; ``stage0`` ... ``stage3``: ``In(STAGE_LAYOUT)``; epoch_batches : In
    epoch, epoch_batch : In, the position, in registers outside; all stable when ``ready`` is low
    next_epoch, next_epoch_batch : Out, the position behind it, to be stored with ``advance``; valid
        from the second cycle of a position on
    locate : In(1), pulse: the position is a new one
    advance : In(1), pulse while ``ready``: the batch is done
    ready : Out(1), ``phase`` is that of the position; low from the cycle after a pulse on
    phase : Out(2), a :class:`PhaseCode`
    """

    def __init__(self):
        super().__init__(
            {
                "warm_up": In(EPOCH_WIDTH),
                **{f"stage{number}": In(STAGE_LAYOUT) for number in range(STAGES)},
                "epoch_batches": In(EPOCH_BATCH_WIDTH),
                "epoch": In(EPOCH_WIDTH),
                "epoch_batch": In(EPOCH_BATCH_WIDTH),
                "next_epoch": Out(EPOCH_WIDTH),
                "next_epoch_batch": Out(EPOCH_BATCH_WIDTH),
                "locate": In(1),
                "advance": In(1),
                "ready": Out(1),
                "phase": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # Position ----------------
        behind = Signal(EPOCH_BATCH_WIDTH + 1)
        last = Signal()
        m.d.comb += [
            behind.eq(self.epoch_batch + 1),
            self.next_epoch_batch.eq(Mux(last, 0, behind)),
            self.next_epoch.eq(self.epoch + (last & ~self.epoch.all())),
        ]
        m.d.sync += last.eq(behind >= self.epoch_batches)

        # Stage: what is left of the epoch's number, less warm-up, less stage after stage.
        stages = [data.View(STAGE_LAYOUT, getattr(self, f"stage{n}")) for n in range(STAGES)]
        stage = Signal(STAGE_LAYOUT)
        number = Signal(range(STAGES + 1))  # 0: warm-up
        length = Signal(EPOCH_WIDTH)
        left = Signal(EPOCH_WIDTH)
        less = Signal(EPOCH_WIDTH + 1)
        inside = Signal()
        m.d.comb += [
            stage.eq(Array(stages)[(number - 1)[:2]]),
            length.eq(Mux(number == 0, self.warm_up, stage.epochs)),
            less.eq(left - length),
            inside.eq(less[-1] | ((number != 0) & (length == 0))),
        ]

        # Place in the round, the remainder of a division if the position is new.
        warm = Signal()
        new = Signal()
        gp = Signal(8)
        turns = Signal(9)
        place = Signal(9)
        bit = Signal(range(EPOCH_BATCH_WIDTH))
        doubled = Signal(10)
        rest = Signal(11)
        m.d.comb += [
            doubled.eq(Cat(self.epoch_batch.bit_select(bit, 1), place)),
            rest.eq(doubled - turns),
            self.phase.eq(
                Mux(warm, PhaseCode.WARM_UP, Mux(place < gp, PhaseCode.GP, PhaseCode.BP))
            ),
        ]

        with m.FSM():
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.locate):
                    m.d.sync += new.eq(1)
                    m.next = "BEGIN"
                with m.Elif(self.advance):
                    m.d.sync += [place.eq(Mux(place + 1 == turns, 0, place + 1)), new.eq(0)]
                    with m.If(last):
                        m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += [left.eq(self.epoch), number.eq(0), place.eq(0), gp.eq(0)]
                m.d.sync += [warm.eq(0), bit.eq(EPOCH_BATCH_WIDTH - 1)]
                m.next = "STAGE"
            with m.State("STAGE"):
                m.d.sync += [left.eq(less), number.eq(number + 1)]
                with m.If(inside & (number == 0)):
                    m.d.sync += warm.eq(1)
                    m.next = "READY"
                with m.Elif(inside):
                    m.d.sync += [gp.eq(stage.gp), turns.eq(stage.gp + stage.bp)]
                    m.next = "PLACE"
                with m.Elif(number == STAGES):
                    m.next = "READY"
            with m.State("PLACE"):
                m.d.sync += bit.eq(bit - 1)
                with m.If(new):
                    m.d.sync += place.eq(Mux(rest[-1], doubled, rest))
                with m.If((bit == 0) | ~new):
                    m.next = "READY"
        return m
