"""Cross-entropy with label smoothing and with labels that do not count, bit for bit.

The executable form of "Label smoothing and labels that do not count" in docs/training.md: the loss
of :mod:`golden.layers.loss`, and float32 operations before and after it.
"""

from math import fsum

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .loss import LossResult, cross_entropy_rows

__all__ = ["label_cross_entropy"]

_ZERO, _ONE = np.uint32(0), constant(1.0)


def label_cross_entropy(
    fmt: FloatFormat, logits, labels, *, smoothing: float = 0.0, ignore: int | None = None
) -> LossResult:
    """Softmax cross-entropy, mean over the labels that count.

    Parameters
    ----------
    fmt : operand format of the gradient
    logits : (N, classes) float32 bits
    labels : (N,) integers
    smoothing : how much of a label all classes share, from 0 to 1
    ignore : label that does not count; None if all do

    A row that does not count is replaced by +0, -infinity, ... with the label 0: its loss is +0.
    With c labels that count, f = float32(1 / c) and G the rounded gradient of
    :func:`golden.layers.loss.cross_entropy_rows` (of scale 1 with ``ignore``, of scale f without):

        gradient = round(G * f + a), +0 where the row does not count; round(G + a) without it
        a = float32(smoothing * (1 - 1 / classes) / c) at the label,
            float32(-smoothing / (classes * c)) elsewhere

    The value is the one of the rows, times f, plus all logits * a: each product is rounded to
    float32, their sum with the value is exact and rounded once.

    Raises
    ------
    ValueError
        for shapes, labels that are no class, and if no label counts.
    """
    logits, labels = np.asarray(logits, np.uint32), np.asarray(labels)
    counts = np.ones(len(labels), bool) if ignore is None else labels != ignore
    if not counts.any():
        raise ValueError(f"All labels are {ignore}, which does not count")
    used = np.where(counts, labels, 0)
    unit, number = VectorUnit(), int(counts.sum())
    factor = constant(1.0 / number)
    rows_of = logits
    if ignore is not None:
        rows_of = np.where(counts[:, np.newaxis], logits, _replacement(logits.shape[1]))
    rows = cross_entropy_rows(fmt, rows_of, used, factor if ignore is None else _ONE, unit)
    total = unit.sum(rows.terms)
    value, gradient = unit.multiply(total, factor), rows.gradient
    if ignore is not None:
        value = unit.add(value, _ZERO)
    part = np.nonzero(counts)[0]
    if ignore is not None or smoothing:
        new = widen(fmt, gradient[part])
        if ignore is not None:
            new = unit.multiply(new, factor)
        if smoothing:
            shift = _shift(logits.shape[1], used[part], smoothing, number)
            new = unit.add(new, shift)
            products = unit.multiply(logits[part], shift)
            value = _total(value, products)
        gradient = np.zeros_like(gradient)
        gradient[part] = unit.round(fmt, new)
    return LossResult(
        value=np.uint32(value),
        gradient=gradient,
        flags=unit.flags,
        probabilities=rows.probabilities,
        correct=rows.correct - len(labels) + number,
    )


def _replacement(classes):
    """Logits of a row that does not count."""
    row = np.full(classes, negate(FLOAT32.infinity), np.uint32)
    row[0] = _ZERO
    return row


def _shift(classes, labels, smoothing, number):
    """a, (rows, classes) float32 bits."""
    away = constant(-smoothing / (classes * number))
    shift = np.full((len(labels), classes), away, np.uint32)
    shift[np.arange(len(labels)), labels] = constant(smoothing * (1 - 1 / classes) / number)
    return shift


def _total(value, products):
    """Float32 bits of the sum of all these numbers."""
    numbers = [float(number) for number in decode(FLOAT32, np.append(products.ravel(), value))]
    finite = np.isfinite(numbers).all()
    return constant(fsum(numbers) if finite else sum(numbers))
