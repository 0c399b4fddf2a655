"""Scaled dot-product attention on sequences, forward and backward, bit for bit.

The executable form of the section "Attention" of docs/training.md. Sequences (N, T, 1, C) are maps
of operand codes, whose channels are those of all heads, one head after the other.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .dropout import dropout, thinned
from .map_products import products
from .smooth import exponential

__all__ = ["Attended", "attention", "attention_backward"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Attended:
    """What the forward pass gives.

    Members
    -------
    output : (N, Tq, 1, C) operand codes
    shares : (N * heads, Tk, 1, Tq) operand codes: the softmax, a column for each query
    dropped : the same as the values are multiplied by them: ``shares``, or these with dropout
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    output: np.ndarray
    shares: np.ndarray
    dropped: np.ndarray
    flags: int


def attention(
    fmt: FloatFormat, q, k, v, *, heads: int, causal: bool, scale: float, rows: int, mask=None,
    p: float = 0.0, stream: int = 0, seed: int | None = None,
) -> Attended:  # fmt: skip
    """For every sentence and head, with the keys as pixels and the queries as channels: scores
    ``(k . q) * scale``, minus infinity for keys behind the query if ``causal``, plus ``mask``
    (Tq, Tk), real numbers that are rounded to operands; shares their softmax over the keys; the
    output is the sum of the shares times v.

    The softmax: m, the largest score of a query; w = :func:`golden.layers.smooth.exponential` of
    the score minus m; s, the sum of w over the keys; the share ``w * (1 / s)``, rounded.

    With a probability ``p`` above 0 the shares go through :func:`golden.layers.dropout.dropout`, a
    map of one column, before they are multiplied by v; without ``seed`` (evaluation) they do not.
    """
    unit = VectorUnit()
    q, k, v = (_by_head(part, heads) for part in (q, k, v))
    scores = _scores(fmt, k, q, scale, rows, unit)
    if causal:
        scores = unit.add(scores, _future(k.shape[1], q.shape[1]))
    if mask is not None:
        scores = unit.add(scores, widen(fmt, encode(fmt, mask).T))
    largest = scores[:, 0]
    for row in np.moveaxis(scores, 1, 0)[1:]:
        largest = max_f32(largest, row)
    w = exponential(unit, unit.subtract(scores, largest[:, np.newaxis]))
    total = unit.sum(np.moveaxis(w, 1, 0))
    inverse = unit.divide(constant(1.0), total)
    shares = unit.round(fmt, unit.multiply(w, inverse[:, np.newaxis]))
    dropped = shares
    if p and seed is not None:
        codes, flags = dropout(
            fmt, shares[:, :, np.newaxis], p=p, whole=False, stream=stream, seed=seed
        )
        dropped = codes[:, :, 0]
        unit.flags |= flags
    output = _over_keys(fmt, dropped, v, rows, unit)
    return Attended(
        output=_joined(output, heads), shares=shares[:, :, np.newaxis],
        dropped=dropped[:, :, np.newaxis], flags=unit.flags,
    )  # fmt: skip


def attention_backward(
    fmt: FloatFormat, q, k, v, dy, attended: Attended, *, heads: int, causal: bool, scale: float,
    rows: int, mask=None, p: float = 0.0, stream: int = 0, seed: int | None = None,
):  # fmt: skip
    """([codes] of the gradients of q, k and v, flags); ``attended`` is what the forward pass gave.

    With g = ``(v . dy) * scale`` and D, the sum of share times g over the keys: the gradient of a
    score is ``(g - D) * share``, rounded. That of q is the sum of it times k over the keys, that of
    k the sum of it times q over the queries, that of v the sum of the shares times dy. With dropout
    g is multiplied by ``1 / (1 - p)`` where the share was kept, and +0 elsewhere; the shares of v
    are those that were kept.
    """
    unit = VectorUnit()
    q, k, v, dy = (_by_head(part, heads) for part in (q, k, v, dy))
    shares, dropped = (codes[:, :, 0] for codes in (attended.shares, attended.dropped))
    g = _scores(fmt, v, dy, scale, rows, unit)
    if p and seed is not None:
        place = {"whole": False, "stream": stream, "seed": seed}
        g = thinned(unit, g[:, :, np.newaxis], p=p, **place)[:, :, 0]
    wide = widen(fmt, shares)
    sums = unit.sum(np.moveaxis(unit.multiply(wide, g), 1, 0))
    ds = unit.multiply(unit.subtract(g, sums[:, np.newaxis]), wide)
    ds = unit.round(fmt, ds)
    dq = _over_keys(fmt, ds, k, rows, unit)
    dk = _over_queries(fmt, ds, q, rows, unit)
    dv = _over_queries(fmt, dropped, dy, rows, unit)
    return [_joined(part, heads) for part in (dq, dk, dv)], unit.flags


def _by_head(codes, heads):
    """(N * heads, T, C / heads) of a map (N, T, 1, C)."""
    images, length, _, channels = np.shape(codes)
    parts = np.reshape(codes, (images, length, heads, channels // heads))
    return np.moveaxis(parts, 2, 1).reshape(images * heads, length, -1)


def _joined(parts, heads):
    """The map of what belongs to each head."""
    parts = np.moveaxis(parts.reshape(-1, heads, *parts.shape[1:]), 1, 2)
    return parts.reshape(*parts.shape[:2], 1, -1)


def _future(keys, queries):
    """(keys, queries): minus infinity for keys behind the query, +0 elsewhere."""
    behind = np.arange(keys)[:, np.newaxis] > np.arange(queries)
    return np.where(behind, negate(FLOAT32.infinity), 0).astype(np.uint32)


def _scores(fmt, a, b, scale, rows, unit):
    """(N * heads, Ta, Tb): products over the channels, K tiles of these, times ``scale``."""
    return unit.multiply(products(fmt, a, np.moveaxis(b, 1, 2), rows, unit), constant(scale))


def _over_keys(fmt, shares, values, rows, unit):
    """(N * heads, Tq, C), rounded: shares (Tk, Tq) times values (Tk, C), K tiles of keys."""
    return unit.round(fmt, products(fmt, np.moveaxis(shares, 1, 2), values, rows, unit))


def _over_queries(fmt, shares, values, rows, unit):
    """(N * heads, Tk, C), rounded: shares (Tk, Tq) times values (Tq, C), K tiles of queries."""
    return unit.round(fmt, products(fmt, shares, values, rows, unit))
