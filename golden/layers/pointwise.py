"""Layers that compute every element by itself, and concatenation, bit for bit.

The executable form of the sections "Clamp" to "Concatenation" of docs/training.md. Maps are arrays
of operand codes of any shape. Functions return codes and the union of their
:class:`golden.arithmetic.dot_product.Flags` (int), unless nothing is computed.
"""

import numpy as np

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import FloatFormat

__all__ = ["clamp", "clamp_mask", "concatenate", "split"]


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


def concatenate(maps) -> np.ndarray:
    """The channels of all ``maps``, one behind the other."""
    return np.concatenate([np.asarray(part) for part in maps], axis=-1)


def split(dy_bits, channels) -> list[np.ndarray]:
    """The inverse: ``channels`` of each part."""
    return np.split(np.asarray(dy_bits), np.cumsum(channels)[:-1], axis=-1)
