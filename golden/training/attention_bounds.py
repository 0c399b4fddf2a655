"""Bounds of attention, given its stored operands; see ``bounds``.

A share is ``e**d / sum`` with d = score - m. It does not change if all scores of a query move by
one number, so the m that was computed counts as exact. If d is off by at most a, the power is off
by ``e**a - 1`` of itself; the polynomial and its roundings add ``2**-16 + |d| 2**-22``
(:mod:`golden.training.smooth_bounds`), and powers below 2**-118 count as that much. The sum of
positive numbers keeps the largest relative error and adds that of its additions.
"""

import numpy as np

from golden.arithmetic.dot_product import decode, dot_error_bound, encode
from golden.arithmetic.running_error import Estimate, interleaved_sum

__all__ = ["attention_bounds", "softmax_bounds"]

_UNIT = 2.0**-24
_SMALL = 2.0**-117


def attention_bounds(fmt, q, k, v, dy, *, heads, causal, scale, rows, mask=None, p=0.0, kept=None):
    """Errors of the output and of the gradients of q, k and v, (N, T, 1, C) each, before they are
    rounded to operands; from their real values. ``kept`` (N * heads, Tk, Tq) are the shares that a
    dropout with probability ``p`` keeps, None without one."""
    q, k, v, dy = (_by_head(part, heads) for part in (q, k, v, dy))
    shares = _shares(fmt, q, k, causal, scale, rows, mask)
    exact = [Estimate.exact(part) for part in (q, k, v, dy)]
    dropped = shares if kept is None else _thinned(shares, p, kept).round(fmt)
    output = _product(dropped, exact[2], "bkq,bkc->bqc", rows)
    g = _product(exact[2], exact[3], "bkc,bqc->bkq", rows) * Estimate.constant(scale)
    g = g if kept is None else _thinned(g, p, kept)
    terms = shares * g
    magnitude = (np.abs(terms.value) + terms.error).sum(axis=1)
    total = interleaved_sum(
        terms.value.sum(axis=1), magnitude, terms.error.sum(axis=1), terms.value.shape[1]
    )
    total = Estimate(total.value[:, np.newaxis], total.error[:, np.newaxis])
    ds = ((g - total) * shares).round(fmt)
    dq = _product(ds, exact[1], "bkq,bkc->bqc", rows)
    dk = _product(ds, exact[0], "bkq,bqc->bkc", rows)
    dv = _product(dropped, exact[3], "bkq,bqc->bkc", rows)
    return [_joined(part.error, heads) for part in (output, dq, dk, dv)]


def _thinned(values, p, kept):
    """Values times 1 / (1 - p) where they are kept, else 0."""
    scaled = values * Estimate.constant(1.0 / (1.0 - p))
    return Estimate(np.where(kept, scaled.value, 0.0), np.where(kept, scaled.error, 0.0))


def softmax_bounds(fmt, x, dy, rows):
    """Errors of a softmax over the channels of x, (N, H, W, C), and of the gradient of x: those of
    attention to keys and values that are an identity."""
    maps = [part.reshape(len(part), -1, 1, part.shape[3]) for part in (x, dy)]
    identity = np.broadcast_to(
        np.eye(x.shape[3])[:, np.newaxis], (len(x), x.shape[3], 1, x.shape[3])
    )
    y, dx, *_ = attention_bounds(
        fmt, maps[0], identity, identity, maps[1], heads=1, causal=False, scale=1.0, rows=rows
    )
    return y.reshape(x.shape), dx.reshape(x.shape)


def _shares(fmt, q, k, causal, scale, rows, mask):
    """The softmax as it is stored, (N * heads, Tk, Tq)."""
    scores = _product(Estimate.exact(k), Estimate.exact(q), "bkc,bqc->bkq", rows)
    scores = scores * Estimate.constant(scale)
    hidden = False
    if mask is not None:
        added = decode(fmt, encode(fmt, mask)).T
        hidden = np.isinf(added)
        scores = scores + Estimate.exact(np.where(hidden, 0.0, added))
    value = np.where(hidden, -np.inf, scores.value)
    if causal:
        behind = np.arange(value.shape[1])[:, np.newaxis] > np.arange(value.shape[2])
        value = np.where(behind, -np.inf, value)
    d = value - value.max(axis=1, keepdims=True)
    power = np.exp(d)
    total = power.sum(axis=1, keepdims=True)
    # The largest computed score may be another one, which is off by as much.
    most = scores.error.max(axis=1, keepdims=True)
    reach = np.where(np.isfinite(d), np.abs(d) + scores.error + most, 0.0)
    off = scores.error + _UNIT * reach
    # Powers so small are below 2**-118 in both.
    relative = np.expm1(np.minimum(off, 80)) + 2.0**-16 + reach * 2.0**-22
    relative = np.where(d + off < -85, 0.0, relative)
    additions = (-(-value.shape[1] // 8) + 5) * _UNIT
    relative = (1 + relative) * (1 + additions) / (1 - relative.max(axis=1, keepdims=True)) - 1
    share = power / total
    error = share * relative + _SMALL
    return Estimate(share, error).round(fmt)


def _product(a, b, axes, rows):
    """Products of operands, of which the first factor may be off."""
    value, reach, error = (
        np.einsum(axes, first, np.abs(b.value) if number else b.value)
        for number, first in enumerate((a.value, np.abs(a.value) + a.error, a.error))
    )
    inner = set(axes.split("->")[0].replace(",", "")) - set(axes.split("->")[1])
    count = dict(zip(axes.split(",")[0], a.value.shape, strict=True))[inner.pop()]
    terms = -(-count // rows) * rows
    return Estimate(value, error + dot_error_bound(reach, terms, rows))


def _by_head(values, heads):
    images, length, _, channels = np.shape(values)
    parts = np.reshape(values, (images, length, heads, channels // heads))
    return np.moveaxis(parts, 2, 1).reshape(images * heads, length, -1)


def _joined(parts, heads):
    parts = np.moveaxis(parts.reshape(-1, heads, *parts.shape[1:]), 1, 2)
    return parts.reshape(*parts.shape[:2], 1, -1)
