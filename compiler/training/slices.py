"""Slices of channels: parts of a map that other layers read by themselves.

A slice of whole granules is some channels of the map that it is taken from, and nothing is to be
done for it; others are copied by a product with ones and zeros. Backward, a map that slices divide
among each other has its gradient in parts, which are written to their place. Else each slice makes
a gradient of the whole map, with zeros where it has no channels, and these are added up.
"""

from collections.abc import Sequence
from typing import Any

from compiler.frontend.layer import Layer
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.maps.elementwise import copy_channels
from compiler.tensors.intervals import Interval
from hw.config import AdaGPConfig

from .concatenations import Concatenations
from .named_tensors import NamedConvolution

__all__ = ["Slices"]


class Slices(Concatenations):
    """Methods as those of :class:`~compiler.training.map_steps.MapSteps`."""

    def __init__(self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int) -> None:
        super().__init__(layers, config, images=images)
        self._in_parts: set[str] = set()  # maps whose gradient has arrived so

    def _channels(self, layer: Layer) -> Interval:
        return layer.options["begin"], layer.options["end"]

    def _is_whole(self, layer: Layer) -> bool:
        """Whether a slice begins and ends with granules of the map that it is taken from."""
        unit, (begin, end) = self._unit(self.config.operand_format), self._channels(layer)
        return begin % unit == 0 and (end % unit == 0 or end == self._source(layer).shape[0])

    def _source(self, layer: Layer) -> Layer:
        return self.layers[layer.inputs[0]]

    def _is_divided(self, source: Layer) -> bool:
        """Whether slices of whole granules divide a map, and all of them have gradients."""
        parts = [self.layers[name] for name in self._readers[source.name]]
        if not all(
            part.kind == "slice" and self._is_whole(part) and part.name in self._needs_gradient
            for part in parts
        ):
            return False
        end = 0
        for begin, following in sorted(map(self._channels, parts)):
            if begin != end:
                return False
            end = following
        return end == source.shape[0]

    def _map(self, layer: Layer, name: str | None = None, **options: Any) -> str:
        gradient = layer.kind == "slice" and name == f"{layer.name}.gradient"
        if name and gradient and self._is_divided(self._source(layer)):
            return self._slice(name, self._divided_gradient(layer), self._channels(layer))
        return super()._map(layer, name, **options)

    def _divided_gradient(self, layer: Layer) -> str:
        """That of the map from which a slice is taken; it exists from the first part on."""
        source = self._source(layer)
        name = f"{source.name}.gradient"
        return name if name in self.tensors else self._map(source, name)

    def _cutting(self, layer: Layer, x: str, y: str) -> NamedConvolution:
        """The product from the map ``x`` to the slice ``y``; equal ones have weights in common."""
        begin, end = self._channels(layer)
        weights = f"channels {begin} to {end} of {self._source(layer).shape[0]}"
        return self._taking(layer, x, y, weights, [(begin, end)])

    def _forward_slice(self, layer: Layer, sources: list[str]) -> None:
        if self._is_whole(layer):
            self.maps[layer.name] = self._slice(layer.name, sources[0], self._channels(layer))
            return
        output = self.maps[layer.name] = self._map(layer)
        product = self._cutting(layer, sources[0], output)
        self._add(layer.name, "forward", forward, product, reads=[product.x, product.weights],
                  writes=[output])  # fmt: skip

    def _backward_slice(
        self, layer: Layer, dy: str, goals: list[str | None]
    ) -> list[str | None] | None:
        if not goals[0]:
            return None
        if not self._is_divided(self._source(layer)):
            product = self._cutting(layer, self.maps[layer.inputs[0]], self.maps[layer.name])
            super()._map(self._source(layer), goals[0])
            self._add(layer.name, "backward", input_gradient, product, dy, goals[0],
                      reads=[dy, product.weights], writes=[goals[0]])  # fmt: skip
            return None
        whole, channels = self._divided_gradient(layer), self._channels(layer)
        place = self._slice(f"{layer.name}.gradient in {whole}", whole, channels)
        if self.slices.get(dy) != self.slices[place]:  # it is that of another map, too
            self._add(layer.name, "backward", copy_channels, dy, place, reads=[dy], writes=[place])
        if whole in self._in_parts:
            return [None]  # it arrives once
        self._in_parts.add(whole)
        return [whole]
