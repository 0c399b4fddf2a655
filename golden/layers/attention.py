"""Scaled dot-product attention on sequences, forward and backward, bit for bit.

The executable form of the section "Attention" of docs/training.md. Sequences (N, T, 1, C) are maps
of operand codes, whose channels are those of all heads, one head after the other.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .conv_general import convolution
from .conv_gradients import input_gradient, weight_gradient
from .smooth import exponential

__all__ = ["Attended", "attention", "attention_backward"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Attended:
    """What the forward pass gives.

    Members
    -------
    output : (N, Tq, 1, C) operand codes
    shares : (N * heads, Tk, 1, Tq) operand codes: the softmax, a column for each query
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    output: np.ndarray
    shares: np.ndarray
    flags: int


def attention(
    fmt: FloatFormat, q, k, v, *, heads: int, causal: bool, scale: float, rows: int
) -> Attended:
    """For every sentence and head, with the keys as pixels and the queries as channels: scores
    ``(k . q) * scale``, minus infinity for keys behind the query if ``causal``; shares their
    softmax over the keys; the output is the sum of the shares times v.

    The softmax: m, the largest score of a query; w = :func:`golden.layers.smooth.exponential` of
    the score minus m; s, the sum of w over the keys; the share ``w * (1 / s)``, rounded.
    """
    unit = VectorUnit()
    q, k, v = (_by_head(part, heads) for part in (q, k, v))
    scores = _scores(fmt, k, q, scale, rows, unit)
    if causal:
        scores = unit.add(scores, _future(k.shape[1], q.shape[1]))
    largest = scores[:, 0]
    for row in np.moveaxis(scores, 1, 0)[1:]:
        largest = max_f32(largest, row)
    w = exponential(unit, unit.subtract(scores, largest[:, np.newaxis]))
    total = np.stack([unit.sum(part) for part in w])
    inverse = unit.divide(constant(1.0), total)
    shares = unit.round(fmt, unit.multiply(w, inverse[:, np.newaxis]))
    output = [_over_keys(fmt, *pair, rows, unit) for pair in zip(shares, v, strict=True)]
    return Attended(
        output=_joined(output, heads), shares=shares[:, :, np.newaxis], flags=unit.flags
    )


def attention_backward(
    fmt: FloatFormat, q, k, v, dy, shares, *, heads: int, causal: bool, scale: float, rows: int
):
    """([codes] of the gradients of q, k and v, flags).

    With g = ``(v . dy) * scale`` and D, the sum of share times g over the keys: the gradient of a
    score is ``(g - D) * share``, rounded. That of q is the sum of it times k over the keys, that of
    k the sum of it times q over the queries, that of v the sum of the shares times dy.
    """
    unit = VectorUnit()
    q, k, v, dy = (_by_head(part, heads) for part in (q, k, v, dy))
    shares = np.asarray(shares)[:, :, 0]
    g = _scores(fmt, v, dy, scale, rows, unit)
    wide = widen(fmt, shares)
    sums = np.stack([unit.sum(part) for part in unit.multiply(wide, g)])
    ds = unit.multiply(unit.subtract(g, sums[:, np.newaxis]), wide)
    ds = unit.round(fmt, ds)
    dq = [_over_keys(fmt, *pair, rows, unit) for pair in zip(ds, k, strict=True)]
    dk = [_over_queries(fmt, *pair, rows, unit) for pair in zip(ds, q, strict=True)]
    dv = [_over_queries(fmt, *pair, rows, unit) for pair in zip(shares, dy, strict=True)]
    return [_joined(part, heads) for part in (dq, dk, dv)], unit.flags


def _by_head(codes, heads):
    """(N * heads, T, C / heads) of a map (N, T, 1, C)."""
    images, length, _, channels = np.shape(codes)
    parts = np.reshape(codes, (images, length, heads, channels // heads))
    return np.moveaxis(parts, 2, 1).reshape(images * heads, length, -1)


def _joined(parts, heads):
    """The map of what belongs to each head."""
    parts = np.stack(parts)
    parts = np.moveaxis(parts.reshape(-1, heads, *parts.shape[1:]), 1, 2)
    return parts.reshape(*parts.shape[:2], 1, -1)


def _future(keys, queries):
    """(keys, queries): minus infinity for keys behind the query, +0 elsewhere."""
    behind = np.arange(keys)[:, np.newaxis] > np.arange(queries)
    return np.where(behind, negate(FLOAT32.infinity), 0).astype(np.uint32)


def _scores(fmt, a, b, scale, rows, unit):
    """(N * heads, Ta, Tb): products over the channels, K tiles of these, times ``scale``."""
    found = []
    for left, right in zip(a, b, strict=True):
        sums, flags = input_gradient(
            fmt, left[np.newaxis, :, np.newaxis], right.T[:, :, np.newaxis, np.newaxis],
            input_size=(len(left), 1), rows=rows,
        )  # fmt: skip
        found.append(_counted(sums, flags, unit)[0, :, 0])
    return unit.multiply(np.stack(found), constant(scale))


def _over_keys(fmt, shares, values, rows, unit):
    """(Tq, C), rounded: shares (Tk, Tq) times values (Tk, C), K tiles of keys."""
    maps = (part[np.newaxis, :, np.newaxis] for part in (shares, values))
    sums, flags = weight_gradient(fmt, *maps, kernel=1, rows=rows)
    return unit.round(fmt, _counted(sums, flags, unit)[:, :, 0, 0].T)


def _over_queries(fmt, shares, values, rows, unit):
    """(Tk, C), rounded: shares (Tk, Tq) times values (Tq, C), K tiles of queries."""
    weights = values.T[:, :, np.newaxis, np.newaxis]
    sums, flags = convolution(fmt, shares[np.newaxis, :, np.newaxis], weights, rows=rows)
    return unit.round(fmt, _counted(sums, flags, unit)[0, :, 0])


def _counted(sums, flags, unit):
    unit.flags |= int(np.bitwise_or.reduce(flags, axis=None))
    return sums
