"""The host's part of VCAS: it measures on the machine, and says how many images each layer keeps.

A measurement is a few more runs of the program of a batch, with the coefficients
:data:`MEASURING`. Weights stay as they are then, and what the optimizer calls velocity becomes the
gradient. Velocities and running statistics have to be written back behind the last of them.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from algorithms.vcas.controller import Controller, VCASConfig

__all__ = ["MEASURING", "Measured", "SampleController"]

#: Coefficients with which a run changes no weights, and leaves gradients as velocities.
MEASURING = {"rate": 0.0, "momentum": 0.0, "decay": 0.0, "braking": 0.0}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run of a measurement has left.

    Members
    -------
    gradients : of the weights, by sampled layer
    norms : of the images of the layer's own gradient, (N,), by sampled layer
    """

    gradients: Mapping[str, np.ndarray]
    norms: Mapping[str, np.ndarray]


@dataclass(eq=False)
class _Layer:
    name: str
    ratio: float
    weights_ratio: float = 1.0


class SampleController:
    """Ratios of the layers of a :class:`compiler.vcas.SampledProgram`.

    Parameters
    ----------
    layers : names, from the input to the loss
    config : VCASConfig; what it says of rows of weight gradients counts for nothing, since the
        machine samples images only

    Members
    -------
    controller : :class:`algorithms.vcas.controller.Controller`
    """

    def __init__(self, layers: Sequence[str], config: VCASConfig) -> None:
        self.config = config
        self._layers = [_Layer(name, config.ratio) for name in layers]
        self.controller = Controller(self._layers, config)

    @property
    def ratios(self) -> dict[str, float]:
        """By layer the share of the images that it is to keep."""
        return {layer.name: layer.ratio for layer in self._layers}

    def due(self, done: int) -> bool:
        """Whether it is time to measure, after so many batches of the training."""
        return done % self.config.every == 0 and done >= self.config.repetitions

    @property
    def runs(self) -> int:
        """Of a measurement."""
        return self.config.repetitions * (1 + self.config.repetitions)

    def measure(self) -> Generator[tuple[int, dict[str, float]], Measured, None]:
        """A measurement, with the latest ``repetitions`` batches.

        Gives for each run the number of its batch among these, and its ratios; it is to be sent
        what that run has left. The ratios are new when it ends.
        """
        exact, sampled, norms = [], [], []
        whole = dict.fromkeys(self.ratios, 1.0)
        for number in range(self.config.repetitions):
            measured = yield number, whole
            exact.append(_tensors(measured.gradients))
            norms.append(_tensors(measured.norms))
            samples = []
            for _ in range(self.config.repetitions):
                measured = yield number, self.ratios
                samples.append(_tensors(measured.gradients))
            sampled.append(samples)
        self.controller.adjust(exact, sampled, norms, dict.fromkeys(whole, np.inf))


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}
