"""Ways to train that are compared: backpropagation, ADA-GP, and controls for each of its parts."""

from dataclasses import dataclass

from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One of METHODS.

    Members
    -------
    summary : what it does
    predictor : of the trainer; None where batches of Phase GP are skipped
    scheduled : follows the schedule; else every batch is Phase BP
    convert_every : see :class:`golden.prediction.schedule.ScheduleConfig`
    larger_steps : the learning rate of a stage is multiplied by (gp + bp) / bp
    learning_rate : unless told otherwise
    plateau : the learning rate is divided by 10 when the loss stops falling, as torch's
        ReduceLROnPlateau does; the loss is the mean of an epoch's batches of Phase BP
    """

    summary: str
    predictor: PredictorConfig | None = None
    scheduled: bool = True
    convert_every: int = 0
    larger_steps: bool = False
    learning_rate: float = 1e-2
    plateau: bool = False

    def schedule(self, schedule: ScheduleConfig) -> ScheduleConfig:
        """What this method makes of a schedule."""
        if not self.scheduled:
            return ScheduleConfig.backpropagation()
        return ScheduleConfig(
            warm_up=schedule.warm_up, ladder=schedule.ladder, convert_every=self.convert_every
        )

    def rate_factor(self, schedule: ScheduleConfig, epoch: int) -> float:
        """By what the learning rate of an epoch is multiplied."""
        stage = schedule.stage(epoch)
        if not self.larger_steps or stage is None:
            return 1.0
        return (stage.gp + stage.bp) / stage.bp

    @property
    def prediction_cost(self) -> float:
        """Time of a batch of Phase GP, where one of Phase BP takes 1.

        A backward pass takes as long as two forward passes, and the predictor runs beside them.
        """
        return 0.0 if self.predictor is None else 1 / 3


METHODS = {
    "bp": Method(summary="backpropagation of every batch", scheduled=False),
    "adagp": Method(summary="ADA-GP, scaled and gated", predictor=PredictorConfig()),
    "adagp-paper": Method(
        summary="ADA-GP as the paper describes it",
        predictor=PredictorConfig.paper(),
        learning_rate=1e-3,
        plateau=True,
    ),
    "skip": Method(summary="batches of Phase GP are skipped"),
    "skip-time": Method(
        summary="skip, with as many more batches of Phase BP as Phase GP has time for",
        convert_every=3,
    ),
    "skip-lr": Method(summary="skip, with larger steps in Phase BP instead", larger_steps=True),
    "last": Method(
        summary="the latest true gradient as prediction",
        predictor=PredictorConfig(source="last", gate=False),
    ),
    "mean": Method(
        summary="the running mean of true gradients as prediction",
        predictor=PredictorConfig(source="mean", gate=False),
    ),
    "coast": Method(
        summary="momentum alone in Phase GP, with an exact head",
        predictor=PredictorConfig(source="coast"),
    ),
}
