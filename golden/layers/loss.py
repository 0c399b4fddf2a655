"""Losses and their gradients in float32 operations, bit for bit.

The executable form of the section "Loss" of docs/training.md. Outputs of the network are float32
bits, gradients are rounded to operands once.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import Flags, decode, encode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant, negate
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .smooth import logistic, logistic_loss

__all__ = [
    "LossResult",
    "LossRows",
    "binary_cross_entropy",
    "cross_entropy",
    "cross_entropy_rows",
    "logarithm",
    "mean_squared_error",
    "squared_error_rows",
]

_ONE = constant(1.0)
_MANTISSA = (1 << FLOAT32.mantissa_bits) - 1
#: Fraction of the square root of 2, cut.
_ROOT_FRACTION = 0x3504F3
#: ln 2 as a number of 15 bits, so that its products with exponents are exact, and the rest.
_LN2_HIGH = constant(0x58B9 / 2**15)
_LN2_LOW = constant(np.log(2.0) - 0x58B9 / 2**15)


@dataclass(frozen=True, kw_only=True, eq=False)
class LossResult:
    """Loss of a batch.

    Members
    -------
    value : float32 bits (uint32 scalar)
    gradient : operand codes, of the shape of the network's output; None of a sum of losses
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    probabilities : float32 bits (N, classes) of cross-entropy, else None
    correct : images whose largest logit is the label's, of cross-entropy, else 0
    """

    value: np.uint32
    gradient: np.ndarray | None
    flags: int
    probabilities: np.ndarray | None = None
    correct: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class LossRows:
    """What some rows of a batch bring.

    Members
    -------
    terms : float32 bits, one-dimensional: what they add to the loss, in order
    gradient, probabilities, correct : as in :class:`LossResult`
    """

    terms: np.ndarray
    gradient: np.ndarray
    probabilities: np.ndarray | None = None
    correct: int = 0


def cross_entropy(fmt: FloatFormat, logits, labels) -> LossResult:
    """Softmax cross-entropy, mean over the batch.

    Parameters
    ----------
    fmt : operand format of the gradient
    logits : (N, classes) float32 bits
    labels : (N,) integers

    For every image: m, the maximum of its logits in order of classes; d = x - m; e = exp(d);
    s, the sum of e in eight partial sums; p = e / s; the gradient (p - hot) * float32(1 / N),
    rounded to operands. The value is the mean of ln(s) - d[label], summed in eight partial sums.
    An answer is correct if the maximum was found at the label: of equal logits the first one is it,
    of NaN the last one.
    """
    unit, reciprocal = VectorUnit(), constant(1.0 / max(len(labels), 1))
    rows = cross_entropy_rows(fmt, logits, labels, reciprocal, unit)
    return LossResult(
        value=np.uint32(unit.multiply(unit.sum(rows.terms), reciprocal)),
        gradient=rows.gradient,
        flags=unit.flags,
        probabilities=rows.probabilities,
        correct=rows.correct,
    )


def cross_entropy_rows(fmt: FloatFormat, logits, labels, scale, unit: VectorUnit) -> LossRows:
    """Rows of a batch, whose gradient is multiplied by ``scale``; ``unit`` collects the flags."""
    logits, labels = np.asarray(logits, np.uint32), np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise ValueError(
            f"Logits (N, classes) and labels (N,) expected, not {logits.shape} and {labels.shape}"
        )
    if labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise ValueError(f"Labels must be from 0 to {logits.shape[1] - 1}")
    images = np.arange(len(labels))
    largest, place = logits[:, 0], np.zeros(len(labels), np.int64)
    for index, column in enumerate(logits.T[1:], start=1):
        value = decode(FLOAT32, column)
        with np.errstate(invalid="ignore"):
            place[np.isnan(value) | (value > decode(FLOAT32, largest))] = index
        largest = max_f32(largest, column)
    shifted = unit.subtract(logits, largest[:, np.newaxis])
    powers = unit.exponential(shifted)
    total = unit.sum(powers.T)
    share = unit.divide(powers, total[:, np.newaxis])
    hot = np.zeros(logits.shape, np.uint32)
    hot[images, labels] = _ONE
    gradient = unit.round(fmt, unit.multiply(unit.subtract(share, hot), scale))
    return LossRows(
        terms=unit.subtract(logarithm(total, unit), shifted[images, labels]),
        gradient=gradient,
        probabilities=share,
        correct=int(np.count_nonzero(place == labels)),
    )


def mean_squared_error(fmt: FloatFormat, outputs, targets) -> LossResult:
    """Mean over all M elements of (y - t)**2; gradient (y - t) * float32(2 / M), rounded.

    ``outputs`` and ``targets`` are float32 bits of one shape; the sum goes over the elements in
    order, the last axis innermost, in eight partial sums, and is multiplied by float32(1 / M).
    """
    unit, elements = VectorUnit(), max(np.size(outputs), 1)
    rows = squared_error_rows(fmt, outputs, targets, constant(2.0 / elements), unit)
    return LossResult(
        value=np.uint32(unit.multiply(unit.sum(rows.terms), constant(1.0 / elements))),
        gradient=rows.gradient,
        flags=unit.flags,
    )


def binary_cross_entropy(fmt: FloatFormat, outputs, targets) -> LossResult:
    """Mean over all M elements of ln(1 + e**x) - x t, of logits x; gradient (s - t) * float32(1/M)
    with the sigmoid s of x, rounded.

    ``outputs`` and ``targets`` are float32 bits of one shape, targets from 0 to 1. The value is the
    sum of squares of the roots of the elements' losses, in order, the last axis innermost, in eight
    partial sums, times float32(1 / M).
    """
    outputs, targets = np.asarray(outputs, np.uint32), np.asarray(targets, np.uint32)
    if outputs.shape != targets.shape or not outputs.size:
        raise ValueError(f"Shapes {outputs.shape} and {targets.shape} must be equal, not empty")
    values = decode(FLOAT32, targets)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("Targets of binary cross-entropy must be from 0 to 1")
    unit, scale = VectorUnit(), constant(1.0 / outputs.size)
    products = negate(unit.multiply(outputs, targets))
    root = unit.square_root(unit.add(products, logistic_loss(unit, outputs)))
    total = unit.sum(unit.multiply(root, root).reshape(-1))
    difference = unit.subtract(logistic(unit, outputs), targets)
    return LossResult(
        value=np.uint32(unit.multiply(total, scale)),
        gradient=unit.round(fmt, unit.multiply(difference, scale)),
        flags=unit.flags,
    )


def squared_error_rows(fmt: FloatFormat, outputs, targets, scale, unit: VectorUnit) -> LossRows:
    """Part of a batch, whose gradient is multiplied by ``scale``; ``unit`` collects the flags."""
    outputs, targets = np.asarray(outputs, np.uint32), np.asarray(targets, np.uint32)
    if outputs.shape != targets.shape or not outputs.size:
        raise ValueError(f"Shapes {outputs.shape} and {targets.shape} must be equal, not empty")
    difference = unit.subtract(outputs, targets)
    return LossRows(
        terms=unit.multiply(difference, difference).reshape(-1),
        gradient=unit.round(fmt, unit.multiply(difference, scale)),
    )


def logarithm(a, unit: VectorUnit | None = None) -> np.ndarray:
    """Natural logarithm of float32 bits; ``unit`` collects the flags.

    a = 2**k * m with m between sqrt(1/2) and sqrt(2), t = (m - 1) / (m + 1), z = t * t:

        p = (((z * 1/9 + 1/7) * z + 1/5) * z + 1/3) * z
        ln a = k * high + ((2 t + 2 t * p) + k * low),    high + low = ln 2

    The error is below 6 * 2**-24 of the result, in units of 2**-24: t has 2 (m - 1 and k * high are
    exact); p is below 0.011 and so counts 0.1; the series left out counts 0.1; three additions
    round once each, and the two inner ones have results of no more than 1.02 times the result.
    +infinity stays; zeros give minus infinity; negative numbers NaN and INVALID.
    """
    unit = VectorUnit() if unit is None else unit
    a = np.asarray(a, np.uint32)
    fraction = a & np.uint32(_MANTISSA)
    exponent = (a >> np.uint32(FLOAT32.mantissa_bits)).astype(np.int64)
    large = fraction > _ROOT_FRACTION
    m = fraction | np.where(large, np.uint32(126 << 23), np.uint32(127 << 23))
    k = encode(FLOAT32, (exponent & 0xFF) - FLOAT32.bias + large)
    t = unit.divide(unit.subtract(m, _ONE), unit.add(m, _ONE))
    z = unit.multiply(t, t)
    p = unit.multiply(z, constant(1 / 9))
    for divisor in (7, 5, 3):
        p = unit.multiply(unit.add(p, constant(1 / divisor)), z)
    twice = unit.multiply(t, constant(2.0))
    inner = unit.add(unit.add(twice, unit.multiply(twice, p)), unit.multiply(k, _LN2_LOW))
    result = unit.add(unit.multiply(k, _LN2_HIGH), inner)

    value = decode(FLOAT32, a)
    result = np.where(value == 0, negate(FLOAT32.infinity), result)
    result = np.where(value == np.inf, np.uint32(FLOAT32.infinity), result)
    if (value < 0).any():
        unit.flags |= int(Flags.INVALID)
    return np.where(np.isnan(value) | (value < 0), np.uint32(FLOAT32.nan), result)
