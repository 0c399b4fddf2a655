"""Bounds of layers without parameters, given their stored operands; see ``bounds``.

Each function takes the layer's operands as :class:`golden.arithmetic.running_error.Estimate` s and
its options, and returns the errors of the output and of the gradients of the inputs, before they
are rounded to operands. Layers that round nothing are not here.
"""

import numpy as np

from golden.arithmetic.running_error import Estimate

from . import bounds

__all__ = ["map_bounds"]


def map_bounds(kind: str, inputs, dy: Estimate, options):
    """(error of the output, [errors of the gradients of ``inputs``]) of a layer of this kind."""
    if kind not in _BOUNDS:
        return 0.0, [0.0] * len(inputs)
    y, gradients = _BOUNDS[kind](*inputs, dy, **options)
    return y, [part.error if isinstance(part, Estimate) else part for part in gradients]


def _average_pool(x, dy, **options):
    dx = bounds.average_pool_backward(dy, input_size=x.value.shape[1:3], **options)
    return bounds.average_pool(x, **options).error, [dx]


def _max_pool(x, dy, **options):
    return 0.0, [bounds.pool_backward_error(dy, x.value, **options)]


def _upsample(x, dy, factor):
    window = {"kernel": factor, "stride": factor, "divisor": 1}
    return 0.0, [bounds.average_pool(dy, **window)]


def _add(a, b, dy, scale=1.0):
    constant = Estimate.constant(scale)
    if scale == 1.0:
        return (a + b).error, [0.0, 0.0]
    return (a + b * constant).error, [0.0, dy * constant]


def _multiply(a, b, dy):
    return (a * b).error, [dy * b, dy * a]


def _affine(x, dy, factor, offset):
    product = x * Estimate.constant(factor)
    total = product + Estimate.constant(offset) if offset else product
    return total.error, [dy * Estimate.constant(factor)]


def _dropout(x, dy, p, whole, stream):
    """Of what is kept; the rest is 0."""
    scale = Estimate.constant(1.0 / (1.0 - p))
    return (x * scale).error, [dy * scale]


def _leaky_relu(x, dy, slope):
    constant, below = Estimate.constant(slope), x.value <= 0
    return (x * constant).where(below).error, [(dy * constant).where(below)]


def _gate(x):
    """``x + 3`` between 0 and 6: clamping moves no two numbers apart."""
    total = x + Estimate.exact(3.0)
    return Estimate(np.clip(total.value, 0.0, 6.0), total.error)


def _hardsigmoid(x, dy):
    sixth, inside = Estimate.constant(1 / 6), np.abs(x.value) < 3
    return (_gate(x) * sixth).error, [(dy * sixth).where(inside)]


def _hardswish(x, dy):
    slope = x * Estimate.constant(1 / 3) + Estimate.exact(0.5)
    inside = np.abs(x.value) < 3
    y = (x * _gate(x)) * Estimate.constant(1 / 6)
    return y.error, [(dy * slope).where(inside)]


_BOUNDS = {
    "average_pool": _average_pool,
    "max_pool": _max_pool,
    "upsample": _upsample,
    "add": _add,
    "multiply": _multiply,
    "affine": _affine,
    "dropout": _dropout,
    "leaky_relu": _leaky_relu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
}
