"""Normalisation that is folded into the product before it."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from compiler.frontend.layer import Layer
from compiler.frontend.torch_graph import readers

__all__ = ["fold"]

_PRODUCTS = ("convolution", "depthwise", "linear")


def fold(layers: Sequence[Layer]) -> list[Layer]:
    """``layers`` of a network that is not trained: a normalisation by running statistics behind a
    product that nobody else reads becomes part of that product.

    With a = gamma / sqrt(variance + epsilon), weights are W * a and biases
    (b - mean) * a + beta, computed in float64 and rounded to float32 once.
    """
    found: dict[str, Layer] = {}
    merged: dict[str, str] = {}  # normalisation -> product
    reading = readers(layers)
    for layer in layers:
        inputs = tuple(merged.get(name, name) for name in layer.inputs)
        product = found[inputs[0]] if layer.kind == "fixed_norm" else None
        if product is None or not _folds(product, layer, reading[product.name]):
            found[layer.name] = replace(layer, inputs=inputs, trainable=())
            continue
        merged[layer.name] = product.name
        module = _with_norm(product.module, layer.module)
        found[product.name] = replace(product, module=module, output=layer.output)
    return list(found.values())


def _folds(product: Layer, norm: Layer, reading: Sequence[str]) -> bool:
    return product.kind in _PRODUCTS and product.output is None and list(reading) == [norm.name]


def _with_norm(product: Any, norm: Any) -> nn.Module:
    """A copy of the module of a product that does what a normalisation behind it does, too."""
    with torch.no_grad():
        mean, variance, gamma, beta = (
            getattr(norm, name).double()
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        a = gamma / torch.sqrt(variance + norm.eps)
        weight = product.weight.double()
        old = torch.zeros_like(mean) if product.bias is None else product.bias.double()
        bias = (old - mean) * a + beta
        weight = weight * a.reshape(-1, *[1] * (weight.dim() - 1))
        result: nn.Module = copy.deepcopy(product)
        for name, values in (("weight", weight), ("bias", bias)):
            setattr(result, name, nn.Parameter(values.float(), requires_grad=False))
    return result
