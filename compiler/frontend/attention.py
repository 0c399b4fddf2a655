"""Attention in a model's ``forward``: one function, or products and a softmax."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .functions import DIVIDING, MULTIPLYING, Call, Operation, out_of_place
from .heads import Heads
from .layer import Layer
from .network_inputs import Constant
from .supported_layers import refuse

__all__ = ["ATTENTION", "PRODUCTS", "Scores", "attention_operation"]

#: What computes attention, and what its products.
ATTENTION = (functional.scaled_dot_product_attention,)
PRODUCTS: tuple[Any, ...] = (operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm")
#: Scores from here on have no share that float32 could tell from 0.
_NOTHING = -1e4
_WRITTEN = (
    "an attention is scaled_dot_product_attention(q, k, v), or softmax(q @ k.transpose(-2, -1) * "
    "scale + mask, dim=-1) @ v, of sequences (N, T, C) or with heads (N, heads, T, C)"
)


@dataclass(frozen=True, eq=False)
class Scores:
    """A number for each pair of a query and a key: products of the two, scaled and masked.

    Members
    -------
    query, key : sequences
    heads : how many; None where torch sees none
    scale : what the products are multiplied by
    mask : (queries, keys) that is added to that, float64; None for nothing
    shares : whether a softmax has made shares of them
    p : probability of a share to be dropped
    """

    query: Layer
    key: Layer
    heads: int | None
    scale: float = 1.0
    mask: torch.Tensor | None = None
    shares: bool = False
    p: float = 0.0

    def __str__(self) -> str:
        return f"{'shares' if self.shares else 'scores'} of {self.query.name} and {self.key.name}"


def attention_operation(call: Call) -> Operation | None:
    """What a call is that is an attention or part of one; None if it is neither."""
    if call.target in ATTENTION:
        return _attention(call)
    scores = next((part for part in call.args if isinstance(part, Scores)), None)
    if scores is not None and not (scores.shares and call.target in PRODUCTS):
        return _on_scores(call, scores)
    return _product(call) if call.target in PRODUCTS else None


# One function ------------------------------------------------------------------------------------


def _attention(call: Call) -> Operation:
    arguments = replace(call, args=(None, *call.args)).bind({
        "query": ..., "key": ..., "value": ..., "attn_mask": None, "dropout_p": 0.0,
        "is_causal": False, "scale": None, "enable_gqa": False,
    })  # fmt: skip
    parts = arguments.query, arguments.key, arguments.value
    layers, counts = zip(*(_operand(part, "htc") for part in parts), strict=True)
    if None in layers or len({count or 1 for count in counts}) > 1:
        refuse(
            call.label,
            "query, key and value must be sequences (N, T, C), or with heads (N, heads, T, C) as "
            "x.view(N, T, heads, C).transpose(1, 2) makes them",
        )
    if arguments.enable_gqa:
        refuse(call.label, "enable_gqa must be False")
    query, key, value = layers
    scale = arguments.scale
    if scale is None:
        scale = 1.0 / sqrt(query.shape[0] // (counts[0] or 1))
    mask = None
    if arguments.attn_mask is not None:
        if arguments.is_causal:
            refuse(call.label, "with is_causal attn_mask must be None")
        mask = _added(call, "attn_mask", arguments.attn_mask, query, key)
    p = _probability(call, "dropout_p", arguments.dropout_p)
    scores = Scores(query, key, counts[0], _finite(call, scale), mask, p=p)
    return _found(call, scores, value, causal=bool(arguments.is_causal))


def _operand(part: Any, axes: str) -> tuple[Layer | None, int | None]:
    """The sequence of an operand with these axes, or without heads, and how many heads; (None,
    None) for anything else."""
    if isinstance(part, Heads) and part.axes == axes:
        return part.layer, part.count
    if isinstance(part, Layer) and part.sequence and axes == "htc":
        return part, None
    return None, None


def _found(call: Call, scores: Scores, value: Layer, *, causal: bool = False) -> Operation:
    heads = scores.heads or 1
    options: dict[str, Any] = {"heads": heads, "causal": causal, "scale": scores.scale}
    if scores.p:
        options["p"] = scores.p
    if scores.mask is not None:
        options["mask"] = _rows(call, scores.mask)
    return Operation(
        kind="attention", options=options, sources=(scores.query, scores.key, value),
        heads=(heads, "htc") if scores.heads else None,
        shape=(value.shape[0], scores.query.shape[1], 1),
    )  # fmt: skip


def _finite(call: Call, scale: Any) -> float:
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not isfinite(scale):
        if isinstance(scale, Constant):
            scale = f"a constant {tuple(scale.values.shape)}"
        refuse(call.label, f"scale must be a finite number, not {scale}")
    return float(scale)


def _probability(call: Call, what: str, p: Any) -> float:
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
        refuse(call.label, f"{what} must be at least 0 and below 1, not {p}")
    return float(p)


# Masks -------------------------------------------------------------------------------------------


def _expanded(call: Call, what: str, given: Any, query: Layer, key: Layer) -> torch.Tensor:
    """(queries, keys) of a constant."""
    if not isinstance(given, Constant):
        refuse(call.label, f"{what} must be a constant: a buffer, or what has been made of some")
    size = query.shape[1], key.shape[1]
    try:
        return given.values.expand(1, 1, *size)[0, 0]
    except RuntimeError:
        refuse(
            call.label,
            f"{what} must have shape {size}, for all sentences and heads alike, not "
            f"{tuple(given.values.shape)}",
        )


def _added(call: Call, what: str, given: Any, query: Layer, key: Layer) -> torch.Tensor:
    """What is added to the scores: of each query a number for each key."""
    full = _expanded(call, what, given, query, key)
    if full.dtype == torch.bool:
        full = torch.zeros(full.shape).masked_fill(~full, float("-inf"))
    full = full.double()
    if not bool((full < float("inf")).all()):
        refuse(call.label, f"the numbers of {what} must be finite, or -inf")
    return full


def _rows(call: Call, mask: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    blind = torch.isinf(mask).all(1).nonzero()
    if len(blind):
        refuse(call.label, f"query {int(blind[0])} of attn_mask must see at least one key")
    return tuple(tuple(row) for row in mask.tolist())


# Products and a softmax --------------------------------------------------------------------------


def _product(call: Call) -> Operation:
    first, second = call.args if len(call.args) == 2 and not call.kwargs else (None, None)
    if isinstance(first, Scores):
        value, heads = _operand(second, "htc")
        if value is not None and heads == first.heads:
            return _found(call, first, value)
    query, heads = _operand(first, "htc")
    key, others = _operand(second, "ct" if heads is None else "hct")
    if query is None or key is None or others != (heads or 1):
        given = ", ".join(str(part.name if isinstance(part, Layer) else part) for part in call.args)
        refuse(call.label, f"{_WRITTEN}; its operands are {given}")
    return _scores(Scores(query, key, heads))


def _scores(scores: Scores, *, in_place: bool = False) -> Operation:
    return Operation(
        kind="identity", options={}, sources=(scores.query,), scores=scores, in_place=in_place
    )


def _on_scores(call: Call, scores: Scores) -> Operation:
    """What a function, a method or a module makes of scores."""
    target, in_place = out_of_place(call.target)
    kind = type(target) if isinstance(target, nn.Module) else target
    if call.args[0] is not scores and kind in _ONE_WAY:
        refuse(call.label, f"{scores} must be its first operand")
    if kind not in _STEPS or (scores.shares and kind not in _OF_SHARES):
        refuse(call.label, f"{scores} can be scaled, masked and go through a softmax: {_WRITTEN}")
    return _scores(_STEPS[kind](call, scores), in_place=in_place)


def _other(call: Call, scores: Scores) -> Any:
    """The second operand."""
    if len(call.args) != 2 or call.kwargs:
        refuse(call.label, f"it takes {scores} and one operand more")
    other = call.args[1] if call.args[0] is scores else call.args[0]
    if isinstance(other, Constant) and other.values.numel() == 1:
        return other.values.item()
    return other


def _multiplied(call: Call, scores: Scores, *, divide: bool = False) -> Scores:
    other = _other(call, scores)
    if divide and not other:
        refuse(call.label, "it divides by 0")
    factor = _finite(call, 1.0 / other if divide and isinstance(other, int | float) else other)
    if scores.mask is None:
        return replace(scores, scale=scores.scale * factor)
    if factor <= 0:
        refuse(
            call.label, f"behind a mask {scores} can be scaled by positive numbers, not {factor}"
        )
    return replace(scores, scale=scores.scale * factor, mask=scores.mask * factor)


def _divided(call: Call, scores: Scores) -> Scores:
    return _multiplied(call, scores, divide=True)


def _masked(call: Call, scores: Scores) -> Scores:
    other = _other(call, scores)
    if isinstance(other, int | float):
        other = Constant(call.label, torch.tensor(float(other)))
    elif isinstance(other, Constant) and other.values.dtype == torch.bool:
        refuse(call.label, f"what is added to {scores} must be numbers, not bool")
    return _with_mask(scores, _added(call, "a mask", other, scores.query, scores.key))


def _with_mask(scores: Scores, mask: torch.Tensor) -> Scores:
    return replace(scores, mask=mask if scores.mask is None else scores.mask + mask)


def _filled(call: Call, scores: Scores) -> Scores:
    arguments = call.bind({"mask": ..., "value": ...})
    hidden = _expanded(call, "a mask", arguments.mask, scores.query, scores.key)
    value = arguments.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= _NOTHING:
        refuse(call.label, f"it must fill with -inf, or a number of {_NOTHING:,.0f} or less, not "
               f"{value}")  # fmt: skip
    mask = torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    return _with_mask(scores, mask)


def _shared(call: Call, scores: Scores) -> Scores:
    if isinstance(call.target, nn.Module):
        dim, dtype = call.target.dim, None
    else:
        arguments = call.bind({"dim": ..., "_stacklevel": 3, "dtype": None})
        dim, dtype = arguments.dim, arguments.dtype
    last = 3 if scores.heads else 2
    if dim not in (-1, last) or dtype not in (None, torch.float32):
        refuse(call.label, f"it must be over the keys, dim=-1, in float32, not dim={dim}, {dtype}")
    return replace(scores, shares=True)


def _kept(call: Call, scores: Scores) -> Scores:
    if isinstance(call.target, nn.Dropout):
        p, training = call.target.p, call.target.training
    elif call.target is functional.dropout:
        arguments = call.bind({"p": 0.5, "training": True, "inplace": False})
        p, training = arguments.p, arguments.training
    else:
        copies = call.target in ("clone", torch.clone)
        return replace(scores) if copies else scores
    p = _probability(call, "p", p)
    if not p or not training:
        return scores
    if not scores.shares or scores.p:
        refuse(call.label, f"dropout must come behind the softmax, once; its input is {scores}")
    return replace(scores, p=p)


_Step = Callable[[Call, Scores], Scores]
_STEPS: dict[Any, _Step] = {
    **dict.fromkeys(MULTIPLYING, _multiplied),
    **dict.fromkeys(DIVIDING, _divided),
    **dict.fromkeys((operator.add, torch.add, "add"), _masked),
    **dict.fromkeys(("masked_fill", torch.masked_fill), _filled),
    **dict.fromkeys((nn.Softmax, functional.softmax, torch.softmax, "softmax"), _shared),
    **dict.fromkeys(
        (nn.Dropout, functional.dropout, nn.Identity, "contiguous", "clone", torch.clone), _kept
    ),
}
#: What may come behind the softmax; what takes scores as its first operand only.
_OF_SHARES: Sequence[Any] = tuple(kind for kind, step in _STEPS.items() if step is _kept)
_ONE_WAY: Sequence[Any] = tuple(
    kind for kind, step in _STEPS.items() if step not in (_multiplied, _masked)
)
