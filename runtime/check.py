"""The golden model beside the accelerator: the same batches, compared bit for bit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from golden.layers.optimizer import SGD, Adam, AdamW
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import Phase
from golden.prediction.step import PredictedTraining
from golden.training.step import Training
from hw.config import AdaGPConfig

from .state import State

__all__ = ["Difference", "GoldenTwin"]

#: Statistics of the predictor by the last part of their tensor's name.
_STATISTICS = ("input_statistics", "gradient_statistics")
#: Tensors of the predictor by golden's name of their numbers.
_PREDICTOR = {
    "weights": "predictor.full",
    "velocity": "predictor.full.velocity",
    "taps": "predictor.taps",
    "taps_velocity": "predictor.taps.velocity",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first wrong number of a tensor after a batch.

    Members
    -------
    batch : number of the batch, from 0
    tensor, position : where
    actual, expected : bits
    count, size : how many of the tensor's numbers are wrong
    """

    batch: int
    tensor: str
    position: tuple[int, ...]
    actual: int
    expected: int
    count: int
    size: int

    def __str__(self) -> str:
        actual, expected = np.array([self.actual, self.expected], np.uint32).view(np.float32)
        return (
            f"batch {self.batch}: {self.tensor}{list(self.position)} is {self.actual:#010x} "
            f"({actual:.9g}), golden has {self.expected:#010x} ({expected:.9g}); {self.count} of "
            f"{self.size} numbers of this tensor differ"
        )


class GoldenTwin:
    """Golden's training of the same network.

    Parameters
    ----------
    model : where training begins, in training mode
    config : AdaGPConfig
    shape : (C, H, W) or (features,)
    optimizer : golden's
    predictor : PredictorConfig for ADA-GP, None for backpropagation
    options : predict, loss, guard
    """

    def __init__(
        self,
        model: torch.nn.Module,
        config: AdaGPConfig,
        shape: tuple[int, ...],
        *,
        optimizer: SGD | Adam | AdamW,
        predictor: PredictorConfig | None,
        predict: Any = None,
        **options: Any,
    ) -> None:
        common: dict[str, Any] = {
            "input_shape": shape,
            "optimizer": optimizer,
            "rows": config.rows,
            "columns": config.columns,
            "operand_format": config.operand_format,
            **options,
        }
        self._predicts = predictor is not None
        self._golden: Any
        if predictor is None:
            self._golden = Training(model, **common)
        else:
            self._golden = PredictedTraining(
                model, predictor=predictor, predict=predict,
                predictor_rows=config.cores[-1].rows, **common,
            )  # fmt: skip

    def load(self, state: State) -> None:
        """Go on from a state."""
        golden = self._golden
        own = golden.state()
        own["weights"] = {name: _bits(state.weights[name]) for name in own["weights"]}
        own["running"] = {name: _bits(state.weights[name]) for name in own["running"]}
        if state.slots:
            roles = golden.optimizer.slots
            own["slots"] = {
                name: tuple(
                    _bits(state.slots[role][name]).reshape(slot.shape)
                    for role, slot in zip(roles, slots, strict=True)
                )
                for name, slots in own["slots"].items()
            }
        if self._predicts and state.predictor:
            predictor = own["predictor"]
            for name, tensor in _PREDICTOR.items():
                predictor[name] = state.predictor[tensor].reshape(predictor[name].shape)
            for what in _STATISTICS:
                own[what] = {
                    name: state.predictor[f"{name}.prediction.{what}"][0, 0, :, 0]
                    for name in own[what]
                }
        golden.restore(own)

    def step(
        self,
        number: int,
        images: np.ndarray,
        targets: np.ndarray,
        optimizer: SGD | Adam | AdamW,
        coefficients: dict[str, float],
        phase: Phase,
        state: State,
        loss: float | None,
    ) -> list[Difference]:
        """Train batch ``number`` and compare with what the accelerator has then: ``state``, and its
        ``loss``."""
        golden = self._golden
        golden.optimizer = optimizer
        golden.sample_seed = number - golden.count  # which golden counts from where it began
        if self._predicts:
            golden.predictor_rate = coefficients["predictor_rate"]
            golden.predictor_momentum = coefficients["predictor_momentum"]
            result = golden.step(images, targets, phase)
        else:
            result = golden.step(images, targets)
        pairs: list[tuple[str, Any, Any]]
        pairs = [(f"weights {name}", _bits(state.weights[name]), bits)
                 for name, bits in (golden.weights | golden.running).items()]  # fmt: skip
        pairs += [(f"{role} of {name}", _bits(state.slots[role][name]), slots[index])
                  for index, role in enumerate(optimizer.slots)
                  for name, slots in golden.slots.items()]  # fmt: skip
        if self._predicts:
            pairs += self._predictor(state)
        if loss is not None and result.loss is not None:
            pairs.insert(0, ("loss", _bits(np.float32(loss)), np.uint32(result.loss.value)))
        return [
            found
            for name, actual, expected in pairs
            if (found := _difference(number, name, actual, expected))
        ]

    def _predictor(self, state):
        own = self._golden.state()
        pairs = [(tensor, state.predictor[tensor], own["predictor"][name])
                 for name, tensor in _PREDICTOR.items()]  # fmt: skip
        for what in _STATISTICS:
            pairs += [
                (
                    f"{what} of {name}",
                    state.predictor[f"{name}.prediction.{what}"][0, 0, :, 0],
                    bits,
                )
                for name, bits in own[what].items()
            ]
        return pairs


def _bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _difference(number, name, actual, expected):
    actual = np.atleast_1d(np.asarray(actual))
    expected = np.asarray(expected).reshape(actual.shape)
    wrong = np.argwhere(actual != expected)
    if not len(wrong):
        return None
    place = tuple(int(index) for index in wrong[0])
    return Difference(
        batch=number, tensor=name, position=place, actual=int(actual[place]),
        expected=int(expected[place]), count=len(wrong), size=actual.size,
    )  # fmt: skip
