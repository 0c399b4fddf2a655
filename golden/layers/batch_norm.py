"""Batch normalisation, forward and backward, in float32 operations, bit for bit.

The executable form of the section "Batch normalisation" of docs/training.md. Maps (N, H, W, C) are
operand codes, everything per channel is float32 bits (C,). Sums over a channel's pixels are those
of :meth:`golden.arithmetic.float32_unit.VectorUnit.sum_map`; those of the statistics are
taken part by part of an image first.
"""

from dataclasses import dataclass, replace

import numpy as np

from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FloatFormat

__all__ = [
    "BatchStatistics",
    "NormalizeGradients",
    "batch_statistics",
    "combine",
    "normalize",
    "normalize_backward",
    "part_lines",
    "part_statistics",
    "scale_backward",
    "scale_and_shift",
    "update_running",
]

_ONE = constant(1.0)
#: Pixels of a part of an image at most, if a line has no more.
_PART_PIXELS = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchStatistics:
    """What a batch's pixels say about every channel.

    Members
    -------
    count : pixels of a channel
    mean, variance : (C,) float32 bits; the variance is the mean square deviation
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    count: int
    mean: np.ndarray
    variance: np.ndarray
    flags: int


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalizeGradients:
    """What the backward pass gives.

    Members
    -------
    input : (N, H, W, C) operand codes
    scale, shift : (C,) float32 bits, gradients of gamma and beta
    input_scale, input_shift : (C,) float32 bits, the factors c1 and c0 of the input's gradient
        ``dy * a + (x * c1 + c0)``
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    input: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    input_scale: np.ndarray
    input_shift: np.ndarray
    flags: int


