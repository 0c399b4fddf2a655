"""Steps of layers without parameters."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from compiler.frontend.layer import Layer
from compiler.kernels.maps.activations import (
    clamp,
    clamp_backward,
    hardsigmoid,
    hardsigmoid_backward,
    hardswish,
    hardswish_backward,
    leaky_relu,
    leaky_relu_backward,
)
from compiler.kernels.maps.dropout import dropout
from compiler.kernels.maps.elementwise import (
    add,
    add_scaled,
    affine,
    multiply,
    relu,
    relu_backward,
)
from compiler.kernels.maps.pooling import (
    average_pool,
    average_pool_backward,
    max_pool,
    max_pool_backward,
    upsample,
)
from compiler.kernels.maps.smooth import gelu, sigmoid, silu, softplus, tanh
from hw.config import AdaGPConfig

from .slices import Slices

__all__ = ["MapSteps", "window_options"]


class MapSteps(Slices):
    """Layers without parameters.

    ``_forward_<kind>(layer, sources)`` adds the steps of a layer and notes its map;
    ``_backward_<kind>(layer, dy, goals)`` those of its gradients, from the tensor ``dy`` to the
    ``goals``, a name for each of its inputs, or None for those that need no gradient. Either it
    writes tensors of these names, or it returns others in their place.

    Members
    -------
    layers : by name
    maps : layer -> name of the tensor that holds its map
    """

    def __init__(self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int) -> None:
        super().__init__(layers, config, images=images)
        self._fused: dict[str, str] = {}  # ReLU -> the layer that computes it, too

    def _output(self, layer: Layer, **options: Any) -> tuple[str, bool]:
        """The tensor that a layer writes: its map, or that of a ReLU that alone reads it."""
        if (follower := self._relu_behind(layer.name)) is not None:
            self._fused[follower] = layer.name
            layer = replace(layer, name=follower)
        return self._map(layer, **options), layer.name in self._fused

    def _relu_behind(self, name: str) -> str | None:
        """The ReLU that alone reads a map, or None."""
        readers = self._readers[name]
        return readers[0] if len(readers) == 1 and self.layers[readers[0]].kind == "relu" else None

    # Forward ---------------------------------------------------------------------------------

    def _simple(
        self, layer: Layer, sources: list[str], function: Callable[..., object], *more: str,
        **options: Any,
    ) -> None:  # fmt: skip
        output = self.maps[layer.name] = self._map(layer)
        self._add(layer.name, "forward", function, *sources, output, *more, reads=sources,
                  writes=[output, *more], **options)  # fmt: skip

    def _forward_flatten(self, layer: Layer, sources: list[str]) -> None:
        self.maps[layer.name] = sources[0]

    def _forward_relu(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, relu)

    def _forward_clamp(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, clamp, **layer.options)

    def _forward_leaky_relu(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, leaky_relu, **layer.options)

    def _forward_hardsigmoid(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, hardsigmoid)

    def _forward_hardswish(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, hardswish)

    def _forward_dropout(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, dropout, **layer.options)

    def _forward_sigmoid(self, layer: Layer, sources: list[str]) -> None:
        self._smooth(layer, sources, sigmoid)

    def _forward_tanh(self, layer: Layer, sources: list[str]) -> None:
        self._smooth(layer, sources, tanh)

    def _forward_silu(self, layer: Layer, sources: list[str]) -> None:
        self._smooth(layer, sources, silu)

    def _forward_gelu(self, layer: Layer, sources: list[str]) -> None:
        self._smooth(layer, sources, gelu)

    def _forward_softplus(self, layer: Layer, sources: list[str]) -> None:
        self._smooth(layer, sources, softplus)

    def _smooth(self, layer: Layer, sources: list[str], function: Callable[..., object]) -> None:
        """Backward needs no more than the derivative, so it is stored with the map."""
        backward = layer.name in self._needs_gradient
        slope = [self._map(layer, f"{layer.name}.slope")] if backward else []
        self._simple(layer, sources, function, *slope, **layer.options)

    def _forward_add(self, layer: Layer, sources: list[str]) -> None:
        output, relu = self._output(layer)
        self.maps[layer.name] = output
        function = add_scaled if layer.options else add
        self._add(layer.name, "forward", function, *sources, output, reads=sources,
                  writes=[output], relu=relu, **layer.options)  # fmt: skip

    def _forward_multiply(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, multiply)

    def _forward_affine(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, affine, **layer.options)

    def _forward_upsample(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, upsample, **layer.options)

    def _forward_average_pool(self, layer: Layer, sources: list[str]) -> None:
        self._simple(layer, sources, average_pool, **window_options(layer))

    def _forward_max_pool(self, layer: Layer, sources: list[str]) -> None:
        backward = layer.name in self._needs_gradient
        places = [self._map(layer, f"{layer.name}.places")] if backward else []
        self._simple(layer, sources, max_pool, *places, **window_options(layer))

    # Backward --------------------------------------------------------------------------------

    def _gradient_map(self, layer: Layer, goal: str | None, number: int = 0) -> str | None:
        """Room for the gradient of the input ``number``."""
        if goal:
            super()._map(self.layers[layer.inputs[number]], goal)
        return goal

    def _passed_on(self, layer: Layer, dy: str, goals: list[str | None]) -> list[str | None]:
        """The gradient of the output is that of the inputs."""
        return [dy if goal else None for goal in goals]

    _backward_flatten = _passed_on

    def _backward_add(self, layer: Layer, dy: str, goals: list[str | None]) -> list[str | None]:
        goals, scale = list(goals), layer.options.get("scale", 1.0)
        return [goals[0] and dy, self._scaled(layer, dy, goals[1], scale, 1)]

    def _backward_affine(self, layer: Layer, dy: str, goals: list[str | None]) -> list[str | None]:
        return [self._scaled(layer, dy, goals[0], layer.options["factor"], 0)]

    def _scaled(
        self, layer: Layer, dy: str, goal: str | None, factor: float, number: int
    ) -> str | None:
        """The gradient of the input ``number`` is that of the output times a factor."""
        if not goal or factor == 1.0:
            return goal and dy
        self._gradient_map(layer, goal, number)
        self._add(layer.name, "backward", affine, dy, goal, reads=[dy], writes=[goal],
                  factor=factor)  # fmt: skip
        return goal

    def _backward_multiply(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        others = [self.maps[name] for name in reversed(layer.inputs)]
        for number, (goal, other) in enumerate(zip(goals, others, strict=True)):
            if self._gradient_map(layer, goal, number):
                self._add(layer.name, "backward", multiply, dy, other, goal, reads=[dy, other],
                          writes=[goal])  # fmt: skip

    def _simple_backward(
        self, layer: Layer, goals: list[str | None], function: Callable[..., object], *reads: str,
        **options: Any,
    ) -> None:  # fmt: skip
        """The gradient of a layer's only input."""
        goal = self._gradient_map(layer, goals[0])
        if goal:
            self._add(layer.name, "backward", function, *reads, goal, reads=reads, writes=[goal],
                      **options)  # fmt: skip

    def _backward_relu(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._simple_backward(layer, goals, relu_backward, dy, self.maps[layer.name])

    def _backward_clamp(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        y = self.maps[layer.name]
        self._simple_backward(layer, goals, clamp_backward, dy, y, **layer.options)

    def _backward_leaky_relu(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        y = self.maps[layer.name]
        self._simple_backward(layer, goals, leaky_relu_backward, dy, y, **layer.options)

    def _backward_hardsigmoid(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._simple_backward(layer, goals, hardsigmoid_backward, dy, self.maps[layer.inputs[0]])

    def _backward_hardswish(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._simple_backward(layer, goals, hardswish_backward, dy, self.maps[layer.inputs[0]])

    def _backward_dropout(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        """The same elements are kept: their random numbers are computed again."""
        self._simple_backward(layer, goals, dropout, dy, **layer.options)

    def _backward_sigmoid(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._simple_backward(layer, goals, multiply, dy, f"{layer.name}.slope")

    _backward_tanh = _backward_silu = _backward_gelu = _backward_softplus = _backward_sigmoid

    def _backward_upsample(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        """The sum of the windows, which share no pixel."""
        factor = layer.options["factor"]
        self._simple_backward(layer, goals, average_pool, dy, kernel=factor, stride=factor,
                              divisor=1)  # fmt: skip

    def _backward_max_pool(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        places = f"{layer.name}.places"
        self._simple_backward(layer, goals, max_pool_backward, dy, places, **window_options(layer))

    def _backward_average_pool(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._simple_backward(layer, goals, average_pool_backward, dy, **window_options(layer))


def window_options(layer: Layer) -> dict[str, Any]:
    """Options of a pooling layer; its outputs say by themselves how many windows there are."""
    return {key: value for key, value in layer.options.items() if key != "ceil_mode"}
