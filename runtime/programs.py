"""Programs for the batches of a training run, and what they have learned."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from compiler.adagp.compile import PredictorShape, compile_adagp
from compiler.training import compile_training
from golden.prediction.config import PredictorConfig
from golden.prediction.predictor import initial_taps
from golden.prediction.schedule import ScheduleConfig

from .connection import Connection
from .session import BackpropagationSession, PredictionSession, Session
from .state import State

__all__ = ["METHODS", "Programs", "require_method"]

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


class Programs:
    """A program for every size of batch, compiled when it is first needed. The last one used has
    what has been learned; the next one is given it.

    Parameters
    ----------
    accelerator : Connection
    model : begins with its weights
    method : one of :data:`METHODS`
    schedule, predictor, predict, loss, optimizer, guard, echo : as in :class:`runtime.Trainer`
    """

    def __init__(
        self,
        accelerator: Connection,
        model: torch.nn.Module,
        *,
        method: str,
        schedule: ScheduleConfig,
        predictor: PredictorConfig,
        predict: Collection[str] | None,
        loss: Any,
        optimizer: torch.optim.Optimizer,
        guard: bool,
        echo: int,
    ) -> None:
        self._accelerator, self._model, self._method = accelerator, model, method
        self._schedule, self._predictor, self._predict = schedule, predictor, predict
        self._loss, self._optimizer, self._guard, self._echo = loss, optimizer, guard, echo
        self._sessions: dict[int, Session] = {}
        self._current: Session | None = None
        self._state = State.of(model)
        self._stale = False  # the accelerator has learned more since

    def __contains__(self, images: int) -> bool:
        """Whether there is a program for batches of so many images."""
        return images in self._sessions

    @property
    def current(self) -> Session | None:
        """The program that was used last, None before the first batch."""
        return self._current

    @property
    def state(self) -> State:
        """What has been learned."""
        if self._stale and self._current is not None:
            self._state, self._stale = self._current.state(), False
        return self._state

    def for_batch(self, images: int, shape: tuple[int, ...]) -> Session:
        """The program for a batch of ``images`` images of ``shape``, (C, H, W) or (features,), with
        everything learned so far in its window; the caller trains with it. Raises CompileError."""
        if images not in self._sessions:
            self._sessions[images] = self._compile(images, shape)
        session = self._sessions[images]
        if self._current is not session:
            session.load(self.state)
            self._current = session
        self._stale = True
        return session

    def close(self) -> None:
        """Give back the accelerator's memory; what has been learned stays here."""
        self._state = self.state  # read before the memory goes
        for session in self._sessions.values():
            session.close()
        self._sessions, self._current = {}, None

    def restart(self, state: State) -> None:
        """Go on from ``state``, whatever has been learned."""
        self.close()
        self._state = state

    def _compile(self, images: int, shape: tuple[int, ...]) -> Session:
        options: dict[str, Any] = {
            "images": images, "loss": self._loss, "optimizer": self._optimizer,
        }  # fmt: skip
        model, config = self._model, self._accelerator.config
        if self._method == "bp":
            program = compile_training(model, config, shape, echo=self._echo, **options)
            return BackpropagationSession(self._accelerator, program, guard=self._guard)
        predictor = self._predictor
        sizes = PredictorShape(
            channels=predictor.channels, map_size=predictor.map_size, running=predictor.running
        )
        prediction = compile_adagp(
            model, config, shape, shape=sizes, predict=self._predict, **options
        )
        if not self._state.predictor:
            taps = initial_taps(predictor)[np.newaxis, np.newaxis]
            self._state.predictor["predictor.taps"] = taps
        return PredictionSession(
            self._accelerator, prediction, schedule=self._schedule, guard=self._guard
        )
