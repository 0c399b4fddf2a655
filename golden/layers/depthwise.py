"""Depthwise convolution and its gradients on bit patterns: float32 operations of the vector unit.

The executable form of the section "Depthwise convolution" of docs/training.md. Maps are
channels-last arrays of operand codes (N, H, W, C), weights (C, 1, KH, KW) operand codes, as torch
shapes them. Results are float32 bits and the union of their
:class:`golden.arithmetic.dot_product.Flags` (int). Neither the rows nor the columns of an array
matter.

Every function takes the operand format first, and ``stride``, ``padding`` and ``dilation`` of the
forward convolution: one number or (vertical, horizontal). Shapes that do not fit each other raise
``ValueError``.
"""

import numpy as np

from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .conv_general import check_maps, check_output
from .windows import Windows

__all__ = [
    "depthwise",
    "depthwise_bias_gradient",
    "depthwise_input_gradient",
    "depthwise_weight_gradient",
]


def depthwise(fmt: FloatFormat, x_bits, weight_bits, bias_bits=None, **geometry):
    """Sums (N, HO, WO, C): from the bias (or +0) on, tap by tap, a product and an addition each.

    Taps outside the map add nothing. ``bias_bits`` (C,) are float32 bits.
    """
    x = np.asarray(x_bits)
    taps = _taps(fmt, weight_bits, x=x)
    windows = Windows(x.shape, np.shape(weight_bits)[2:], **geometry)
    start = np.zeros(x.shape[3], np.uint32) if bias_bits is None else np.asarray(bias_bits)
    if start.shape != x.shape[3:]:
        raise ValueError(f"bias must have shape {x.shape[3:]}, not {start.shape}")
    unit, x = VectorUnit(), widen(fmt, x)
    total = np.broadcast_to(widen(FLOAT32, start), windows.shape).copy()
    for place, outputs, pixels in windows.places():
        product = unit.multiply(x[:, *pixels], taps[place])
        total[:, *outputs] = unit.add(product, total[:, *outputs])
    return total, unit.flags


def depthwise_input_gradient(fmt: FloatFormat, dy_bits, weight_bits, *, input_size, **geometry):
    """Sums (N, H, W, C) from the gradient (N, HO, WO, C) of the output, from +0 on.

    A pixel adds the products of the windows that have it, by rows of windows, so its last tap
    first; other windows add nothing.

    Parameters
    ----------
    input_size : (H, W) of the input map
    """
    dy = np.asarray(dy_bits)
    taps = _taps(fmt, weight_bits, dy=dy)
    shape = (len(dy), *input_size, dy.shape[3])
    windows = Windows(shape, np.shape(weight_bits)[2:], **geometry)
    check_output(dy.shape, windows.shape)
    unit, dy = VectorUnit(), widen(fmt, dy)
    total = np.zeros(shape, np.uint32)
    for place, outputs, pixels in reversed(windows.places()):
        product = unit.multiply(dy[:, *outputs], taps[place])
        total[:, *pixels] = unit.add(product, total[:, *pixels])
    return total, unit.flags


def depthwise_weight_gradient(fmt: FloatFormat, x_bits, dy_bits, *, kernel, **geometry):
    """Gradient (C, 1, KH, KW): for each tap the *sum* of x * dY over the map of outputs.

    Only outputs whose tap lies inside the map count; a tap without any is +0.

    Parameters
    ----------
    x_bits, dy_bits : (N, H, W, C) and (N, HO, WO, C) operand codes
    kernel : (KH, KW) or one number
    """
    x, dy = np.asarray(x_bits), np.asarray(dy_bits)
    check_maps(fmt, x=x, dy=dy)
    windows = Windows(x.shape, kernel, **geometry)
    check_output(dy.shape, windows.shape)
    unit, channels = VectorUnit(), x.shape[3]
    x, dy = widen(fmt, x), widen(fmt, dy)
    result = np.zeros((channels, 1, windows.kernel[0] * windows.kernel[1]), np.uint32)
    for place, outputs, pixels in windows.places():
        products = unit.multiply(x[:, *pixels], dy[:, *outputs])
        result[:, 0, place] = unit.sum_map(products.reshape(len(x), -1, channels))
    return result.reshape(channels, 1, *windows.kernel), unit.flags


def depthwise_bias_gradient(fmt: FloatFormat, dy_bits):
    """Gradient (C,) of the bias: the *sum* of dY (N, HO, WO, C) over the map."""
    dy, unit = np.asarray(dy_bits), VectorUnit()
    check_maps(fmt, dy=dy)
    return unit.sum_map(widen(fmt, dy).reshape(len(dy), -1, dy.shape[3])), unit.flags


def _taps(fmt, weight_bits, **maps):
    """Float32 bits (KH * KW, C) of the weights, for a map that has to fit them."""
    weights = np.asarray(weight_bits)
    check_maps(fmt, **maps)
    (values,) = maps.values()
    if weights.ndim != 4 or weights.shape[:2] != (values.shape[3], 1):
        raise ValueError(
            f"weights must have shape ({values.shape[3]}, 1, KH, KW), not {weights.shape}"
        )
    return widen(fmt, weights).reshape(len(weights), -1).T
