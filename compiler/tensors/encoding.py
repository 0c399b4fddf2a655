"""Numbers into codes."""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from hw.formats import FloatFormat, IntFormat

__all__ = ["codes_of", "storage"]


@cache
def storage(width: int) -> np.dtype:
    """NumPy type of a code of ``width`` bits."""
    return np.dtype(f"<u{max(1, width // 8)}")


def codes_of(fmt: FloatFormat | IntFormat, values: ArrayLike) -> np.ndarray:
    """Codes (unsigned, same shape) of real ``values``.

    Floats round to the nearest, ties to even, overflow to infinity, results below the smallest
    normal number to zero; NaN becomes the canonical one. Integers round to the nearest, ties to
    even, and saturate.
    """
    values = np.asarray(values, dtype=np.float64)
    if not fmt.is_float:
        limit = 1 << (fmt.width - 1)
        integers = np.clip(np.rint(values), -limit, limit - 1).astype(np.int64)
        return np.asarray(integers & (2 * limit - 1), storage(fmt.width))
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)
    _, exponent = np.frexp(magnitude)
    # An integer number of units in the last place, as if the exponent had no limits.
    ulps = np.rint(np.ldexp(magnitude, fmt.mantissa_bits + 1 - exponent))
    rounded = np.ldexp(ulps, exponent - fmt.mantissa_bits - 1)
    fraction, exponent = np.frexp(rounded)
    biased = exponent.astype(np.int64) - 1 + fmt.bias
    mantissa = np.ldexp(fraction, fmt.mantissa_bits + 1).astype(np.int64)
    codes = (biased << fmt.mantissa_bits) + mantissa - (1 << fmt.mantissa_bits)
    codes = np.where((rounded == 0) | (biased <= 0), 0, codes)
    codes = np.where((biased >= fmt.exponent_max) | np.isinf(values), fmt.infinity, codes)
    codes = codes | np.where(np.signbit(values), 1 << (fmt.width - 1), 0)
    return np.where(np.isnan(values), fmt.nan, codes).astype(storage(fmt.width))
