"""Layers without parameters: what a node of each kind computes, forward and backward.

``forward(fmt, node, maps)`` returns the stored map and its flags; ``backward(fmt, node, dy, maps,
y)`` the gradients of the maps that the node reads, and the flags. All are operand codes.
"""

import numpy as np

from golden.layers import concatenation, elementwise_pool, pointwise, smooth
from golden.layers.dropout import dropout

__all__ = ["MAP_KINDS", "backward", "forward"]


def forward(fmt, node, maps, seed=None, **array):
    """(codes, flags) of what a node makes of the stored maps that it reads; ``seed`` is that of the
    random numbers of the batch, None in evaluation; ``array`` what
    :func:`golden.layers.concatenation.concatenate` knows of it."""
    if node.kind == "concatenate":
        return concatenation.concatenate(fmt, maps, **array)
    if node.kind == "slice":
        return concatenation.take(fmt, *maps, **node.options, **array)
    if node.kind == "dropout":
        return (maps[0], 0) if seed is None else dropout(fmt, *maps, **node.options, seed=seed)
    return _FORWARD[node.kind](fmt, maps, **node.options)


def backward(fmt, node, dy, maps, y, seed=None, **array):
    """([codes] of the gradients of ``maps``, flags); ``y`` is what the node stored, the rest as for
    :func:`forward`."""
    if node.kind == "concatenate":
        return concatenation.split(fmt, dy, [part.shape[3] for part in maps], **array)
    if node.kind == "slice":
        size, rows = maps[0].shape[3], array["rows"]
        return _alone(concatenation.put(fmt, dy, size, **node.options, rows=rows))
    if node.kind == "dropout":
        return _alone(dropout(fmt, dy, **node.options, seed=seed))
    return _BACKWARD[node.kind](fmt, dy, maps, y, **node.options)


def _relu_backward(fmt, dy, maps, y):
    return [_masked(dy, elementwise_pool.relu_mask(fmt, y))], 0


def _clamp_backward(fmt, dy, maps, y, **limits):
    return [_masked(dy, pointwise.clamp_mask(fmt, y, **limits))], 0


def _masked(dy, mask):
    return np.where(mask, dy, 0).astype(dy.dtype)


def _max_pool_backward(fmt, dy, maps, y, **window):
    return _alone(elementwise_pool.max_pool_backward(fmt, maps[0], dy, **window))


def _average_pool_backward(fmt, dy, maps, y, **window):
    size = maps[0].shape[1:3]
    return _alone(elementwise_pool.average_pool_backward(fmt, dy, input_size=size, **window))


def _passed_on(fmt, dy, maps, y):
    return [dy] * len(maps), 0


def _add(fmt, maps, scale=1.0):
    if scale == 1.0:
        return elementwise_pool.residual_add(fmt, *maps)
    return pointwise.add_scaled(fmt, *maps, scale=scale)


def _add_backward(fmt, dy, maps, y, scale=1.0):
    second, flags = _scaled(fmt, dy, scale)
    return [dy, second], flags


def _affine_backward(fmt, dy, maps, y, factor, offset):
    return _alone(_scaled(fmt, dy, factor))


def _scaled(fmt, dy, factor):
    return (dy, 0) if factor == 1.0 else pointwise.affine(fmt, dy, factor=factor)


def _multiply_backward(fmt, dy, maps, y):
    parts = [pointwise.multiply(fmt, dy, other) for other in reversed(maps)]
    return [codes for codes, _ in parts], parts[0][1] | parts[1][1]


def _upsample(fmt, maps, factor):
    return np.repeat(np.repeat(maps[0], factor[0], axis=1), factor[1], axis=2), 0


def _upsample_backward(fmt, dy, maps, y, factor):
    """The sums of windows that share no pixel."""
    return _alone(elementwise_pool.average_pool(fmt, dy, kernel=factor, divisor=1))


def _alone(result):
    codes, flags = result
    return [codes], flags


def _smooth_forward(function):
    return lambda fmt, maps, **options: function(fmt, *maps, **options)


def _smooth_backward(function):
    """Forward stores the derivative, rounded to operands."""

    def backward(fmt, dy, maps, y, **options):
        return _alone(smooth.derivative(function, fmt, dy, *maps, **options))

    return backward


_SMOOTH = {
    "sigmoid": smooth.sigmoid,
    "tanh": smooth.tanh,
    "silu": smooth.silu,
    "gelu": smooth.gelu,
    "softplus": smooth.softplus,
}
_FORWARD = {
    **{kind: _smooth_forward(function) for kind, function in _SMOOTH.items()},
    "flatten": lambda fmt, maps: (maps[0], 0),
    "add": _add,
    "multiply": lambda fmt, maps: pointwise.multiply(fmt, *maps),
    "affine": lambda fmt, maps, **numbers: pointwise.affine(fmt, *maps, **numbers),
    "relu": lambda fmt, maps: (elementwise_pool.relu(fmt, *maps), 0),
    "clamp": lambda fmt, maps, **limits: (pointwise.clamp(fmt, *maps, **limits), 0),
    "max_pool": lambda fmt, maps, **window: (elementwise_pool.max_pool(fmt, *maps, **window), 0),
    "average_pool": lambda fmt, maps, **w: elementwise_pool.average_pool(fmt, *maps, **w),
    "leaky_relu": lambda fmt, maps, slope: pointwise.leaky_relu(fmt, *maps, slope=slope),
    "hardsigmoid": lambda fmt, maps: pointwise.hardsigmoid(fmt, *maps),
    "hardswish": lambda fmt, maps: pointwise.hardswish(fmt, *maps),
    "upsample": _upsample,
}
_BACKWARD = {
    **{kind: _smooth_backward(function) for kind, function in _SMOOTH.items()},
    "flatten": _passed_on,
    "add": _add_backward,
    "multiply": _multiply_backward,
    "affine": _affine_backward,
    "relu": _relu_backward,
    "clamp": _clamp_backward,
    "max_pool": _max_pool_backward,
    "average_pool": _average_pool_backward,
    "leaky_relu": lambda fmt, dy, maps, y, slope: _alone(
        pointwise.leaky_relu_backward(fmt, dy, y, slope=slope)
    ),
    "hardsigmoid": lambda fmt, dy, maps, y: _alone(pointwise.hardsigmoid_backward(fmt, dy, *maps)),
    "hardswish": lambda fmt, dy, maps, y: _alone(pointwise.hardswish_backward(fmt, dy, *maps)),
    "upsample": _upsample_backward,
}
#: Kinds of nodes that these functions know.
MAP_KINDS = (*_FORWARD, "concatenate", "dropout", "slice")
