"""Bounds of layer and group normalisation, given their stored operands; see ``bounds``.

A float32 number v is split in two operands: h is v rounded, l is v - h rounded. With r the bound of
rounding v, h + l is off by the float32 error of the difference, which is at most r, and by rounding
l: the two of r, not of v.
"""

import numpy as np

from golden.arithmetic.dot_product import dot_error_bound
from golden.arithmetic.formats import FLOAT32
from golden.arithmetic.running_error import Estimate, map_sum, rounding_error

__all__ = ["group_norm_bounds", "layer_norm_bounds"]


def layer_norm_bounds(fmt, x: Estimate, dy: Estimate, gamma, beta, *, epsilon, rows):
    """Errors of the output and of the gradients of the input, gamma and beta, all before they are
    rounded to operands.

    Parameters
    ----------
    x, dy : (N, H, W, C) exact operands
    gamma, beta : (C,) exact
    """
    mean = _spread(_mean(x.value, np.abs(x.value), np.zeros(x.value.shape), 1, rows))
    deviation = x - mean
    variance = _spread(_split_mean(fmt, deviation * deviation, rows))
    inverse = Estimate.exact(1.0) / (variance + Estimate.constant(epsilon)).root()
    inverse = _spread(_split_mean(fmt, inverse, rows))
    e = deviation * inverse
    g = dy * gamma
    c1, c2 = (_spread(_split_mean(fmt, part, rows)) for part in (g, g * e))
    dx = ((g - c1) - e * c2) * inverse
    images, pixels = len(x.value), int(np.prod(x.value.shape[1:3]))
    sums = []
    for part in (dy * e, dy):
        error = np.broadcast_to(part.error, x.value.shape)
        if part is dy:
            error = np.zeros(x.value.shape)
        total = [v.sum(axis=(0, 1, 2)) for v in (part.value, np.abs(part.value) + error, error)]
        sums.append(map_sum(*total, images, pixels).error)
    return (e * gamma + beta).error, dx.error, *sums


def _split_mean(fmt, v: Estimate, rows):
    magnitude = np.abs(v.value) + v.error
    rest = rounding_error(fmt, magnitude)
    left = rest * (1 + 2.0**-24) + FLOAT32.min_normal
    error = v.error + 2.0**-24 * rest + FLOAT32.min_normal + rounding_error(fmt, left)
    return _mean(v.value, magnitude + 3 * left, error, 2, rows)


def _mean(value, magnitude, error, parts, rows):
    """The mean over channels of numbers that are products with ones of so many parts."""
    channels = value.shape[3]
    terms = parts * -(-channels // rows) * rows
    reach = magnitude.sum(axis=3)
    total = Estimate(value.sum(axis=3), error.sum(axis=3) + dot_error_bound(reach, terms, rows))
    return total * Estimate.constant(1.0 / channels)


def _spread(number: Estimate) -> Estimate:
    return Estimate(number.value[..., np.newaxis], number.error[..., np.newaxis])


def group_norm_bounds(fmt, x: Estimate, dy: Estimate, gamma, beta, *, groups, epsilon, rows):
    """The same of a normalisation over groups of the channels of every image."""
    shape = x.value.shape
    x, dy = (_pixels_first(part) for part in (x, dy))
    share = Estimate.constant(groups / (len(x.value) * shape[3]))
    # Sums over the pixels, then over the channels of a group: (images, channels).
    mean = _group_sum(fmt, x.sum(), groups, rows) * share
    deviation = x - mean
    variance = _group_sum(fmt, (deviation * deviation).sum(), groups, rows) * share
    inverse = Estimate.exact(1.0) / (variance + Estimate.constant(epsilon)).root()
    a = gamma * inverse
    y = x * a + (beta - mean * a)
    shift, scale = dy.sum(), (dy * deviation).sum() * inverse
    of_shift, of_scale = (
        _group_sum(fmt, part * gamma, groups, rows) * share for part in (shift, scale)
    )
    c1 = -((inverse * of_scale) * inverse)
    dx = dy * a + (x * c1 - (mean * c1 + inverse * of_shift))
    totals = []
    for part in (scale, shift):
        total = part[0]
        for image in range(1, shape[0]):
            total = total + part[image]
        totals.append(total.error)
    return *(np.moveaxis(part.error, 0, 1).reshape(shape) for part in (y, dx)), *totals


def _pixels_first(part: Estimate) -> Estimate:
    """(pixels, images, channels)."""
    images, *_, channels = part.value.shape
    value = np.moveaxis(part.value.reshape(images, -1, channels), 1, 0)
    return Estimate(value, np.zeros(value.shape))


def _group_sum(fmt, v: Estimate, groups, rows):
    """Sums over the channels of a group, of two parts of each number, for each channel."""
    magnitude = np.abs(v.value) + v.error
    rest = rounding_error(fmt, magnitude)
    left = rest * (1 + 2.0**-24) + FLOAT32.min_normal
    error = v.error + 2.0**-24 * rest + FLOAT32.min_normal + rounding_error(fmt, left)
    images, channels = v.value.shape
    terms = 2 * -(-channels // rows) * rows

    def of_groups(values):
        sums = values.reshape(images, groups, -1).sum(axis=2)
        return np.repeat(sums, channels // groups, axis=1)

    reach = of_groups(magnitude + 3 * left)
    return Estimate(of_groups(v.value), of_groups(error) + dot_error_bound(reach, terms, rows))
