"""Attention in a model's ``forward``: torch's function, or products and a softmax."""

import operator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .functions import out_of_place
from .heads import Heads
from .layers import Found, refuse
from .network_inputs import Constant

__all__ = ["Scores", "classify_attention"]

_HEADS_FIRST, _TURNED = ("heads", "T", "C"), ("heads", "C", "T")
_PRODUCTS = (operator.matmul, torch.matmul, "matmul", torch.bmm, "bmm")
#: What a softmax makes nothing of.
_LEAST = -1e4


@dataclass(frozen=True, eq=False)
class Scores:
    """Products of queries and keys, or what has been made of them.

    Members
    -------
    query, key : nodes
    heads : (count, order of axes) of torch's queries, None if they have no heads
    scale, added : the products times ``scale``, plus (queries, keys) numbers
    normalized : they have been through the softmax
    p : probability with which each share is dropped
    """

    query: object
    key: object
    heads: tuple | None
    scale: float
    added: np.ndarray | None = None
    normalized: bool = False
    p: float = 0.0


def classify_attention(name, target, args, kwargs, node_type) -> Found | None:
    """What a function, a method or a module (``target``) does for an attention; None if nothing.
    Of ``args`` those that are :class:`Scores` are products."""
    if target is functional.scaled_dot_product_attention:
        return _whole(name, args, kwargs, node_type)
    scores = [part for part in args if isinstance(part, Scores)]
    if target in _PRODUCTS:
        if len(args) != 2 or kwargs:
            refuse(name, "a product has two operands")
        if scores[:1] == [args[0]] and args[0].normalized:
            return _shares_times(name, args[0], args[1], node_type)
        return _made(_product(name, *args, node_type))
    if not scores:
        return None
    kind, changes = out_of_place(type(target) if isinstance(target, nn.Module) else target)
    for targets, step, behind in _STEPS:
        if kind in targets:
            if scores[0].normalized and not behind:
                refuse(name, "behind the softmax comes a product with values")
            return _made(step(name, target, args, kwargs), changes)
    refuse(name, "products of queries and keys can be scaled, masked and go through a softmax")


def _made(scores, in_place=False):
    return Found(kind="identity", sources=(scores.query,), scores=scores, in_place=in_place)


