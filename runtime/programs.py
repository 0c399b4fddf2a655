"""Programs for the batches of a training run."""

from collections.abc import Collection
from typing import Any

import torch

from compiler.adagp.compile import PredictorShape, compile_adagp
from compiler.training import compile_training
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig

from .connection import Connection
from .session import BackpropagationSession, PredictionSession, Session

__all__ = ["METHODS", "make_session"]

#: How a batch becomes an update: backpropagation, or gradient prediction.
METHODS = ("bp", "adagp")


def make_session(
    accelerator: Connection,
    model: torch.nn.Module,
    shape: tuple[int, ...],
    *,
    images: int,
    method: str,
    loss: Any,
    optimizer: torch.optim.Optimizer,
    schedule: ScheduleConfig,
    predictor: PredictorConfig,
    predict: Collection[str] | None,
    guard: bool,
) -> Session:
    """Compile for batches of ``images`` images of ``shape``, (C, H, W) or (features,); the other
    arguments are those of :class:`runtime.Trainer`. Raises CompileError."""
    config = accelerator.config
    options: dict[str, Any] = {"images": images, "loss": loss, "optimizer": optimizer}
    if method == "bp":
        program = compile_training(model, config, shape, **options)
        return BackpropagationSession(accelerator, program, guard=guard)
    sizes = PredictorShape(
        channels=predictor.channels, map_size=predictor.map_size, running=predictor.running
    )
    prediction = compile_adagp(model, config, shape, shape=sizes, predict=predict, **options)
    return PredictionSession(accelerator, prediction, schedule=schedule, guard=guard)
