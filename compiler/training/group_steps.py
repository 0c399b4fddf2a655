"""Steps of normalisation over groups of channels."""

from typing import Any, cast

import numpy as np

from compiler.frontend.layer import Layer
from compiler.kernels.normalization.group_norm import group_norm, group_norm_backward
from compiler.tensors.parameters import channel_pitch

from .sequence_steps import SequenceSteps

__all__ = ["GroupSteps"]


class GroupSteps(SequenceSteps):
    """Methods as those of :class:`~compiler.training.map_steps.MapSteps`."""

    def _numbers(self, name: str, channels: int, images: int = 1) -> str:
        """A float32 number for each channel."""
        pitch = channel_pitch(channels, self.config)
        return self._tensor(name, (images, 1, 1, channels), kind="float32", pitch=pitch)

    def _group_sums(self, layer: Layer, direction: str) -> tuple[list[str], list[str], float]:
        """Names of the ones, and of room for parts of numbers and for sums; the share of a number
        in the mean of its group."""
        channels, height, width = layer.shape
        groups, pitch = layer.options["groups"], channel_pitch(channels, self.config)
        ones = f"groups of {channels // groups} in {channels}"
        if ones not in self.tensors:
            member = np.arange(channels) // (channels // groups)
            values = np.equal.outer(member, member).astype(float)
            self._constant(ones, np.broadcast_to(values, (2, 1, channels, channels)))
        start = f"{layer.name}.{direction}"
        parts = self._tensor(f"{start} parts", (1, 2, 1, channels), pitch=pitch)
        total = self._numbers(f"{start} total", channels)
        return [ones], [parts, total], groups / (channels * height * width)

    def _saved(self, layer: Layer) -> list[str]:
        return [f"{layer.name}.{name}" for name in ("mean", "inverse", "a")]

    def _forward_group_norm(self, layer: Layer, sources: list[str]) -> None:
        channels = layer.shape[0]
        output = self.maps[layer.name] = self._map(layer)
        saved = [self._numbers(name, channels, self.images) for name in self._saved(layer)]
        room = [self._numbers(f"{layer.name}.{name}", channels) for name in ("sums", "b")]
        ones, parts, share = self._group_sums(layer, "forward")
        parameters = [self._role(f"{layer.name}.{name}", "master") for name in ("weight", "bias")]
        self._add(
            layer.name, "forward", group_norm, sources[0], output, *parameters, *saved, *room,
            *ones, *parts, reads=[sources[0], *parameters, *ones],
            writes=[output, *saved, *room, *parts], share=share,
            epsilon=cast(Any, layer.module).eps,
        )  # fmt: skip

    def _backward_group_norm(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        x, saved, channels = self.maps[layer.inputs[0]], self._saved(layer), layer.shape[0]
        gradients, goal = self._gradients(layer), self._gradient_map(layer, goals[0])
        gamma = self._role(f"{layer.name}.weight", "master")
        names = ("scale", "shift", "c1", "negative c0")
        room = [self._numbers(f"{layer.name}.{name}", channels) for name in names]
        ones, parts, share = self._group_sums(layer, "backward")
        self._add(
            layer.name, "backward", group_norm_backward, x, dy, goal, *gradients, gamma, *saved,
            *room, *ones, *parts, reads=[x, dy, gamma, *saved, *ones],
            writes=[goal, *gradients, *room, *parts], share=share,
        )  # fmt: skip
        self._updates(layer)
