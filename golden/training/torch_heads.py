"""Attention in a model's ``forward``: sequences whose channels are those of several heads."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from .torch_layers import Found, refuse

__all__ = ["Heads", "classify_heads"]


@dataclass(frozen=True)
class Heads:
    """A node that torch sees as (N, T, heads, C), or if ``turned`` as (N, heads, T, C)."""

    node: object
    count: int
    turned: bool


_VIEWS = ("view", "reshape", torch.reshape, "flatten", torch.flatten, "unflatten")


def classify_heads(name, target, args, kwargs, shape, node_type) -> Found | None:
    """What a function or method is if it has to do with heads, else None; arguments as those of
    ``classify``."""
    if target is functional.scaled_dot_product_attention:
        return _attention(name, args, kwargs, node_type)
    first = args[0] if args else None
    if isinstance(first, Heads):
        node, count, turned = first.node, first.count, first.turned
        order = None
        if target in ("transpose", torch.transpose):
            dims = [kwargs.get(f"dim{index}", (*args, 0, 0)[1 + index]) % 4 for index in (0, 1)]
            order = sorted(dims) == [1, 2]
        if target in ("permute", torch.permute):
            places = args[1] if isinstance(args[1], list | tuple) else args[1:]
            order = [place % 4 for place in places] == [0, 2, 1, 3]
        if order or target == "contiguous":
            return _seen(node, (count, turned != bool(order)))
        if target in _VIEWS and not turned and shape == (node.shape[1], node.shape[0]):
            return _seen(node, None)
        refuse(name, "heads can be transposed (1, 2), go to attention or be joined")
    if isinstance(first, node_type) and first.sequence and target in _VIEWS and len(shape) == 3:
        if shape[0] == first.shape[1] and shape[1] * shape[2] == first.shape[0]:
            return _seen(first, (shape[1], False))
    return None


def _seen(node, heads):
    return Found(kind="identity", sources=(node,), heads=heads)


def _attention(name, args, kwargs, node_type):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | kwargs
    for key in ("attn_mask", "dropout_p", "enable_gqa"):
        if given.get(key):
            refuse(name, f"{key} is not supported")
    parts = [given[key] for key in names[:3]]
    if all(isinstance(part, Heads) and part.turned for part in parts):
        nodes, counts = [part.node for part in parts], {part.count for part in parts}
        heads = (parts[0].count, True)
    elif all(isinstance(part, node_type) and part.sequence for part in parts):
        nodes, counts, heads = parts, {1}, None
    else:
        counts = ()
    if len(counts) != 1:
        refuse(name, "its operands are sequences, or all with heads, (N, heads, T, C)")
    (count,) = counts
    scale = given.get("scale")
    if scale is None:
        scale = 1.0 / np.sqrt(nodes[0].shape[0] // count)
    if not np.isfinite(scale):
        refuse(name, f"its scale is {scale}")
    options = {"heads": count, "causal": bool(given.get("is_causal")), "scale": float(scale)}
    return Found(kind="attention", options=options, sources=tuple(nodes), heads=heads)
