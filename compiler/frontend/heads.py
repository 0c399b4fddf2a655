"""Sequences whose channels are those of several heads, and attention between them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import torch
from torch.nn import functional

from .functions import Call, Operation
from .layer import Layer
from .network_inputs import Constant
from .supported_layers import refuse

__all__ = ["ATTENTION", "Heads", "REARRANGING", "head_operation"]


@dataclass(frozen=True)
class Heads:
    """A sequence as torch sees it after ``view``: (N, T, heads, C / heads), or ``transposed`` (N,
    heads, T, C / heads)."""

    layer: Layer
    count: int
    transposed: bool


#: What computes attention.
ATTENTION = (functional.scaled_dot_product_attention,)
#: What divides channels into heads or joins them, and what changes the order of axes.
_SPLITTING: tuple[Any, ...] = ("view", "reshape", torch.reshape, "unflatten")
_JOINING: tuple[Any, ...] = ("view", "reshape", torch.reshape, "flatten", torch.flatten)
_TRANSPOSING: dict[Any, Callable[[Call], bool]] = {
    **dict.fromkeys(("transpose", torch.transpose), lambda call: _swaps(call)),
    **dict.fromkeys(("permute", torch.permute), lambda call: _permutes(call)),
}
REARRANGING: tuple[Any, ...] = (*_TRANSPOSING, "unflatten")


def head_operation(call: Call) -> Operation | None:
    """What a call on sequences with heads is, or attention; None if it is neither."""
    if call.target in ATTENTION:
        return _attention(call)
    first = call.args[0] if call.args else None
    size = tuple(call.shape[1:])
    if isinstance(first, Heads):
        layer, heads = first.layer, (first.count, first.transposed)
        if call.target == "contiguous":
            return _same(layer, heads)
        if call.target in _TRANSPOSING and _TRANSPOSING[call.target](call):
            return _same(layer, (first.count, not first.transposed))
        joined = (layer.shape[1], layer.shape[0])
        if call.target in _JOINING and not first.transposed and size == joined:
            return _same(layer, None)
        refuse(
            call.label,
            "a sequence with heads can be transposed (1, 2), go to attention or become (N, T, C) "
            "again",
        )
    if isinstance(first, Layer) and first.sequence and call.target in _SPLITTING:
        channels, length, _ = first.shape
        if len(size) == 3 and size[0] == length and size[1] * size[2] == channels:
            return _same(first, (size[1], False))
    if isinstance(first, Layer) and call.target in REARRANGING:
        kind = "a sequence" if first.sequence else "vectors" if first.flat else "a map"
        refuse(
            call.label,
            "transpose, permute and unflatten are for heads only: a sequence (N, T, C) becomes "
            "x.view(N, T, heads, C // heads).transpose(1, 2), or permute(0, 2, 1, 3), and back; "
            f"its input is {kind} {first.shape} without heads",
        )
    return None


def _same(layer: Layer, heads: tuple[int, bool] | None) -> Operation:
    return Operation(kind="identity", options={}, sources=(layer,), heads=heads)


def _swaps(call: Call) -> bool:
    dims = call.bind({"dim0": ..., "dim1": ...})
    return {dims.dim0 % 4, dims.dim1 % 4} == {1, 2}


def _permutes(call: Call) -> bool:
    order = call.args[1:]
    if len(order) == 1 and isinstance(order[0], list | tuple):
        order = order[0]
    return [place % 4 for place in order] == [0, 2, 1, 3]


def _attention(call: Call) -> Operation:
    arguments = Call(label=call.label, target=call.target, args=(None, *call.args),
                     kwargs=call.kwargs).bind({
        "query": ..., "key": ..., "value": ..., "attn_mask": None, "dropout_p": 0.0,
        "is_causal": False, "scale": None, "enable_gqa": False,
    })  # fmt: skip
    parts = (arguments.query, arguments.key, arguments.value)
    layers, counts = [], set()
    for part in parts:
        if isinstance(part, Heads) and part.transposed:
            layers.append(part.layer)
            counts.add(part.count)
        elif isinstance(part, Layer) and part.sequence:
            layers.append(part)
            counts.add(1)
    if len(layers) < 3 or len(counts) > 1:
        refuse(
            call.label,
            "query, key and value must be sequences (N, T, C), or with heads (N, heads, T, C) as "
            "x.view(N, T, heads, C).transpose(1, 2) makes them",
        )
    if arguments.dropout_p or arguments.enable_gqa:
        refuse(call.label, "dropout_p must be 0 and enable_gqa False")
    (heads,), (query, _, value) = counts, layers
    scale = arguments.scale
    if scale is None:
        scale = 1.0 / sqrt(query.shape[0] // heads)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not isfinite(scale):
        refuse(call.label, f"scale must be a finite number, not {scale}")
    options: dict[str, Any] = {"heads": heads, "causal": bool(arguments.is_causal)}
    options["scale"] = float(scale)
    if arguments.attn_mask is not None:
        if arguments.is_causal:
            refuse(call.label, "with is_causal attn_mask must be None")
        options["mask"] = _mask(call, arguments.attn_mask, layers[0].shape[1], layers[1].shape[1])
    layout = (heads, True) if isinstance(parts[0], Heads) else None
    return Operation(
        kind="attention", options=options, sources=tuple(layers), heads=layout,
        shape=(value.shape[0], query.shape[1], 1),
    )  # fmt: skip


def _mask(call: Call, given: Any, queries: int, keys: int) -> tuple[tuple[float, ...], ...]:
    """What is added to the scores: of each query a number for each key."""
    if not isinstance(given, Constant):
        refuse(call.label, "attn_mask must be a constant: a buffer, or what has been made of some")
    values = given.values
    if values.dtype == torch.bool:
        values = torch.zeros(values.shape).masked_fill(~values, float("-inf"))
    try:
        full = values.double().expand(1, 1, queries, keys)[0, 0]
    except RuntimeError:
        refuse(
            call.label,
            f"attn_mask must have shape {(queries, keys)}, for all sentences and heads alike, not "
            f"{tuple(values.shape)}",
        )
    if not bool((full < float("inf")).all()):
        refuse(call.label, "the numbers of attn_mask must be finite, or -inf")
    blind = torch.isinf(full).all(1).nonzero()
    if len(blind):
        refuse(call.label, f"query {int(blind[0])} of attn_mask must see at least one key")
    return tuple(tuple(row) for row in full.tolist())
