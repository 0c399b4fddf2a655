"""Runs of many batches: the schedule as the registers hold it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from golden.prediction.schedule import Phase, ScheduleConfig, Stage
from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, STAGE_LAYOUT, STAGES, PhaseCode

__all__ = ["PHASES", "BatchLoop", "next_position", "scheduled_phase"]

#: What register PHASE says -> golden's phase.
PHASES = {
    PhaseCode.WARM_UP: Phase.WARM_UP,
    PhaseCode.BP: Phase.BP,
    PhaseCode.GP: Phase.GP,
}

#: Behind the last stage that ends, every batch is Phase BP.
_REST = Stage(gp=0, bp=1, epochs=None)


@dataclass(frozen=True, kw_only=True)
class BatchLoop:
    """A run of ``batches`` batches.

    Members
    -------
    schedule : golden's schedule; at most four stages, without ``convert_every``
    batches : of this run
    epoch_batches : of an epoch
    epoch, epoch_batch : position of the first one, from 0

    Raises
    ------
    ValueError
        naming what the registers cannot hold.
    """

    schedule: ScheduleConfig
    batches: int
    epoch_batches: int
    epoch: int = 0
    epoch_batch: int = 0

    def __post_init__(self):
        problems = []
        if self.schedule.convert_every:
            problems.append("the hardware has no convert_every")
        if len(self.schedule.ladder) > STAGES:
            problems.append(f"{len(self.schedule.ladder)} stages, at most {STAGES}")
        largest = {"batches": 32, "epoch_batches": EPOCH_BATCH_WIDTH, "epoch": EPOCH_WIDTH,
                   "epoch_batch": EPOCH_BATCH_WIDTH}  # fmt: skip
        numbers = [(name, getattr(self, name), width) for name, width in largest.items()]
        numbers.append(("warm_up", self.schedule.warm_up, EPOCH_WIDTH))
        for number, stage in enumerate(self.schedule.ladder):
            numbers += [
                (f"{name} of stage {number}", getattr(stage, name) or 0, place.width)
                for name, place in STAGE_LAYOUT
            ]
        for name, value, width in numbers:
            least = int(name == "epoch_batches")
            if not least <= value < 1 << width:
                problems.append(f"{name} must be from {least} to {(1 << width) - 1}, not {value}")
        if problems:
            raise ValueError("BatchLoop: " + "; ".join(problems))

    def registers(self) -> dict[str, int]:
        """What the host writes before the start, but BATCHES_READY."""
        ladder = [*self.schedule.ladder, *[_REST] * STAGES][:STAGES]
        values = {
            "BATCHES": self.batches,
            "EPOCH_BATCHES": self.epoch_batches,
            "WARM_UP": self.schedule.warm_up,
            "EPOCH": self.epoch,
            "EPOCH_BATCH": self.epoch_batch,
        }
        for number, stage in enumerate(ladder):
            fields = {"gp": stage.gp, "bp": stage.bp, "epochs": stage.epochs or 0}
            values[f"STAGE{number}"] = STAGE_LAYOUT.const(fields).as_value().value
        return values

    def after(self, count: int) -> "BatchLoop":
        """What is left of it when ``count`` batches are done."""
        epochs, epoch_batch = divmod(self.epoch_batch + count, self.epoch_batches)
        return dataclasses.replace(
            self, batches=self.batches - count, epoch=self.epoch + epochs, epoch_batch=epoch_batch
        )

    def phases(self) -> list[Phase]:
        """Of all batches of the run, as golden says."""
        positions = [
            divmod(self.epoch_batch + number, self.epoch_batches) for number in range(self.batches)
        ]
        return [self.schedule.phase(self.epoch + epoch, batch) for epoch, batch in positions]


def scheduled_phase(registers: Mapping[str, int]) -> PhaseCode:
    """The phase of the batch at EPOCH and EPOCH_BATCH, as the sequencer finds it
    (:class:`hw.control.batch_schedule.BatchSchedule`), from values of registers by name."""
    epoch = registers["EPOCH"] - registers["WARM_UP"]
    if epoch < 0:
        return PhaseCode.WARM_UP
    for number in range(STAGES):
        stage = STAGE_LAYOUT.from_bits(registers[f"STAGE{number}"])
        if not stage.epochs or epoch < stage.epochs:
            turns = stage.gp + stage.bp
            place = registers["EPOCH_BATCH"] % turns if turns else 0
            return PhaseCode.GP if place < stage.gp else PhaseCode.BP
        epoch -= stage.epochs
    return PhaseCode.BP


def next_position(registers: Mapping[str, int]) -> dict[str, int]:
    """EPOCH and EPOCH_BATCH behind the batch that they name."""
    epoch, batch = registers["EPOCH"], registers["EPOCH_BATCH"] + 1
    if batch >= registers["EPOCH_BATCHES"]:
        epoch, batch = min(epoch + 1, (1 << EPOCH_WIDTH) - 1), 0
    return {"EPOCH": epoch, "EPOCH_BATCH": batch}
