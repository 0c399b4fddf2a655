"""Steps of layers of sequences."""

from typing import Any, cast

import numpy as np

from compiler.errors import CompileError
from compiler.frontend.layer import Layer
from compiler.kernels.attention.products import over_channels, over_keys, over_queries
from compiler.kernels.attention.softmax import softmax, softmax_backward
from compiler.kernels.maps.dropout import dropout
from compiler.kernels.normalization.layer_norm import layer_norm, layer_norm_input_gradient
from compiler.kernels.normalization.layer_norm_parameters import layer_norm_parameter_gradients
from compiler.kernels.updates.scalars import lanes
from compiler.tensors.parameters import channel_pitch

from .transposed_steps import TransposedSteps

__all__ = ["SequenceSteps"]


class SequenceSteps(TransposedSteps):
    """Normalisation over channels, softmax, and attention; methods as those of
    :class:`~compiler.training.map_steps.MapSteps`."""

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

    def _table(self, layer: Layer, name: str, **options: Any) -> str:
        """A map for each sentence and head, with the keys as pixels and the queries as channels; of
        a softmax for each image, with its channels as pixels."""
        if layer.kind == "softmax":
            keys, height, width = layer.shape
            shape = (self.images, keys, 1, height * width)
        else:
            queries, keys = (self.layers[part].shape[1] for part in layer.inputs[:2])
            shape = (self.images * layer.options["heads"], keys, 1, queries)
        pitch = channel_pitch(shape[3], self.config)
        return self._tensor(f"{layer.name}.{name}", shape, pitch=pitch, **options)

    def _identity(self, size: int) -> str:
        """A vector for each channel, 1 there and +0 elsewhere."""
        name = f"identity of {size}"
        if name not in self.tensors:
            self._constant(name, np.eye(size)[np.newaxis, :, np.newaxis])
        return name

    def _forward_softmax(self, layer: Layer, sources: list[str]) -> None:
        """Attention of the pixels to the channels: products with an identity exchange both."""
        output, identity = self._map(layer), self._identity(layer.shape[0])
        self.maps[layer.name] = output
        scores = self._table(layer, "scores", kind="float32")
        shares = self._table(layer, "shares")
        self._add(layer.name, "forward", over_channels, identity, sources[0], scores, heads=1,
                  scale=1.0, reads=[identity, sources[0]], writes=[scores])  # fmt: skip
        self._add(layer.name, "forward", softmax, scores, shares, reads=[scores], writes=[shares])
        self._add(layer.name, "forward", over_keys, shares, identity, output, heads=1,
                  reads=[shares, identity], writes=[output])  # fmt: skip

    def _backward_softmax(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        goal = self._gradient_map(layer, goals[0])
        if not goal:
            return
        identity, shares = self._identity(layer.shape[0]), f"{layer.name}.shares"
        gradient = self._table(layer, "shares.gradient", kind="float32")
        scores = self._table(layer, "scores.gradient")
        self._add(layer.name, "backward", over_channels, identity, dy, gradient, heads=1,
                  scale=1.0, reads=[identity, dy], writes=[gradient])  # fmt: skip
        self._add(layer.name, "backward", softmax_backward, shares, gradient, scores,
                  reads=[shares, gradient], writes=[scores])  # fmt: skip
        self._add(layer.name, "backward", over_keys, scores, identity, goal, heads=1,
                  reads=[scores, identity], writes=[goal])  # fmt: skip

    def _forward_attention(self, layer: Layer, sources: list[str]) -> None:
        heads, unit = layer.options["heads"], self._unit(self.config.operand_format)
        for name in layer.inputs:
            channels = self.layers[name].shape[0]
            if heads > 1 and channels // heads % unit:
                raise CompileError(
                    f"layer {layer.name}: each of {heads} heads has {channels // heads} channels "
                    f"of {name}; it must be a multiple of {unit}, which is what "
                    f"{self.config.granule_bytes} bytes of memory hold"
                )
        query, key, value = sources
        output = self.maps[layer.name] = self._map(layer)
        scores = self._table(layer, "scores", kind="float32")
        shares = self._table(layer, "shares")
        options = {"heads": heads, "scale": layer.options["scale"]}
        self._add(layer.name, "forward", over_channels, key, query, scores, reads=[key, query],
                  writes=[scores], **options)  # fmt: skip
        masked = layer.options["causal"] or "mask" in layer.options
        named = {"mask": self._mask(layer)} if masked else {}
        self._add(layer.name, "forward", softmax, scores, shares, writes=[shares],
                  reads=[scores, *named.values()], named=named)  # fmt: skip
        if "p" in layer.options:
            dropped = self._table(layer, "dropped")
            self._add(layer.name, "forward", dropout, shares, dropped, reads=[shares],
                      writes=[dropped], **self._dropping(layer))  # fmt: skip
            shares = dropped
        self._add(layer.name, "forward", over_keys, shares, value, output, reads=[shares, value],
                  writes=[output], heads=heads)  # fmt: skip

    def _dropping(self, layer: Layer) -> dict[str, Any]:
        """Options of the dropout of an attention's shares."""
        return {"p": layer.options["p"], "whole": False, "stream": layer.options["stream"]}

    def _mask(self, layer: Layer) -> str:
        """What is added to the scores: minus infinity for keys behind the query, +0 elsewhere, or
        what the network has for it."""
        queries, keys = (self.layers[part].shape[1] for part in layer.inputs[:2])
        if "mask" in layer.options:
            values = np.array(layer.options["mask"]).T[np.newaxis, :, np.newaxis]
            pitch = channel_pitch(queries, self.config)
            return self._constant(f"{layer.name}.mask", values, pitch=pitch)
        name = f"causal mask of {queries} and {keys}"
        if name not in self.tensors:
            behind = np.arange(keys)[:, np.newaxis] > np.arange(queries)
            values = np.where(behind, -np.inf, 0.0)[np.newaxis, :, np.newaxis]
            self._constant(name, values, pitch=channel_pitch(queries, self.config))
        return name

    def _backward_attention(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        query, key, value = (self.maps[name] for name in layer.inputs)
        shares, heads = f"{layer.name}.shares", layer.options["heads"]
        dropped = f"{layer.name}.dropped" if "p" in layer.options else shares
        goals = [self._gradient_map(layer, goal, number) for number, goal in enumerate(goals)]

        def add(function: Any, *names: str, **options: Any) -> None:
            *reads, written = names
            self._add(layer.name, "backward", function, *names, reads=reads, writes=[written],
                      **options)  # fmt: skip

        if goals[2]:
            add(over_queries, dropped, dy, goals[2], heads=heads)
        if not (goals[0] or goals[1]):
            return
        gradient = self._table(layer, "shares.gradient", kind="float32")
        scores = self._table(layer, "scores.gradient")
        add(over_channels, value, dy, gradient, heads=heads, scale=layer.options["scale"])
        if dropped != shares:
            thinned = self._table(layer, "dropped.gradient", kind="float32")
            add(dropout, gradient, thinned, **self._dropping(layer))
            gradient = thinned
        add(softmax_backward, shares, gradient, scores)
        if goals[0]:
            add(over_keys, scores, key, goals[0], heads=heads)
        if goals[1]:
            add(over_queries, scores, query, goals[1], heads=heads)