def part_lines(height: int, width: int) -> int:
    """Lines of a part of an image: the most that divide its height and have 256 pixels or fewer, or
    one."""
    most = max(1, _PART_PIXELS // width)
    return next(lines for lines in range(min(most, height), 0, -1) if height % lines == 0)


def part_statistics(fmt: FloatFormat, x_bits) -> tuple[np.ndarray, int]:
    """Of each part of every image of ``x_bits``, which are :func:`part_lines` lines, in every
    channel, the mean of its pixels and the sum of the squares of deviations from it: float32 bits
    (2, N, parts, C), and flags."""
    pixels = _pixels(fmt, x_bits)
    images, height, width, channels = np.shape(x_bits)
    lines, unit = part_lines(height, width), VectorUnit()
    x = pixels.reshape(images * height // lines, lines * width, channels)
    means = unit.multiply(unit.sum_images(x), constant(1.0 / x.shape[1]))
    deviation = unit.subtract(x, means[:, None])
    squares = unit.sum_images(unit.multiply(deviation, deviation))
    return np.stack([means, squares]).reshape(2, images, -1, channels), unit.flags


def combine(statistics, *, count: int) -> BatchStatistics:
    """Mean and variance of ``count`` pixels from those of their parts; the flags are its own.

    The variance is that within parts and that of their means (Chan, Golub, LeVeque: Algorithms for
    computing the sample variance, 1983): so a map need not be read again when the mean of all its
    pixels is known.
    """
    means, squares = np.asarray(statistics, np.uint32)
    unit, share = VectorUnit(), constant(1.0 / (means.shape[0] * means.shape[1]))
    mean = unit.multiply(unit.sum_map(means), share)
    within = unit.multiply(unit.sum_map(squares), constant(1.0 / count))
    deviation = unit.subtract(means, mean)
    between = unit.multiply(unit.sum_map(unit.multiply(deviation, deviation)), share)
    variance = unit.add(between, within)
    return BatchStatistics(count=count, mean=mean, variance=variance, flags=unit.flags)


def batch_statistics(fmt: FloatFormat, x_bits) -> BatchStatistics:
    """Mean and variance of every channel of ``x_bits``, from those of its parts."""
    statistics, flags = part_statistics(fmt, x_bits)
    result = combine(statistics, count=int(np.prod(np.shape(x_bits)[:3])))
    return replace(result, flags=result.flags | flags)


def scale_and_shift(mean, variance, gamma, beta, *, epsilon):
    """``(inverse, a, b)`` of the normalisation ``y = x * a + b``, and flags.

    inverse = 1 / sqrt(variance + epsilon), a = gamma * inverse, b = beta - mean * a. ``epsilon``
    is a real number. In evaluation mode mean and variance are the running ones.
    """
    unit = VectorUnit()
    root = unit.square_root(unit.add(variance, constant(epsilon)))
    inverse = unit.divide(_ONE, root)
    a = unit.multiply(gamma, inverse)
    return (inverse, a, unit.subtract(beta, unit.multiply(mean, a))), unit.flags


def normalize(fmt: FloatFormat, x_bits, a, b):
    """``x * a + b``, two float32 roundings, then one to operands: codes and flags."""
    unit = VectorUnit()
    y = unit.add(unit.multiply(widen(fmt, x_bits), a), b)
    return unit.round(fmt, y), unit.flags


def normalize_backward(fmt: FloatFormat, x_bits, dy_bits, *, mean, inverse, a, rows=None):
    """Gradients of a normalisation with the batch's own statistics.

    With ``rows``, numbers of images, dy is that of a sample: the sums are those of these images, in
    this order, and of others input = x * c1 + c0.

    With d = x - mean and r = float32(1 / count):

        shift = sum(dy)                       scale = sum(dy * d) * inverse
        c1 = -((a * inverse) * (scale * r))   c0 = -(a * (shift * r) + mean * c1)
        input = dy * a + (x * c1 + c0)
    """
    x, dy = _pixels(fmt, x_bits), _pixels(fmt, dy_bits)
    if x.shape != dy.shape:
        raise ValueError(
            f"x and dy must have one shape, not {np.shape(x_bits)} and {np.shape(dy_bits)}"
        )
    unit, reciprocal = VectorUnit(), constant(1.0 / (x.shape[0] * x.shape[1]))
    some = slice(None) if rows is None else np.asarray(rows)
    shift = unit.sum_map(dy[some])
    products = unit.multiply(dy[some], unit.subtract(x[some], mean))
    scale = unit.multiply(unit.sum_map(products), inverse)
    c1 = negate(unit.multiply(unit.multiply(a, inverse), unit.multiply(scale, reciprocal)))
    from_shift = unit.multiply(a, unit.multiply(shift, reciprocal))
    c0 = negate(unit.add(from_shift, unit.multiply(mean, c1)))
    dx = unit.add(unit.multiply(x, c1), c0)
    dx[some] = unit.add(unit.multiply(dy[some], a), dx[some])
    return NormalizeGradients(
        input=unit.round(fmt, dx).reshape(np.shape(x_bits)),
        scale=scale,
        shift=shift,
        input_scale=c1,
        input_shift=c0,
        flags=unit.flags,
    )


def scale_backward(fmt: FloatFormat, x_bits, dy_bits, *, mean, inverse, a):
    """Gradients of ``x * a + b`` whose mean and variance are no statistics of the batch.

    shift and scale as in :func:`normalize_backward`; input = dy * a: codes and flags.
    """
    x, dy, unit = _pixels(fmt, x_bits), _pixels(fmt, dy_bits), VectorUnit()
    shift = unit.sum_map(dy)
    scale = unit.multiply(unit.sum_map(unit.multiply(dy, unit.subtract(x, mean))), inverse)
    dx = unit.round(fmt, unit.multiply(dy, a)).reshape(np.shape(x_bits))
    return dx, scale, shift, unit.flags


def update_running(running_mean, running_variance, statistics: BatchStatistics, *, momentum):
    """New running mean and variance, ``r + m * (s - r)``: ((mean, variance), flags).

    The variance counts without bias: first it is multiplied by float32(count / (count - 1)).
    ``momentum`` is a real number, as torch's.
    """
    if statistics.count < 2:
        raise ValueError("Batch normalisation needs more than one pixel per channel in training")
    unit, rate = VectorUnit(), constant(momentum)
    factor = constant(statistics.count / (statistics.count - 1))
    variance = unit.multiply(statistics.variance, factor)
    new = tuple(
        unit.add(running, unit.multiply(rate, unit.subtract(value, running)))
        for running, value in ((running_mean, statistics.mean), (running_variance, variance))
    )
    return new, unit.flags


def _pixels(fmt, codes):
    """Float32 bits (N, H * W, C)."""
    codes = np.asarray(codes)
    if codes.ndim != 4:
        raise ValueError(f"A map must have shape (N, H, W, C), not {codes.shape}")
    return widen(fmt, codes.reshape(len(codes), -1, codes.shape[3]))
