"""One layer of a traced network, and who depends on whom."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from compiler.errors import CompileError

__all__ = [
    "LEARNING",
    "Layer",
    "backward_order",
    "learning",
    "outputs",
    "readers",
    "require_trainable",
]

#: Kinds with parameters.
LEARNING = (
    "convolution", "depthwise", "linear", "transposed", "batch_norm", "fixed_norm", "layer_norm",
    "group_norm", "embedding",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, which stores one map.

    Members
    -------
    name : unique; torch's path of the module where there is one
    kind : of the table in docs/operators.md, or "input"
    inputs : names of the layers it reads
    shape : (C, H, W) of the stored map; what torch sees flattened keeps its map
    flat : torch sees vectors
    sequence : torch sees (N, T, C); the map has a pixel in a row of its own for each of T vectors
    module : the torch module that holds its parameters, or None
    trainable : those of :attr:`parameters` that required a gradient when the network was traced
    constants : numbers that a parameter has, by its short name, where torch's module has none
    options : what the kind has, pairs being (vertical, horizontal): stride, padding, dilation,
        kernel, groups, ...
    output : its number among the outputs of the network, None for a layer that others read
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    flat: bool = False
    sequence: bool = False
    module: nn.Module | None = None
    trainable: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    output: int | None = None

    @property
    def channel_dims(self) -> tuple[int, int]:
        """The axis of the channels where torch sees it, counted from either side."""
        return (2, -1) if self.sequence else (1, -1) if self.flat else (1, -3)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as in torch's ``state_dict``."""
        if self.module is None:
            return ()
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters())


def outputs(layers: Iterable[Layer]) -> list[Layer]:
    """The outputs of a network, in the order in which its ``forward`` returns them."""
    found = {layer.output: layer for layer in layers if layer.output is not None}
    return [found[number] for number in sorted(found)]


def learning(layers: Iterable[Layer]) -> frozenset[str]:
    """Names of the layers whose output depends on a trainable parameter."""
    found: set[str] = set()
    for layer in layers:
        if layer.trainable or found & set(layer.inputs):
            found.add(layer.name)
    return frozenset(found)


def require_trainable(layers: Sequence[Layer]) -> None:
    """Raise a :class:`CompileError` unless every output depends on a trainable parameter."""
    depends = learning(layers)
    for layer in outputs(layers):
        if layer.name in depends:
            continue
        names = [name for layer in layers for name in layer.parameters]
        raise CompileError(
            f"the network has nothing to train: its output {layer.name} must depend on a "
            f"parameter with requires_grad; its parameters are {', '.join(names) or 'none'}"
        )


def readers(layers: Iterable[Layer]) -> dict[str, tuple[str, ...]]:
    """For every layer the names of the layers that read its map, in order of execution.

    A layer that reads a map twice (``x + x``) is there twice. Backward, the gradients of a map
    arrive in the opposite order.
    """
    found: dict[str, list[str]] = {layer.name: [] for layer in layers}
    for layer in layers:
        for name in layer.inputs:
            found[name].append(layer.name)
    return {name: tuple(names) for name, names in found.items()}


def backward_order(layers: Sequence[Layer]) -> tuple[str, ...]:
    """Names of the layers whose output needs a gradient, the last layer first.

    These are the layers that depend on a trainable parameter and that an output depends on, and
    always the outputs themselves.
    """
    depends, order = learning(layers), []
    wanted = {layer.name for layer in outputs(layers)}
    for layer in reversed(layers):
        if layer.name in wanted:
            order.append(layer.name)
            wanted |= depends & set(layer.inputs)
    return tuple(order)
