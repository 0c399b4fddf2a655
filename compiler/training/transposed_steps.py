"""Steps of transposed convolutions: those of a convolution the other way round.

The convolution goes from the output map to the input map; its weights have the shape of torch's.
"""

from typing import TYPE_CHECKING

from compiler.frontend.layer import Layer
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.maps.elementwise import add_vector
from compiler.kernels.normalization.batch_norm import batch_norm_backward
from compiler.tensors.parameters import channel_pitch

from .named_tensors import NamedConvolution

if TYPE_CHECKING:
    from .steps import TrainingSteps

__all__ = ["transposed_backward", "transposed_forward"]


def _reverse(steps: "TrainingSteps", layer: Layer, x: str, y: str) -> NamedConvolution:
    """The convolution from ``x``, like the layer's output, to ``y``, like its input."""
    weights = steps.parameters[f"{layer.name}.weight"].tensors["operands"].name
    return NamedConvolution(name=layer.name, x=x, y=y, weights=weights, bias=None, **layer.options)


def transposed_forward(steps: "TrainingSteps", layer: Layer, sources: list[str]) -> None:
    """The input gradient of the convolution, and the bias in a pass of its own."""
    output = steps.maps[layer.name] = steps._map(layer, **steps._precision(layer))
    bias = steps._role(f"{layer.name}.bias", "master")
    sums = output
    if bias:
        pitch = channel_pitch(layer.shape[0], steps.config)
        sums = steps._map(layer, f"{layer.name}.sums", kind="float32", pitch=pitch)
    product = _reverse(steps, layer, output, sources[0])
    steps._add(layer.name, "forward", input_gradient, product, sources[0], sums,
               reads=[sources[0], product.weights], writes=[sums])  # fmt: skip
    if bias:
        steps._add(layer.name, "forward", add_vector, sums, bias, output, reads=[sums, bias],
                   writes=[output])  # fmt: skip


def transposed_backward(
    steps: "TrainingSteps", layer: Layer, dy: str, goals: list[str | None]
) -> None:
    """The forward pass of the convolution, and its weight gradient with the maps exchanged."""
    x, (weight, bias) = steps.maps[layer.inputs[0]], steps._gradients(layer)
    goal = steps._gradient_map(layer, goals[0])
    if goal:
        product = _reverse(steps, layer, dy, goal)
        steps._add(layer.name, "input gradient", forward, product, reads=[dy, product.weights],
                   writes=[goal])  # fmt: skip
    if weight:
        product = _reverse(steps, layer, dy, x)
        steps._add(layer.name, "weight gradient", weight_gradient, product, x, weight,
                   reads=[x, dy], writes=[weight])  # fmt: skip
    if bias:
        steps._add(layer.name, "weight gradient", batch_norm_backward, dy, dy, None, None, None,
                   None, None, bias, reads=[dy], writes=[bias])  # fmt: skip
    steps._updates(layer)
