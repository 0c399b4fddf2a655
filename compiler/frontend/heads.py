"""Sequences that torch sees with other axes: with heads, or transposed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .functions import DIVIDING, MULTIPLYING, Call, Operation, operation
from .layer import Layer
from .supported_layers import refuse

__all__ = ["REARRANGING", "Heads", "heads_operation"]


@dataclass(frozen=True)
class Heads:
    """A sequence whose axes are not (N, T, C) to torch.

    Members
    -------
    layer : the sequence
    count : of heads
    axes : those behind N in their order: "t" of the vectors, "h" of the heads, "c" of the numbers
        in a head. ``x.view(N, T, heads, C // heads)`` is "thc", its ``transpose(1, 2)`` "htc"; a
        transposed sequence without heads is "ct"
    """

    layer: Layer
    count: int
    axes: str

    def __str__(self) -> str:
        names = {"t": "T", "h": "heads", "c": "C"}
        return f"{self.layer.name} as (N, {', '.join(names[axis] for axis in self.axes)})"


#: What divides channels into heads, and what joins them.
_SPLITTING: tuple[Any, ...] = ("view", "reshape", torch.reshape, "unflatten")
_JOINING: tuple[Any, ...] = ("view", "reshape", torch.reshape, "flatten", torch.flatten)


def heads_operation(call: Call) -> Operation | None:
    """What a call does that is about heads, or about the order of a sequence's axes; else None."""
    first = call.args[0] if call.args else None
    size = tuple(call.shape[1:])
    scaled = next((part for part in call.args[:2] if isinstance(part, Heads)), None)
    if scaled is not None and call.target in (*MULTIPLYING, *DIVIDING):
        return _scaled(call, scaled)
    if isinstance(first, Heads):
        if call.target == "contiguous":
            return _seen(first.layer, first.count, first.axes)
        if (order := _order(call, len(first.axes) + 1)) is not None:
            axes = "".join(first.axes[place - 1] for place in order[1:])
            return _seen(first.layer, first.count, axes)
        joined = (first.layer.shape[1], first.layer.shape[0])
        if call.target in _JOINING and first.axes == "thc" and size == joined:
            return _seen(first.layer, 1, "tc")
        refuse(
            call.label,
            "a sequence with heads can be transposed, scaled by a number, be part of an attention, "
            f"or as (N, T, heads, C) become (N, T, C) again; its input is {first}",
        )
    if isinstance(first, Layer) and first.sequence:
        channels, length, _ = first.shape
        if call.target in _SPLITTING and len(size) == 3:
            if size[0] == length and size[1] * size[2] == channels:
                return _seen(first, size[1], "thc")
        elif (order := _order(call, 3)) is not None:
            return _seen(first, 1, "".join("tc"[place - 1] for place in order[1:]))
    if isinstance(first, Layer) and call.target in (*_ORDERS, "unflatten"):
        kind = "vectors" if first.flat else "a sequence" if first.sequence else "a map"
        refuse(
            call.label,
            "transpose, permute and unflatten are for sequences: (N, T, C) becomes x.view(N, T, "
            "heads, C // heads).transpose(1, 2), or permute(0, 2, 1, 3), and back; its input is "
            f"{kind} {first.shape}",
        )
    return None


def _seen(layer: Layer, count: int, axes: str) -> Operation:
    heads = None if axes == "tc" else (count, axes)
    return Operation(kind="identity", options={}, sources=(layer,), heads=heads)


def _scaled(call: Call, heads: Heads) -> Operation:
    """A number times all of it."""
    args = tuple(part.layer if isinstance(part, Heads) else part for part in call.args)
    if sum(isinstance(part, Layer) for part in args) != 1:
        refuse(call.label, f"{heads} can be multiplied by a number only")
    found = operation(replace(call, args=args))
    return replace(found, heads=(heads.count, heads.axes), shape=heads.layer.shape)


def _order(call: Call, rank: int) -> Sequence[int] | None:
    """Of a call that changes the order of axes: which one comes where, the batch first."""
    if call.target not in _ORDERS:
        return None
    order = [place % rank for place in _ORDERS[call.target](call, rank)]
    if sorted(order) != list(range(rank)) or order[0] != 0:
        refuse(call.label, "the batch must stay in front")
    return order


def _transposed(call: Call, rank: int) -> Sequence[int]:
    dims = call.bind({"dim0": ..., "dim1": ...})
    order = list(range(rank))
    order[dims.dim0], order[dims.dim1] = order[dims.dim1], order[dims.dim0]
    return order


def _permuted(call: Call, rank: int) -> Sequence[int]:
    order = call.args[1:] or (call.kwargs.get("dims", ()),)
    return order[0] if len(order) == 1 and isinstance(order[0], list | tuple) else order


#: What changes the order of axes.
_ORDERS: dict[Any, Callable[[Call, int], Sequence[int]]] = {
    **dict.fromkeys(
        ("transpose", torch.transpose, "swapaxes", torch.swapaxes, "swapdims"), _transposed
    ),
    **dict.fromkeys(("permute", torch.permute), _permuted),
    getattr: lambda call, rank: [*range(rank - 2), rank - 1, rank - 2],  # mT
}
#: All of that, as it is written.
REARRANGING: tuple[Any, ...] = ("mT", "unflatten", *(key for key in _ORDERS if key is not getattr))
