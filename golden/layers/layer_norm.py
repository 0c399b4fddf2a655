"""Layer normalisation over the channels of every pixel, forward and backward, bit for bit.

The executable form of the section "Layer normalisation" of docs/training.md. Maps (N, H, W, C) are
operand codes, mean and inverse (N, H, W) and everything per channel (C,) are float32 bits.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FloatFormat

from .conv_general import contract

__all__ = [
    "LayerNormGradients",
    "Normalized",
    "channel_mean",
    "layer_norm",
    "layer_norm_backward",
    "split",
]

_ONE = constant(1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalized:
    """What the forward pass gives.

    Members
    -------
    output : (N, H, W, C) operand codes
    mean, inverse : (N, H, W) float32 bits; the inverse is that of the standard deviation
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    output: np.ndarray
    mean: np.ndarray
    inverse: np.ndarray
    flags: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNormGradients:
    """What the backward pass gives.

    Members
    -------
    input : (N, H, W, C) operand codes
    scale, shift : (C,) float32 bits, gradients of gamma and beta
    flags : of everything
    """

    input: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    flags: int


def layer_norm(fmt: FloatFormat, x_bits, gamma, beta, *, epsilon: float, rows: int) -> Normalized:
    """``((x - mean) * inverse) * gamma + beta``.

    mean is :func:`channel_mean` of x, variance that of the two parts of ``(x - mean)**2``, inverse
    the sum of the two parts of ``1 / sqrt(variance + epsilon)``.
    """
    unit = VectorUnit()
    x = widen(fmt, x_bits)
    mean = channel_mean(fmt, [x_bits], rows, unit)
    deviation = unit.subtract(x, mean[..., np.newaxis])
    parts = split(fmt, unit.multiply(deviation, deviation), unit)
    variance = channel_mean(fmt, parts, rows, unit)
    root = unit.square_root(unit.add(variance, constant(epsilon)))
    parts = split(fmt, unit.divide(_ONE, root)[..., np.newaxis], unit)
    inverse = channel_mean(fmt, parts, rows, unit)
    scaled = unit.multiply(unit.multiply(deviation, inverse[..., np.newaxis]), gamma)
    output = unit.round(fmt, unit.add(scaled, beta))
    return Normalized(output=output, mean=mean, inverse=inverse, flags=unit.flags)


def layer_norm_backward(
    fmt: FloatFormat, x_bits, dy_bits, gamma, *, mean, inverse, rows: int
) -> LayerNormGradients:
    """Gradients, with e = (x - mean) * inverse and g = dy * gamma:

        input = ((g - mean(g)) - e * mean(g * e)) * inverse
        scale = sum(dy * e)        shift = sum(dy)

    The means over channels are :func:`channel_mean` of two parts, the sums those over a map.
    """
    unit = VectorUnit()
    x, dy = widen(fmt, x_bits), widen(fmt, dy_bits)
    mean, inverse = np.asarray(mean)[..., np.newaxis], np.asarray(inverse)[..., np.newaxis]
    e = unit.multiply(unit.subtract(x, mean), inverse)
    g = unit.multiply(dy, gamma)
    c1 = channel_mean(fmt, split(fmt, g, unit), rows, unit)[..., np.newaxis]
    c2 = channel_mean(fmt, split(fmt, unit.multiply(g, e), unit), rows, unit)[..., np.newaxis]
    dx = unit.subtract(unit.subtract(g, c1), unit.multiply(e, c2))
    pixels = len(x), -1, x.shape[3]
    return LayerNormGradients(
        input=unit.round(fmt, unit.multiply(dx, inverse)),
        scale=unit.sum_map(unit.multiply(dy, e).reshape(pixels)),
        shift=unit.sum_map(dy.reshape(pixels)),
        flags=unit.flags,
    )


def split(fmt: FloatFormat, values, unit: VectorUnit):
    """Float32 numbers as two operands: the rounded one, and what is left of them, rounded."""
    high = unit.round(fmt, values)
    return high, unit.round(fmt, unit.subtract(values, widen(fmt, high)))


def channel_mean(fmt: FloatFormat, parts, rows: int, unit: VectorUnit):
    """Mean (N, H, W) over the channels of the sum of maps of operands (N, H, W, C).

    Products with ones, from +0 on: K tiles of ``rows`` channels of the first map in order, then
    those of the others; the sum times float32(1 / C).
    """
    *shape, channels = parts[0].shape
    ones = np.broadcast_to(encode(fmt, 1.0), (channels, 1))
    sums = np.zeros((int(np.prod(shape)), 1), np.uint32)
    for part in parts:
        sums, flags = contract(fmt, [part.reshape(-1, channels)], [ones], sums, 1, rows, 1)
        unit.flags |= int(np.bitwise_or.reduce(flags, axis=None))
    return unit.multiply(sums, constant(1.0 / channels)).reshape(shape)
