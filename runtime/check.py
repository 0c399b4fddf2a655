"""The golden model beside the accelerator: the same batches, compared bit for bit."""

from functools import partial
from typing import Any

import numpy as np
import torch

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD, Adam, AdamW
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import Phase
from golden.prediction.step import PredictedTraining
from golden.training.step import Training
from hw.config import AdaGPConfig
from verif.networks.training_result import Difference, compare_arrays

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


class GoldenTwin:
    """Golden's training of the same network.

    Parameters
    ----------
    model : where training begins, in training mode
    config : AdaGPConfig
    shape : (C, H, W) or (features,)
    optimizer : golden's
    predictor : PredictorConfig for ADA-GP, None for backpropagation
    options : predict, loss, guard, echo
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
            "granule": config.granule_operands,
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
        pairs: dict[str, tuple[Any, Any]] = {}
        if loss is not None and result.loss is not None:
            pairs["loss"] = _bits([loss]), np.uint32(result.loss.value)
        for name, bits in (golden.weights | golden.running).items():
            pairs[f"weights {name}"] = _bits(state.weights[name]), bits
        for index, role in enumerate(optimizer.slots):
            for name, slots in golden.slots.items():
                pairs[f"{role} of {name}"] = _bits(state.slots[role][name]), slots[index]
        if self._predicts:
            pairs |= self._predictor(state)
        actual, expected = ({name: pair[k] for name, pair in pairs.items()} for k in range(2))
        return compare_arrays(number, actual, expected, partial(decode, FLOAT32))[0]

    def _predictor(self, state):
        """Numbers of the predictor: actual and expected by name."""
        own = self._golden.state()
        pairs = {tensor: (state.predictor[tensor], own["predictor"][name])
                 for name, tensor in _PREDICTOR.items()}  # fmt: skip
        for what in _STATISTICS:
            for name, bits in own[what].items():
                actual = state.predictor[f"{name}.prediction.{what}"][0, 0, :, 0]
                pairs[f"{what} of {name}"] = actual, bits
        return pairs


def _bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)
