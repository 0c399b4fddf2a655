"""Layers that compute every element by itself, and concatenation, bit for bit.

The executable form of the sections "Clamp" to "Concatenation" of docs/training.md. Maps are arrays
of operand codes of any shape. Functions return codes and the union of their
:class:`golden.arithmetic.dot_product.Flags` (int), unless nothing is computed.
"""

import numpy as np

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

__all__ = [
    "add_scaled",
    "affine",
    "clamp",
    "clamp_mask",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "leaky_relu",
    "leaky_relu_backward",
    "multiply",
]

_ZERO, _HALF, _THREE, _SIX = (constant(value) for value in (0.0, 0.5, 3.0, 6.0))
_SIXTH, _THIRD = constant(1 / 6), constant(1 / 3)


def clamp(fmt: FloatFormat, x_bits, *, low: float, high: float) -> np.ndarray:
    """Codes within the limits, which are rounded to operands; NaN stays.

    A zero, of either sign, is +0 where a limit is zero; subnormal codes are zeros.
    """
    x = np.asarray(x_bits)
    values = decode(fmt, x)
    limits = [encode(fmt, limit) for limit in (low, high)]
    (small, least), (large, most) = ((code, decode(fmt, code)) for code in limits)
    with np.errstate(invalid="ignore"):
        result = np.where(values > least, encode(fmt, values), small)
        result = np.where(values >= most, large, result)
    result = np.where(np.isnan(values), fmt.nan, result)
    zero = (least == 0) | (most == 0)
    return np.where(zero & (decode(fmt, result) == 0), 0, result).astype(x.dtype)


def clamp_mask(fmt: FloatFormat, y_bits, *, low: float, high: float) -> np.ndarray:
    """True where a stored output lets the gradient through: between the limits, or NaN."""
    y = decode(fmt, y_bits)
    least, most = (decode(fmt, encode(fmt, limit)) for limit in (low, high))
    return ~((y <= least) | (y >= most))


def leaky_relu(fmt: FloatFormat, x_bits, *, slope: float):
    """Negative numbers times float32(``slope``), rounded; others, and NaN, as they are."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    result, below = x.copy(), decode(FLOAT32, x) < 0
    result[below] = unit.multiply(x[below], constant(slope))
    return unit.round(fmt, result), unit.flags


def leaky_relu_backward(fmt: FloatFormat, dy_bits, y_bits, *, slope: float):
    """``dy_bits`` where the stored output is positive or NaN, elsewhere times float32(``slope``).

    The product is computed everywhere, so its flags are those of all elements.
    """
    unit, y = VectorUnit(), decode(fmt, y_bits)
    below = unit.round(fmt, unit.multiply(widen(fmt, dy_bits), constant(slope)))
    return np.where((y > 0) | np.isnan(y), dy_bits, below).astype(below.dtype), unit.flags


def hardsigmoid(fmt: FloatFormat, x_bits):
    """``x + 3`` between 0 and 6, times float32(1/6), rounded to operands at the end."""
    unit = VectorUnit()
    gate = _gate(unit, widen(fmt, x_bits))
    return unit.round(fmt, unit.multiply(gate, _SIXTH)), unit.flags


def hardsigmoid_backward(fmt: FloatFormat, dy_bits, x_bits):
    """``dy * float32(1/6)`` where ``x`` is between -3 and 3 or NaN, +0 elsewhere."""
    unit, x = VectorUnit(), decode(fmt, x_bits)
    inside = ~((x <= -3) | (x >= 3))
    slope = unit.multiply(widen(fmt, dy_bits), _SIXTH)
    return unit.round(fmt, np.where(inside, slope, _ZERO)), unit.flags


def hardswish(fmt: FloatFormat, x_bits):
    """``x`` times the clamped ``x + 3``, times float32(1/6), rounded to operands at the end."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    product = unit.multiply(x, _gate(unit, x))
    return unit.round(fmt, unit.multiply(product, _SIXTH)), unit.flags


def hardswish_backward(fmt: FloatFormat, dy_bits, x_bits):
    """+0 up to ``x`` = -3; below 3, or for NaN, ``dy * (x * float32(1/3) + 0.5)``; then ``dy``."""
    unit, x, dy = VectorUnit(), widen(fmt, x_bits), widen(fmt, dy_bits)
    slope = unit.add(unit.multiply(x, _THIRD), _HALF)
    inner = unit.multiply(dy, slope)
    values = decode(FLOAT32, x)
    result = np.where(values >= 3, dy, inner)
    return unit.round(fmt, np.where(values <= -3, _ZERO, result)), unit.flags


def multiply(fmt: FloatFormat, a_bits, b_bits):
    """Float32 product, rounded to operands."""
    unit = VectorUnit()
    return unit.round(fmt, unit.multiply(widen(fmt, a_bits), widen(fmt, b_bits))), unit.flags


def add_scaled(fmt: FloatFormat, a_bits, b_bits, *, scale: float):
    """``a + b * float32(scale)``: the product is rounded, then the sum, then to operands."""
    unit = VectorUnit()
    product = unit.multiply(widen(fmt, b_bits), constant(scale))
    return unit.round(fmt, unit.add(product, widen(fmt, a_bits))), unit.flags


def affine(fmt: FloatFormat, x_bits, *, factor: float, offset: float = 0.0):
    """``x * float32(factor) + float32(offset)``, in two operations, or one if ``offset`` is 0."""
    unit = VectorUnit()
    result = unit.multiply(widen(fmt, x_bits), constant(factor))
    if offset:
        result = unit.add(result, constant(offset))
    return unit.round(fmt, result), unit.flags


def _gate(unit, x):
    """Float32 ``x + 3`` between +0 and 6; NaN stays."""
    total = unit.add(x, _THREE)
    values = decode(FLOAT32, total)
    result = np.where(values > 0, total, _ZERO)
    result = np.where(values >= 6, _SIX, result)
    return np.where(np.isnan(values), np.uint32(FLOAT32.nan), result)
