"""Sequences with heads, or transposed, in a model's ``forward``."""

import operator
from dataclasses import dataclass, replace

import torch

from .functions import classify
from .layers import Found, refuse

__all__ = ["Heads", "classify_heads"]


@dataclass(frozen=True)
class Heads:
    """A node whose axes torch sees in another order than (N, T, C).

    Members
    -------
    node, count : the sequence, and its number of heads
    order : of what torch sees behind N: "T", "heads", "C"; without heads ("C", "T")
    """

    node: object
    count: int
    order: tuple[str, ...]


_PLAIN, _SPLIT = ("T", "C"), ("T", "heads", "C")
_VIEWS = ("view", "reshape", torch.reshape, "flatten", torch.flatten, "unflatten")
_SWAPS = ("transpose", torch.transpose, "swapaxes", torch.swapaxes, "swapdims")
#: Products and quotients.
_FACTORS = (
    operator.mul, torch.mul, torch.multiply, "mul", "multiply", operator.truediv, torch.div,
    torch.divide, torch.true_divide, "div", "divide", "true_divide",
)  # fmt: skip


def classify_heads(name, target, args, kwargs, shape, node_type) -> Found | None:
    """What a function or method is if it has to do with heads or turns a sequence, else None;
    arguments as those of ``classify``."""
    with_heads = [part for part in args if isinstance(part, Heads)]
    if with_heads and target in _FACTORS:
        (heads,) = with_heads
        args = [part.node if part is heads else part for part in args]
        found = classify(name, target, args, kwargs, shape, node_type)
        return replace(found, heads=(heads.count, heads.order))
    if not args or not isinstance(args[0], Heads | node_type):
        return None
    first = args[0]
    if isinstance(first, node_type):
        if not first.sequence:
            return None
        long, wide = first.shape[1], first.shape[0]
        if (
            target in _VIEWS
            and len(shape) == 3
            and shape[0] == long
            and shape[1] * shape[2] == wide
        ):
            return _seen(first, shape[1], _SPLIT)
        first = Heads(first, 1, _PLAIN)
        places = _places(name, target, args, kwargs, 3)
        return None if places is None else _seen(first.node, 1, _turned(name, first, places))
    node = first.node
    places = _places(name, target, args, kwargs, 1 + len(first.order))
    if places is not None:
        return _seen(node, first.count, _turned(name, first, places))
    if target == "contiguous":
        return _seen(node, first.count, first.order)
    if target in _VIEWS and first.order == _SPLIT and shape == (node.shape[1], node.shape[0]):
        return _seen(node, 1, _PLAIN)
    refuse(name, "heads can be transposed, scaled, go to attention or be joined")


def _seen(node, count, order):
    heads = None if order == _PLAIN else (count, order)
    return Found(kind="identity", sources=(node,), heads=heads)


def _places(name, target, args, kwargs, axes):
    """Which axis comes where, the batch among them; None if a call changes none."""
    if target in _SWAPS:
        first, second = (kwargs.get(f"dim{i}", (*args, 0, 0)[1 + i]) % axes for i in (0, 1))
        swap = {first: second, second: first}
        return [swap.get(axis, axis) for axis in range(axes)]
    if target in ("permute", torch.permute):
        given = args[1] if isinstance(args[1], list | tuple) else args[1:]
        return [place % axes for place in given]
    if target is getattr and args[1] == "mT":
        return [*range(axes - 2), axes - 1, axes - 2]
    return None


def _turned(name, heads, places):
    if places[0] != 0:
        refuse(name, "the batch is the first axis")
    return tuple(heads.order[place - 1] for place in places[1:])
