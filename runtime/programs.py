"""Programs for the batches of a training run."""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from compiler.adagp.compile import PredictorShape, compile_adagp
from compiler.training import compile_training
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig

from .connection import Connection
from .session import BackpropagationSession, PredictionSession, Session

__all__ = ["METHODS", "make_session", "require_method"]

#: How a batch becomes an update: backpropagation, or gradient prediction.
METHODS = ("bp", "adagp")


def require_method(method: str, echo: int, given: Mapping[str, Any]) -> None:
    """Raise ValueError unless there is such a method, and what else is given belongs to it.

    ``given`` are arguments by name that only gradient prediction takes, None where they are not
    given; ``echo`` is an argument of backpropagation.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if isinstance(echo, bool) or not isinstance(echo, int) or echo < 0:
        raise ValueError(f"echo must be an integer of at least 0, not {echo!r}")
    if method != "bp":
        if echo:
            raise ValueError(f"echo is for method 'bp', not for {method!r}")
        return
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is for method 'adagp', not for 'bp'")


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
    echo: int,
) -> Session:
    """Compile for batches of ``images`` images of ``shape``, (C, H, W) or (features,); the other
    arguments are those of :class:`runtime.Trainer`. Raises CompileError."""
    config = accelerator.config
    options: dict[str, Any] = {"images": images, "loss": loss, "optimizer": optimizer}
    if method == "bp":
        program = compile_training(model, config, shape, echo=echo, **options)
        return BackpropagationSession(accelerator, program, guard=guard)
    sizes = PredictorShape(
        channels=predictor.channels, map_size=predictor.map_size, running=predictor.running
    )
    prediction = compile_adagp(model, config, shape, shape=sizes, predict=predict, **options)
    return PredictionSession(accelerator, prediction, schedule=schedule, guard=guard)
