"""Attention in a model's ``forward``: sequences whose channels are those of several heads."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from .network_inputs import Constant
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
    for key in ("dropout_p", "enable_gqa"):
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
    if given.get("attn_mask") is not None:
        if options["causal"]:
            refuse(name, "attn_mask and is_causal are not supported together")
        options["mask"] = _mask(name, given["attn_mask"], *(node.shape[1] for node in nodes[:2]))
    return Found(kind="attention", options=options, sources=tuple(nodes), heads=heads)


def _mask(name, constant, queries, keys):
    """Rows of real numbers that are added to the scores."""
    if not isinstance(constant, Constant):
        refuse(name, "its attn_mask must be a constant")
    values = constant.values.numpy()
    if values.dtype == bool:
        values = np.where(values, 0.0, -np.inf)
    if values.ndim > 4 or values.shape[:-2].count(1) != len(values.shape[:-2]):
        refuse(name, f"its attn_mask {values.shape} must be the same for all sentences and heads")
    try:
        values = np.broadcast_to(values.astype(np.float64), (1, 1, queries, keys))[0, 0]
    except ValueError:
        refuse(name, f"its attn_mask {values.shape} must be of {queries} queries and {keys} keys")
    if np.isnan(values).any() or (values == np.inf).any() or (values.max(1) == -np.inf).any():
        refuse(name, "its attn_mask must have finite numbers, or -inf, and a key for every query")
    return tuple(map(tuple, values.tolist()))
