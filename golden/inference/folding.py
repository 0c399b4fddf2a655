"""Normalisation that is folded into the product before it."""

import copy
from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from golden.frontend.torch_graph import Node

__all__ = ["fold"]

#: Kinds of products whose weights have the output channels outermost.
_FOLDING = ("convolution", "depthwise", "linear")


def fold(nodes) -> list[Node]:
    """``nodes`` without those normalisations whose input is a product that only they read.

    The product has weights W * a and a bias (b - mean) * a + beta in their place, with
    a = gamma / sqrt(variance + epsilon): computed in float64 and rounded to float32 once. No
    parameter is trainable any more.
    """
    readers = Counter(name for node in nodes for name in node.inputs)
    found: dict[str, Node] = {}
    names: dict[str, str] = {}  # of a folded normalisation -> of its product
    for node in nodes:
        inputs = tuple(names.get(name, name) for name in node.inputs)
        if node.kind != "fixed_norm" or not _folds(found[inputs[0]], node, readers):
            found[node.name] = replace(node, inputs=inputs, trainable=())
            continue
        product = found[inputs[0]]
        names[node.name] = product.name
        module = _folded(product.module, node.module)
        found[product.name] = replace(product, module=module, output=node.output)
    return list(found.values())


def _folds(product, norm, readers):
    """Whether ``norm`` alone reads a product, which has no other normalisation in it yet."""
    alone = norm.inputs == (product.name,) and readers[product.name] == 1
    return alone and product.kind in _FOLDING and product.output is None


def _folded(product, norm):
    """A copy of the module ``product`` with those numbers."""

    def numbers(values, default):
        if values is None:
            return np.full(norm.num_features, default)
        return values.detach().double().numpy()

    gamma, beta = numbers(norm.weight, 1.0), numbers(norm.bias, 0.0)
    mean, variance = numbers(norm.running_mean, 0.0), numbers(norm.running_var, 1.0)
    a = gamma / np.sqrt(variance + norm.eps)
    weight = product.weight.detach().double().numpy()
    bias = (numbers(product.bias, 0.0) - mean) * a + beta
    weight = weight * a.reshape(-1, *[1] * (weight.ndim - 1))
    result = copy.deepcopy(product)
    for name, values in (("weight", weight), ("bias", bias)):
        values = torch.from_numpy(values.astype(np.float32))
        setattr(result, name, torch.nn.Parameter(values, requires_grad=False))
    return result
