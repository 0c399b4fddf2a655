"""Steps of transposed convolutions: those of a convolution the other way round.

The convolution goes from the output map to the input map; its weights have the shape of torch's.
"""

from compiler.frontend.layer import Layer
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.maps.elementwise import add_vector
from compiler.kernels.normalization.batch_norm_backward import batch_norm_backward
from compiler.tensors.parameters import channel_pitch

from .named_tensors import NamedConvolution
from .parameter_steps import ParameterSteps

__all__ = ["TransposedSteps"]


class TransposedSteps(ParameterSteps):
    """What a transposed convolution does forward and backward."""

    def _reverse(self, layer: Layer, x: str, y: str) -> NamedConvolution:
        """The convolution from ``x``, like the layer's output, to ``y``, like its input."""
        weights = self.parameters[f"{layer.name}.weight"].tensors["operands"].name
        return NamedConvolution(
            name=layer.name, x=x, y=y, weights=weights, bias=None, **layer.options
        )

    def _forward_transposed(self, layer: Layer, sources: list[str]) -> None:
        """The input gradient of the convolution, and the bias in a pass of its own."""
        output = self.maps[layer.name] = self._map(layer, **self._precision(layer))
        bias = self._role(f"{layer.name}.bias", "master")
        sums = output
        if bias:
            pitch = channel_pitch(layer.shape[0], self.config)
            sums = self._map(layer, f"{layer.name}.sums", kind="float32", pitch=pitch)
        product = self._reverse(layer, output, sources[0])
        self._add(layer.name, "forward", input_gradient, product, sources[0], sums,
                   reads=[sources[0], product.weights], writes=[sums])  # fmt: skip
        if bias:
            self._add(layer.name, "forward", add_vector, sums, bias, output, reads=[sums, bias],
                       writes=[output])  # fmt: skip

    def _backward_transposed(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        """The forward pass of the convolution, and its weight gradient with the maps exchanged."""
        x, (weight, bias) = self.maps[layer.inputs[0]], self._gradients(layer)
        goal = self._gradient_map(layer, goals[0])
        if goal:
            product = self._reverse(layer, dy, goal)
            self._add(layer.name, "input gradient", forward, product, reads=[dy, product.weights],
                       writes=[goal])  # fmt: skip
        if weight:
            product = self._reverse(layer, dy, x)
            self._add(layer.name, "weight gradient", weight_gradient, product, x, weight,
                       reads=[x, dy], writes=[weight])  # fmt: skip
        if bias:
            self._add(layer.name, "weight gradient", batch_norm_backward, dy, dy, None, None, None,
                       None, None, bias, reads=[dy], writes=[bias])  # fmt: skip
        self._updates(layer)
