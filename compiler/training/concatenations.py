"""Concatenations of channels: where their parts lie, and what joins them where that is not enough.

Parts are written to their place in the joined map, and nothing is to be done for them. Where that
place is within a granule, they lie in a map with gaps, each from a granule on, and a product with
ones and zeros closes the gaps: a part begins with any lane then, which nothing else can do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.frontend.layer import Layer, readers
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.maps.elementwise import copy_channels
from compiler.tensors.intervals import Interval, round_up
from hw.config import AdaGPConfig

from .graph import StepGraph
from .named_tensors import NamedConvolution

__all__ = ["Concatenations"]

#: Kinds of layers whose map has no place of its own: it is what the layer before stored.
_SHARING = ("flatten", "input", "constant", "slice")


class Concatenations(StepGraph):
    """Methods as those of :class:`~compiler.training.map_steps.MapSteps`.

    Members
    -------
    layers : by name
    maps : layer -> name of the tensor that holds its map
    """

    def __init__(self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int) -> None:
        super().__init__(config, images=images)
        self.layers = {layer.name: layer for layer in layers}
        self.maps: dict[str, str] = {}
        self._readers = readers(layers)
        self._needs_gradient: frozenset[str] = frozenset()
        self._parts = self._joined(layers)

    def _joined(self, layers: Sequence[Layer]) -> dict[str, tuple[str, Interval]]:
        """Layers that write their map to its place as part of a concatenation -> its name, and
        their channels there. A map that two concatenations join lies in the last of them."""
        found: dict[str, tuple[str, Interval]] = {}
        for layer in reversed(layers):
            if layer.kind != "concatenate":
                continue
            for name, channels in zip(layer.inputs, self._places(layer), strict=True):
                if name not in found and self.layers[name].kind not in _SHARING:
                    found[name] = layer.name, channels
        return found

    def _places(self, layer: Layer) -> list[Interval]:
        """Channels (begin, end) of each part of a concatenation, where each begins with a granule:
        there are gaps between parts that are no whole granules."""
        unit, end = self._unit(self.config.operand_format), 0
        places = []
        for name in layer.inputs:
            begin = round_up(end, unit)
            end = begin + self.layers[name].shape[0]
            places.append((begin, end))
        return places

    def _has_gaps(self, layer: Layer) -> bool:
        return self._places(layer)[-1][1] > layer.shape[0]

    def _map(self, layer: Layer, name: str | None = None, **options: Any) -> str:
        if name is None and layer.name in self._parts:
            joined, channels = self._parts[layer.name]
            return self._slice(layer.name, self._side_by_side(self.layers[joined]), channels)
        return super()._map(layer, name, **options)

    def _side_by_side(self, layer: Layer) -> str:
        """The tensor with the parts of a concatenation, its map if there are no gaps; it exists
        from the first part on."""
        if not self._has_gaps(layer):
            return layer.name if layer.name in self.tensors else self._map(layer)
        name = f"{layer.name}.parts"
        return name if name in self.tensors else self._map(self._with_gaps(layer), name)

    def _with_gaps(self, layer: Layer) -> Layer:
        return replace(layer, shape=(self._places(layer)[-1][1], *layer.shape[1:]))

    def _closing(self, layer: Layer, x: str, y: str) -> NamedConvolution:
        """The product from the parts ``x`` to the joined map ``y``."""
        return self._taking(layer, x, y, f"{layer.name}.selection", self._places(layer))

    def _taking(
        self, layer: Layer, x: str, y: str, weights: str, channels: Sequence[Interval]
    ) -> NamedConvolution:
        """The product that takes ``channels`` of the map ``x`` for ``y``, one after the other; its
        ``weights`` are ones and zeros."""
        if weights not in self.tensors:
            taken = np.concatenate([np.arange(*own) for own in channels])
            ones = np.arange(self.tensors[x].shape[3])[:, np.newaxis] == taken
            self._constant(weights, ones[np.newaxis, np.newaxis])
        return NamedConvolution(name=layer.name, x=x, y=y, weights=weights, bias=None)

    def _forward_concatenate(self, layer: Layer, sources: list[str]) -> None:
        """Nothing is to be done for parts that have been written to their place."""
        whole = self._side_by_side(layer)
        there: set[str] = set()
        places = self._places(layer)
        for number, (name, source) in enumerate(zip(layer.inputs, sources, strict=True)):
            if self._parts.get(name) != (layer.name, places[number]) or name in there:
                part = self._slice(f"{layer.name}.part{number}", whole, places[number])
                self._add(layer.name, "forward", copy_channels, source, part, reads=[source],
                          writes=[part])  # fmt: skip
            there.add(name)
        self.maps[layer.name] = whole
        if self._has_gaps(layer):
            output = self.maps[layer.name] = self._map(layer)
            product = self._closing(layer, whole, output)
            self._add(layer.name, "forward", forward, product, reads=[whole, product.weights],
                      writes=[output])  # fmt: skip

    def _backward_concatenate(
        self, layer: Layer, dy: str, goals: list[str | None]
    ) -> list[str | None]:
        """Each part's gradient is some channels of that of the output."""
        if self._has_gaps(layer) and any(goals):
            product = self._closing(layer, self._side_by_side(layer), self.maps[layer.name])
            gaps = super()._map(self._with_gaps(layer), f"{layer.name}.parts.gradient")
            self._add(layer.name, "backward", input_gradient, product, dy, gaps,
                      reads=[dy, product.weights], writes=[gaps])  # fmt: skip
            dy = gaps
        return [
            goal and self._slice(goal, dy, place)
            for goal, place in zip(goals, self._places(layer), strict=True)
        ]
