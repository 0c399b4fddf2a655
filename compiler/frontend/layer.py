"""One layer of a traced network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

__all__ = ["LEARNING", "Layer"]

#: Kinds with parameters.
LEARNING = (
    "convolution", "depthwise", "linear", "transposed", "batch_norm", "fixed_norm",
    "layer_norm", "embedding",
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
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as in torch's ``state_dict``."""
        if self.module is None:
            return ()
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters())
