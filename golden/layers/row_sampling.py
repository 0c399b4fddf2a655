"""Samples of rows for backward passes (VCAS), bit for bit: the section "Samples of rows" of
docs/training.md."""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.arithmetic.sampling import SAMPLE_BITS, sample

__all__ = ["RowSample", "gather_rows", "row_norms", "sample_rows"]

#: Where the random number of a row lies: behind the channels of any dropout.
_CHANNEL = 0xFFFF
#: The least sum of norms that is divided by.
_LEAST_SUM = constant(2.0**-100)
_ONE = constant(1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSample:
    """Which rows are kept.

    Members
    -------
    rows : numbers of the kept rows, ascending
    factors : float32 bits, 1 / p of each of them
    probabilities : float32 bits of all rows
    """

    rows: np.ndarray
    factors: np.ndarray
    probabilities: np.ndarray


def row_norms(unit: VectorUnit, wide) -> np.ndarray:
    """Euclidean norms, float32 bits (R,), of rows (R, C) of float32 bits: a sum of squares in eight
    partial sums, and its root."""
    return unit.square_root(unit.sum(unit.multiply(wide, wide).T))


def sample_rows(unit: VectorUnit, norms, *, kept: float, stream: int, seed: int) -> RowSample:
    """Keep row r with probability p = min(1, norm * (kept / sum of norms)).

    Parameters
    ----------
    norms : float32 bits (R,): of rows, or products of two norms
    kept : how many rows, on the average, where no p is above 1; fewer where some are
    stream, seed : as of dropout (:func:`golden.layers.dropout.dropout_mask`); the row is the pixel

    A p that is no number is 1: what is not finite stays, so that the guard sees it.
    """
    total = max_f32(_LEAST_SUM, unit.sum(norms))
    p = unit.multiply(norms, unit.divide(constant(kept), total))
    numbers = decode(FLOAT32, p)
    p = np.where(numbers < 1, p, _ONE)
    drawn = sample(seed, stream, np.arange(len(norms)), _CHANNEL) / 2.0**SAMPLE_BITS
    rows = np.nonzero(drawn < decode(FLOAT32, p))[0]
    return RowSample(rows=rows, factors=unit.divide(_ONE, p[rows]), probabilities=p)


def gather_rows(unit: VectorUnit, fmt: FloatFormat, codes, chosen: RowSample) -> np.ndarray:
    """The kept rows of operand codes (R, C), each times its factor, rounded to operands once."""
    wide = widen(fmt, np.asarray(codes)[chosen.rows])
    return unit.round(fmt, unit.multiply(wide, chosen.factors[:, np.newaxis]))
