"""Normalisation over groups of channels of every image, forward and backward, bit for bit.

The executable form of the section "Group normalisation" of docs/training.md. Maps (N, H, W, C) are
operand codes; numbers of images and channels (N, C), and of channels (C,), are float32 bits.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FloatFormat

from .batch_norm import normalize, scale_and_shift
from .conv_general import contract
from .layer_norm import split

__all__ = ["GroupNormGradients", "GroupNormalized", "group_norm", "group_norm_backward"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupNormalized:
    """What the forward pass gives.

    Members
    -------
    output : (N, H, W, C) operand codes
    mean, inverse, a : (N, C); the inverse is that of the standard deviation, a times gamma
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    output: np.ndarray
    mean: np.ndarray
    inverse: np.ndarray
    a: np.ndarray
    flags: int


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupNormGradients:
    """What the backward pass gives: (N, H, W, C) operand codes of the input's gradient, (C,)
    float32 bits of those of gamma and beta, and the flags of everything."""

    input: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    flags: int


def group_norm(
    fmt: FloatFormat, x_bits, gamma, beta, *, groups: int, epsilon: float, rows: int
) -> GroupNormalized:
    """``x * a + b`` with a = gamma * inverse and b = beta - mean * a, of every image.

    mean is :func:`_group_mean` of the sums of x over the pixels, variance that of those of
    ``(x - mean)**2``, inverse ``1 / sqrt(variance + epsilon)``.
    """
    unit, x = VectorUnit(), _pixels(fmt, x_bits)
    share = groups / (x.shape[0] * x.shape[2])
    mean = _group_mean(fmt, unit.sum(x), groups, share, rows, unit)
    deviation = unit.subtract(x, mean)
    squares = unit.sum(unit.multiply(deviation, deviation))
    variance = _group_mean(fmt, squares, groups, share, rows, unit)
    factors, flags = scale_and_shift(mean, variance, gamma, beta, epsilon=epsilon)
    inverse, a, b = factors
    output, more = normalize(fmt, x_bits, _of_images(a), _of_images(b))
    return GroupNormalized(
        output=output, mean=mean, inverse=inverse, a=a, flags=unit.flags | flags | more
    )


def group_norm_backward(
    fmt: FloatFormat, x_bits, dy_bits, gamma, *, mean, inverse, a, groups: int, rows: int
) -> GroupNormGradients:
    """Gradients. Of every image, with d = x - mean:

        t = sum(dy)     s = sum(dy * d) * inverse     over the pixels
        A = group mean of t * gamma                   B = group mean of s * gamma
        c1 = -((inverse * B) * inverse)               c0 = -(mean * c1 + inverse * A)
        input = dy * a + (x * c1 + c0)

    scale and shift are the sums of s and t, image after image.
    """
    unit, x, dy = VectorUnit(), _pixels(fmt, x_bits), _pixels(fmt, dy_bits)
    share = groups / (x.shape[0] * x.shape[2])
    shift = unit.sum(dy)
    scale = unit.multiply(unit.sum(unit.multiply(dy, unit.subtract(x, mean))), inverse)
    of_shift, of_scale = (
        _group_mean(fmt, unit.multiply(part, gamma), groups, share, rows, unit)
        for part in (shift, scale)
    )
    c1 = negate(unit.multiply(unit.multiply(inverse, of_scale), inverse))
    c0 = negate(unit.add(unit.multiply(mean, c1), unit.multiply(inverse, of_shift)))
    dx = unit.add(unit.multiply(dy, a), unit.add(unit.multiply(x, c1), c0))
    totals = []
    for numbers in (scale, shift):
        total = numbers[0]
        for image in numbers[1:]:
            total = unit.add(total, image)
        totals.append(total)
    codes = unit.round(fmt, np.moveaxis(dx, 0, 1)).reshape(np.shape(x_bits))
    return GroupNormGradients(input=codes, scale=totals[0], shift=totals[1], flags=unit.flags)


def _group_mean(fmt, sums, groups, share, rows, unit):
    """(N, C): the sum over the channels of a group, times float32(``share``), of (N, C).

    Products with ones of the two parts of each number, see :func:`golden.layers.layer_norm.split`,
    from +0 on: K tiles of ``rows`` channels, of each first the rounded parts, then what is left.
    """
    channels = sums.shape[1]
    member = np.arange(channels) // (channels // groups)
    ones = encode(fmt, np.equal.outer(member, member))
    start = np.zeros(sums.shape, np.uint32)
    total, flags = contract(fmt, split(fmt, sums, unit), [ones, ones], start, 1, rows, None)
    unit.flags |= int(np.bitwise_or.reduce(flags, axis=None))
    return unit.multiply(total, constant(share))


def _pixels(fmt, codes):
    """Float32 bits (H * W, N, C)."""
    codes = np.asarray(codes)
    return np.moveaxis(widen(fmt, codes.reshape(len(codes), -1, codes.shape[3])), 1, 0)


def _of_images(numbers):
    return numbers[:, np.newaxis, np.newaxis]