def _whole(name, args, kwargs, node_type):
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.get("enable_gqa"):
        refuse(name, "enable_gqa is not supported")
    parts = [given[key] for key in names[:3]]
    seen = [_operand(part, _HEADS_FIRST, node_type) for part in parts]
    counts = {count for _, count in seen}
    if None in [node for node, _ in seen] or len(counts) != 1:
        refuse(name, "its operands are sequences, or all with heads, (N, heads, T, C)")
    (query, count), (key, _), (value, _) = seen
    scale = given.get("scale")
    if scale is None:
        scale = 1.0 / np.sqrt(query.shape[0] // (count or 1))
    heads = (count, _HEADS_FIRST) if count else None
    scores = Scores(query, key, heads, _factor(name, scale), p=_probability(name, given))
    if given.get("attn_mask") is not None:
        if given.get("is_causal"):
            refuse(name, "attn_mask and is_causal are not supported together")
        values = _constant(name, given["attn_mask"], scores)
        if values.dtype == bool:
            values = np.where(values, 0.0, -np.inf)
        scores = _with(name, scores, values)
    return _attention(name, scores, value, bool(given.get("is_causal")))


def _attention(name, scores, value, causal=False):
    count = scores.heads[0] if scores.heads else 1
    options = {"heads": count, "causal": causal, "scale": scores.scale}
    if scores.p:
        options["p"] = scores.p
    if scores.added is not None:
        if (scores.added.max(1) == -np.inf).any():
            refuse(name, "its attn_mask must have a key for every query")
        options["mask"] = tuple(map(tuple, scores.added.tolist()))
    sources = scores.query, scores.key, value
    return Found(kind="attention", options=options, sources=sources, heads=scores.heads)


def _probability(name, given):
    p = given.get("dropout_p", 0.0)
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
        refuse(name, f"dropout_p is from 0 to 1, without 1, not {p}")
    return float(p)


def _operand(part, order, node_type):
    """(node, number of heads) of what has these axes, (node, None) of a sequence without heads."""
    if isinstance(part, Heads) and part.order == order:
        return part.node, part.count
    if isinstance(part, node_type) and part.sequence and order is _HEADS_FIRST:
        return part, None
    return None, None


def _factor(name, number):
    if isinstance(number, Constant) and number.values.numel() == 1:
        number = number.values.item()
    if isinstance(number, bool) or not isinstance(number, int | float) or not np.isfinite(number):
        refuse(name, f"its scale is {number}")
    return float(number)


def _constant(name, constant, scores):
    """(queries, keys) numbers that are the same for all sentences and heads."""
    if not isinstance(constant, Constant):
        refuse(name, "its attn_mask must be a constant")
    values, size = constant.values.numpy(), (scores.query.shape[1], scores.key.shape[1])
    if values.ndim > 4 or values.shape[:-2].count(1) != len(values.shape[:-2]):
        refuse(name, f"its attn_mask {values.shape} must be the same for all sentences and heads")
    try:
        return np.broadcast_to(values, (1, 1, *size))[0, 0]
    except ValueError:
        refuse(name, f"its attn_mask {values.shape} must be of {size} queries and keys")


def _with(name, scores, values):
    """Scores with a mask more."""
    values = values.astype(np.float64)
    if np.isnan(values).any() or (values == np.inf).any():
        refuse(name, "its attn_mask must have finite numbers, or -inf")
    before = 0.0 if scores.added is None else scores.added
    return replace(scores, added=before + values)


def _product(name, first, second, node_type):
    query, count = _operand(first, _HEADS_FIRST, node_type)
    key, turned = _operand(second, ("C", "T") if count is None else _TURNED, node_type)
    if query is None or key is None or turned != (count or 1):
        refuse(name, "a product is one of queries and turned keys, or of their shares and values")
    return Scores(query, key, (count, _HEADS_FIRST) if count else None, 1.0)


def _shares_times(name, scores, values, node_type):
    value, count = _operand(values, _HEADS_FIRST, node_type)
    if value is None or (count, _HEADS_FIRST) != (scores.heads or (None, _HEADS_FIRST)):
        refuse(name, "shares are multiplied by values with the same heads")
    return _attention(name, scores, value)


def _scaled(name, target, args, kwargs):
    first, second = args
    scores, number = (first, second) if isinstance(first, Scores) else (second, first)
    factor = _factor(name, number)
    if out_of_place(target)[0] in _QUOTIENTS:
        if scores is not first or not factor:
            refuse(name, "scores are divided by a number that is not 0")
        factor = 1.0 / factor
    if scores.added is None:
        return replace(scores, scale=scores.scale * factor)
    if factor <= 0:
        refuse(name, f"masked scores are scaled by {factor}")
    return replace(scores, scale=scores.scale * factor, added=scores.added * factor)


def _shifted(name, target, args, kwargs):
    first, second = args
    scores, values = (first, second) if isinstance(first, Scores) else (second, first)
    if isinstance(values, int | float):
        values = Constant(name, torch.tensor(float(values)))
    found = _constant(name, values, scores)
    if found.dtype == bool:
        refuse(name, "a mask that is added has numbers")
    return _with(name, scores, found)


def _hidden(name, target, args, kwargs):
    scores, mask, value = (*args, *(kwargs[key] for key in ("mask", "value") if key in kwargs))
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= _LEAST:
        refuse(name, f"scores are filled with -inf, or a number up to {_LEAST}, not {value}")
    hidden = _constant(name, mask, scores)
    return _with(name, scores, np.where(hidden, -np.inf, 0.0))


def _softmax(name, target, args, kwargs):
    given = dict(zip(("dim", "dtype"), args[1:], strict=False)) | kwargs
    axis = target.dim if isinstance(target, nn.Module) else given.get("dim")
    (scores,) = args[:1]
    if axis not in (-1, 3 if scores.heads else 2) or given.get("dtype") not in (
        None,
        torch.float32,
    ):
        refuse(name, f"shares are over keys, the last axis, not {axis}")
    return replace(scores, normalized=True)


def _same(name, target, args, kwargs):
    (scores,) = args[:1]
    if target in ("clone", torch.clone):
        return replace(scores)
    drops = target is functional.dropout or isinstance(target, nn.Dropout)
    if drops:
        given = {"p": 0.5, "training": True} | dict(zip(("p", "training"), args[1:], strict=False))
        given |= kwargs
        if isinstance(target, nn.Module):
            given = {"p": target.p, "training": target.training}
        if given["p"] and given["training"]:
            if not scores.normalized or scores.p:
                refuse(name, "dropout comes behind the softmax, once")
            return replace(scores, p=_probability(name, {"dropout_p": given["p"]}))
    return scores


_QUOTIENTS = (operator.truediv, torch.div, torch.divide, torch.true_divide, "div", "divide",
              "true_divide")  # fmt: skip
#: (targets, what they do, whether they may come behind the softmax).
_STEPS = (
    ((operator.mul, torch.mul, torch.multiply, "mul", "multiply", *_QUOTIENTS), _scaled, False),
    ((operator.add, torch.add, "add"), _shifted, False),
    (("masked_fill", torch.masked_fill), _hidden, False),
    ((functional.softmax, torch.softmax, "softmax", nn.Softmax), _softmax, False),
    (
        ("contiguous", "clone", torch.clone, functional.dropout, nn.Dropout, nn.Identity),
        _same, True,
    ),
)  # fmt: skip
