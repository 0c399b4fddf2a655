"""The schedule of batches: the position behind a batch, and the phase of every position."""

from amaranth.hdl import Array, Const, Mux, Signal
from amaranth.lib import data

from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, STAGE_LAYOUT, STAGES, PhaseCode
from verif.prove.proof import Mutant, Proof

__all__ = ["BATCH_SCHEDULE"]

_READY, _BEGIN, _STAGE, _PLACE = range(4)
_CYCLES_OF_STAGE = 3 + STAGES


def _build(harness, module):
    m = harness.m
    registers = {
        name: harness.constant(name, shape)
        for name, shape in (
            ("warm_up", EPOCH_WIDTH),
            ("epoch_batches", EPOCH_BATCH_WIDTH),
            *((f"stage{number}", STAGE_LAYOUT.size) for number in range(STAGES)),
        )
    }
    # A run begins at any position: its reset leaves the registers alone.
    epoch = Signal(EPOCH_WIDTH, reset_less=True)
    epoch_batch = Signal(EPOCH_BATCH_WIDTH, reset_less=True)
    schedule = harness.add(
        module.BatchSchedule(),
        drive=registers | {"epoch": epoch, "epoch_batch": epoch_batch},
    )
    warm_up, epoch_batches = registers["warm_up"], registers["epoch_batches"]
    stages = [data.View(STAGE_LAYOUT, registers[f"stage{number}"]) for number in range(STAGES)]

    # The registers of the position: the host writes them when nothing is under way, and then asks
    # for the phase; a batch that is done moves them on.
    written, known = harness.free("written"), Signal()
    harness.watch("known", known)
    new_epoch = harness.free("new_epoch", EPOCH_WIDTH)
    new_batch = harness.free("new_epoch_batch", EPOCH_BATCH_WIDTH)
    with m.If(schedule.advance):
        m.d.sync += [epoch.eq(schedule.next_epoch), epoch_batch.eq(schedule.next_epoch_batch)]
    with m.Elif(written):
        m.d.sync += [epoch.eq(new_epoch), epoch_batch.eq(new_batch), known.eq(0)]
    with m.Elif(schedule.locate):
        m.d.sync += known.eq(1)
    moved = harness.delayed("moved", schedule.advance | written, init=1)
    harness.assume("one thing at a time", ~(written & (schedule.locate | schedule.advance)))
    harness.assume(
        "neither pulse unless it is ready",
        schedule.ready | ~(schedule.locate | schedule.advance | written),
    )
    harness.assume("never both pulses", ~(schedule.locate & schedule.advance))
    harness.assume(
        "a batch at a known position takes two cycles", ~schedule.advance | known & ~moved
    )

    # What the position behind must be.
    more = epoch_batch + 1 < epoch_batches
    harness.claim(
        "the next batch of the epoch, or the first of the next",
        ~schedule.advance | (schedule.next_epoch_batch == Mux(more, epoch_batch + 1, 0)),
    )
    harness.claim(
        "the epoch goes on behind its last batch, up to the largest number",
        ~schedule.advance | (schedule.next_epoch == Mux(more | epoch.all(), epoch, epoch + 1)),
    )
    advanced = harness.delayed("advanced", schedule.advance)
    harness.claim(
        "a batch lies inside its epoch",
        ~advanced | (epoch_batch == 0) | (epoch_batch < epoch_batches),
    )

    # The stage of the epoch by its number alone: 0 warm-up, 1 to STAGES, STAGES + 1 none.
    bounds = [Const(0), warm_up]  # epochs before number n
    for stage in stages[:-1]:
        bounds.append(bounds[-1] + stage.epochs)
    found = Const(STAGES + 1)
    for number in reversed(range(1, STAGES + 1)):
        length = stages[number - 1].epochs
        inside = (length == 0) | (epoch < bounds[number] + length)
        found = Mux(inside, number, found)
    found = Mux(epoch < warm_up, 0, found)
    stage = Array(
        [
            Const(0, STAGE_LAYOUT.size),
            *(registers[f"stage{n}"] for n in range(STAGES)),
            Const(0, STAGE_LAYOUT.size),
        ]
    )[found]
    stage_gp, stage_turns = Signal(8), Signal(9)
    harness.watch("check_gp", stage_gp)
    harness.watch("check_turns", stage_turns)
    harness.watch("check_found", found)
    m.d.comb += [stage_gp.eq(stage[:8]), stage_turns.eq(stage[:8] + stage[8:16])]
    in_stage = (found != 0) & (found != STAGES + 1)

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    state, number, left = inner("fsm_state", 2), inner("number", 3), inner("left", EPOCH_WIDTH)
    warm, new, gp, turns = inner("warm"), inner("new"), inner("gp", 8), inner("turns", 9)
    place, bit = inner("place", 9), inner("bit", (EPOCH_BATCH_WIDTH - 1).bit_length())
    rest_negative = inner("rest", 11)[-1]
    last = inner("last")

    # The rounds before the place in the round, in batches. It only ever becomes 0, or doubles, or
    # grows by a round: a multiple of the round. So a place below a round that makes it up to
    # the position is the remainder of a division.
    rounds = Signal(EPOCH_BATCH_WIDTH)
    harness.watch("check_rounds", rounds)
    with m.If(state == _BEGIN):
        m.d.sync += rounds.eq(0)
    with m.Elif((state == _PLACE) & new):
        m.d.sync += rounds.eq((rounds << 1) + Mux(rest_negative, 0, turns))
    with m.Elif(schedule.advance & (place + 1 == turns)):
        m.d.sync += rounds.eq(rounds + turns)
    remainder = (turns == 0) | (rounds + place == epoch_batch) & (place < turns)

    here = known & schedule.ready
    harness.claim(
        "warm-up in its epochs", ~here | ((schedule.phase == PhaseCode.WARM_UP) == (found == 0))
    )
    harness.claim(
        "behind the last stage every batch is BP",
        ~here | (found != STAGES + 1) | (schedule.phase == PhaseCode.BP),
    )
    harness.claim(
        "in a stage the place is the position's remainder by the round",
        ~(here & in_stage) | (turns == stage_turns) & remainder,
    )
    harness.claim(
        "in a round GP comes first, then BP",
        ~(here & in_stage)
        | (turns == 0)
        | (schedule.phase == Mux(place < stage_gp, PhaseCode.GP, PhaseCode.BP)),
    )
    harness.claim(
        "a stage without batches is BP",
        ~(here & in_stage) | (stage_turns != 0) | (schedule.phase == PhaseCode.BP),
    )
    busy = Signal(range(_CYCLES_OF_STAGE + EPOCH_BATCH_WIDTH + 2))
    harness.watch("check_busy", busy)
    with m.If(schedule.ready):
        m.d.sync += busy.eq(0)
    with m.Else():
        m.d.sync += busy.eq(busy + 1)
    longest = _CYCLES_OF_STAGE + EPOCH_BATCH_WIDTH
    harness.claim(f"it is ready behind {longest} cycles", schedule.ready | (busy < longest))

    harness.invariant(
        "the position is known where something is under way", known | (state == _READY)
    )
    harness.invariant(
        "the last batch is known", moved | (last == (epoch_batch + 1 >= epoch_batches))
    )
    harness.invariant("a stage has a number", number <= STAGES + 1)
    before = Array([*bounds, Const(0), Const(0), Const(0)])[number]
    harness.invariant(
        "what is left of the epoch is that behind the stages before",
        (state != _STAGE) | (number <= STAGES) & (left + before == epoch) & (found >= number),
    )
    harness.invariant("no stage is warm-up", (state != _STAGE) | ~warm & (gp == 0))
    harness.invariant("no place is in warm-up", (state != _PLACE) | ~warm & in_stage)
    harness.invariant(
        "the stage is the position's",
        ~((state == _PLACE) | here & in_stage) | (gp == stage_gp) & (turns == stage_turns),
    )
    harness.invariant("warm-up is known", ~here | (warm == (found == 0)))
    harness.invariant("behind the stages there is no GP", ~here | (found != STAGES + 1) | (gp == 0))
    harness.invariant(
        "a division starts at the top",
        ~((state == _STAGE) | (state == _PLACE) & ~new)
        | (place == 0) & (rounds == 0) & (bit == EPOCH_BATCH_WIDTH - 1),
    )
    harness.invariant(
        "the division has come to a bit",
        ~((state == _PLACE) & new)
        | (turns == 0)
        | (rounds + place == (epoch_batch >> bit >> 1)) & (place < turns),
    )
    harness.invariant(
        "without a division it is the first batch",
        (state == _READY) | new | (epoch_batch == 0),
    )
    harness.invariant(
        "time is counted",
        Array(
            [
                busy == 0,
                busy == 0,
                busy == number + 1,
                busy <= _CYCLES_OF_STAGE - 1 + (EPOCH_BATCH_WIDTH - 1 - bit),
            ]
        )[state]
        | (state == _READY),
    )
    harness.cover("a batch of GP", here & (schedule.phase == PhaseCode.GP))
    harness.cover("behind the first batch of an epoch", advanced & here)


BATCH_SCHEDULE = Proof(
    name="batch-schedule",
    what="the position behind a batch; the phase of every position",
    module="hw.control.batch_schedule",
    build=_build,
    mutants=(
        Mutant(
            name="an epoch has a batch too many",
            old="last.eq(behind >= self.epoch_batches)",
            new="last.eq(behind > self.epoch_batches)",
            cycles=4,
        ),
        Mutant(
            name="epochs wrap",
            old="self.epoch + (last & ~self.epoch.all())",
            new="self.epoch + last",
            cycles=10,
        ),
        Mutant(
            name="a round has a place too many",
            old="Mux(place + 1 == turns, 0, place + 1)",
            new="Mux(place == turns, 0, place + 1)",
        ),
        Mutant(
            name="a stage is an epoch too long",
            old="inside.eq(less[-1] |",
            new="inside.eq((left <= length) |",
            cycles=4,
        ),
        Mutant(
            name="the division stops a bit early",
            old="with m.If((bit == 0) | ~new):",
            new="with m.If((bit == 1) | ~new):",
        ),
    ),
)
