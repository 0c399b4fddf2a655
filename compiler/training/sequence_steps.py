"""Steps of layers of sequences."""

from abc import ABC, abstractmethod
from typing import Any, cast

from compiler.frontend.layer import Layer
from compiler.kernels.normalization.layer_norm import layer_norm, layer_norm_input_gradient
from compiler.kernels.normalization.layer_norm_parameters import layer_norm_parameter_gradients
from compiler.kernels.updates.scalars import lanes
from compiler.tensors.parameters import channel_pitch

from .map_steps import MapSteps

__all__ = ["SequenceSteps"]


class SequenceSteps(MapSteps, ABC):
    """Normalisation over channels; as :class:`~compiler.training.map_steps.MapSteps`."""

    @abstractmethod
    def _gradients(self, layer: Layer) -> list[str | None]:
        """Names of the gradients of weight and bias; None for what is frozen or missing."""

    @abstractmethod
    def _updates(self, layer: Layer) -> None:
        """Add the steps that update a layer's parameters."""

    def _forward_layer_norm(self, layer: Layer, sources: list[str]) -> None:
        output = self.maps[layer.name] = self._map(layer)
        size = lanes(self.config)
        shape = (self.images, *layer.shape[1:], size)
        numbers = [
            self._tensor(f"{layer.name}.{name}", shape, kind="float32",
                         pitch=channel_pitch(size, self.config))
            for name in ("mean", "inverse")
        ]  # fmt: skip
        parameters = [f"{layer.name}.weight", f"{layer.name}.bias"]
        self._add(
            layer.name, "forward", layer_norm, sources[0], output, *parameters, *numbers,
            reads=[sources[0], *parameters], writes=[output, *numbers],
            epsilon=cast(Any, layer.module).eps,
        )  # fmt: skip

    def _backward_layer_norm(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        x, numbers = self.maps[layer.inputs[0]], [f"{layer.name}.{n}" for n in ("mean", "inverse")]
        goal, gamma = self._gradient_map(layer, goals[0]), f"{layer.name}.weight"
        if goal:
            self._add(
                layer.name, "input gradient", layer_norm_input_gradient, x, dy, goal, gamma,
                *numbers, reads=[x, dy, gamma, *numbers], writes=[goal],
            )  # fmt: skip
        gradients = self._gradients(layer)
        if any(gradients):
            self._add(
                layer.name, "weight gradient", layer_norm_parameter_gradients, x, dy, *numbers,
                *gradients, reads=[x, dy, *numbers], writes=gradients,
            )  # fmt: skip
        self._updates(layer)
