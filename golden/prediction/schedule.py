"""When ADA-GP runs backpropagation and when it predicts (section 3.5 of the paper).

Integers only, without torch: the float32 trainer and a bit-exact one follow the same schedule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = ["Phase", "ScheduleConfig", "Stage"]


class Phase(Enum):
    """What a batch does. Warm-up and Phase BP do the same; reports tell them apart."""

    WARM_UP = "W"
    BP = "B"
    GP = "G"

    @property
    def backpropagates(self) -> bool:
        """Whether true gradients are computed."""
        return self is not Phase.GP


def _is_count(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Rounds of ``gp`` batches of Phase GP and then ``bp`` of Phase BP, for ``epochs`` epochs.

    ``epochs`` of the last stage may be None: to the end of training.
    """

    gp: int
    bp: int = 1
    epochs: int | None = 4

    def __post_init__(self):
        problems = []
        if not _is_count(self.gp, 0):
            problems.append(f"gp must be an integer of at least 0, not {self.gp!r}")
        if not _is_count(self.bp, 1):
            problems.append(f"bp must be an integer of at least 1, not {self.bp!r}")
        if self.epochs is not None and not _is_count(self.epochs, 1):
            problems.append(f"epochs must be None or an integer of at least 1, not {self.epochs!r}")
        if problems:
            raise ValueError("Stage: " + "; ".join(problems))


_LADDER = (Stage(gp=4), Stage(gp=3), Stage(gp=2), Stage(gp=1, epochs=None))


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Phases of all batches.

    Members
    -------
    warm_up : epochs of ordinary backpropagation at the start
    ladder : :class:`Stage` by stage. After the last one, if it ends, every batch is Phase BP.
        Rounds begin anew in every epoch, so an epoch whose batches are not divisible by gp + bp
        ends with an unfinished round.
    convert_every : 0, or: every so-many-th batch that would be Phase GP in an epoch is Phase BP. A
        control, not part of ADA-GP: 3 gives skipped batches the time that Phase GP would take where
        a backward pass costs two forward passes.

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    warm_up: int = 10
    ladder: tuple[Stage, ...] = _LADDER
    convert_every: int = 0

    def __post_init__(self):
        problems = []
        for name in ("warm_up", "convert_every"):
            if not _is_count(getattr(self, name), 0):
                problems.append(
                    f"{name} must be an integer of at least 0, not {getattr(self, name)!r}"
                )
        if not isinstance(self.ladder, tuple) or not all(
            isinstance(stage, Stage) for stage in self.ladder
        ):
            problems.append(f"ladder must be a tuple of Stage, not {self.ladder!r}")
        elif any(stage.epochs is None for stage in self.ladder[:-1]):
            problems.append("only the last stage of ladder may have no end (epochs=None)")
        if problems:
            raise ValueError("ScheduleConfig: " + "; ".join(problems))

    @classmethod
    def backpropagation(cls) -> "ScheduleConfig":
        """Without any Phase GP."""
        return cls(warm_up=0, ladder=())

    def stage(self, epoch: int) -> Stage | None:
        """The stage of an epoch, counted from 0; None in warm-up and behind the last stage."""
        begin = self.warm_up
        if epoch < begin:
            return None
        for stage in self.ladder:
            if stage.epochs is None or epoch < begin + stage.epochs:
                return stage
            begin += stage.epochs
        return None

    def phase(self, epoch: int, batch: int) -> Phase:
        """The phase of a batch; both are counted from 0, the batch within its epoch."""
        if epoch < self.warm_up:
            return Phase.WARM_UP
        stage = self.stage(epoch)
        if stage is None:
            return Phase.BP
        rounds, place = divmod(batch, stage.gp + stage.bp)
        if place >= stage.gp:
            return Phase.BP
        if self.convert_every and (rounds * stage.gp + place + 1) % self.convert_every == 0:
            return Phase.BP
        return Phase.GP

    def phases(self, epochs: int, batches: int) -> Iterator[Phase]:
        """Phases of ``epochs`` epochs of ``batches`` batches, in order."""
        for epoch in range(epochs):
            for batch in range(batches):
                yield self.phase(epoch, batch)
