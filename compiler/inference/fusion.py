"""Layers that one pass through the array and POST computes become one layer, a *fused product*.

It is a convolution or linear layer with the ReLU and the pooling layer behind it, as far as nobody
else reads what lies between them; flattening moves no data and belongs to it, too. Sums are rounded
to operands once, at its end. A ReLU joins in front of pooling and behind a maximum, not behind an
average; pooling joins once, without padding, in whole windows that the accumulators hold.

Without the vector engine a ReLU or such a pooling layer that can join nothing is led by an
*identity*, a 1 x 1 convolution with the identity matrix, which is exact for finite values.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler.codegen.convolution_walk import outputs_of
from compiler.errors import CompileError
from compiler.frontend.layer import Layer, readers
from hw.config import AdaGPConfig

from .fused_product import FusedProduct

__all__ = ["FUSED", "fuse"]

#: Kind of the layers that are made here; option ``product`` is their :class:`FusedProduct`.
FUSED = "fused"
#: Kinds that POST computes.
_JOINING = ("relu", "max_pool", "average_pool")
#: Kinds that need no vector engine, but a float format.
_WITHOUT_VECTOR = ("convolution", "embedding", "concatenate", "slice")
#: The largest step of a coordinate that MATMUL knows.
_MOST_STEP = 255


def fuse(layers: Sequence[Layer], config: AdaGPConfig) -> list[Layer]:
    """``layers`` of a network that is not trained, with those of a fused product in one, which has
    the name of the last one of them.

    Raises
    ------
    CompileError
        for a layer that needs the vector engine where there is none.
    """
    maps = {layer.name: layer for layer in layers}
    reading = readers(layers)
    window = min(core.accumulator_depth for core in config.cores)
    chains: dict[str, _Chain] = {}  # by the name of their last layer
    order: list[Layer | _Chain] = []
    for layer in layers:
        before = chains.get(layer.inputs[0]) if len(layer.inputs) == 1 else None
        alone = before and reading[before.last.name] == (layer.name,)
        chain = before if alone and before and before.joins(layer, window) else None
        if chain is None and _is_product(layer):
            chain = _Chain(layer, maps[layer.inputs[0]])
        elif chain is None and not config.has_training_engines and layer.kind in _JOINING:
            identity = _Chain(None, maps[layer.inputs[0]])
            chain = identity if identity.joins(layer, window) else None
        if chain is None:
            _require_engine(layer, config)
            order.append(layer)
            continue
        if chain is before:
            del chains[before.last.name]
        else:
            order.append(chain)
        chain.add(layer)
        chains[layer.name] = chain
    return [part.layer(config) if isinstance(part, _Chain) else part for part in order]


def _is_product(layer: Layer) -> bool:
    return layer.kind == "linear" or (layer.kind == "convolution" and layer.options["groups"] == 1)


def _require_engine(layer: Layer, config: AdaGPConfig) -> None:
    if config.has_training_engines or layer.kind in ("input", "flatten"):
        return
    if config.format.is_float and layer.kind in _WITHOUT_VECTOR:
        return
    raise CompileError(
        f"layer {layer.name} ({layer.kind}): it needs the vector engine, which the configuration "
        f"does not have: training is {config.training}, the format {config.operand_format}"
    )


class _Chain:
    """Layers of a fused product: a product, or None for an identity, and what has joined it."""

    def __init__(self, head: Layer | None, source: Layer) -> None:
        self.head, self.source = head, source
        self.layers: list[Layer] = []
        self.pool: Layer | None = None
        self.relu = False

    @property
    def last(self) -> Layer:
        return self.layers[-1]

    def joins(self, layer: Layer, window: int) -> bool:
        """Whether ``layer``, which alone reads what there is so far, can be computed with it."""
        if self.layers and self.last.output is not None:
            return False
        if layer.kind == "relu":
            return self.pool is None or self.pool.kind == "max_pool"
        if layer.kind in ("max_pool", "average_pool"):
            before = self.last if self.layers else self.source
            return self.pool is None and _is_plain(layer, before.shape[1:], window)
        return layer.kind == "flatten"

    def add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.relu |= layer.kind == "relu"
        if layer.kind in ("max_pool", "average_pool"):
            self.pool = layer

    def layer(self, config: AdaGPConfig) -> Layer:
        """All of them as one."""
        (inputs, height, width), head = self.source.shape, self.head
        input_map = kernel = height, width
        options: dict[str, Any] = {"conv_map": input_map, "outputs": inputs, "bias": False}
        if head is None:
            kernel = 1, 1
        if head is not None:
            module: Any = head.module
            options |= {"outputs": head.shape[0], "conv_map": head.shape[1:],
                        "bias": module.bias is not None}  # fmt: skip
            if head.kind == "convolution":
                options |= {key: head.options[key] for key in ("stride", "padding", "dilation")}
                # A linear layer on sequences is one of one pixel.
                kernel = module.kernel_size if module.weight.dim() > 2 else (1, 1)
                _require_steps(head)
        factor = np.float32(1)
        if self.pool is not None:
            options |= {f"pool_{key}": self.pool.options[key] for key in ("kernel", "stride")}
            average = self.pool.kind == "average_pool"
            options["pool"] = "sum" if average else "max"
            if average:
                factor = np.float32(1 / np.prod(options["pool_kernel"]))
        first = [] if head else ["identity"]
        product = FusedProduct(
            layers=(*first, *(f"{layer.name} {layer.kind}" for layer in self.layers)),
            inputs=inputs,
            input_map=input_map,
            kernel=kernel,
            relu=self.relu,
            scale=int(factor.view(np.uint32)),
            wide=self.last.output is not None,
            **options,
        )
        return replace(
            self.last,
            kind=FUSED,
            inputs=(self.source.name,),
            module=None if head is None else head.module,
            options={"product": product},
        )


def _is_plain(layer: Layer, size: Sequence[int], window: int) -> bool:
    """Whether POST can do a pooling layer."""
    kernel, stride = layer.options["kernel"], layer.options["stride"]
    whole = tuple(outputs_of(size[i], kernel[i], stride[i]) for i in (0, 1))
    return (
        layer.options["padding"] == (0, 0)
        and layer.options.get("divisor") is None
        and layer.shape[1:] == whole
        and kernel[0] * kernel[1] <= window
    )


def _require_steps(layer: Layer) -> None:
    stride, dilation = layer.options["stride"], layer.options["dilation"]
    if max(*stride, *dilation) > _MOST_STEP:
        raise CompileError(
            f"layer {layer.name} (convolution): stride and dilation must be at most {_MOST_STEP}, "
            f"not {stride} and {dilation}"
        )
