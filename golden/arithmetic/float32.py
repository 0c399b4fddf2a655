"""Float32 operations, rounded once, and the flags that they leave.

All functions work on NumPy arrays of bit patterns (``uint32``); operands broadcast. Flags are
arrays of :class:`golden.arithmetic.dot_product.Flags` bits (``uint8``), one element per result.
Nothing is taken from the hardware.
"""

import numpy as np

from .dot_product import FLOAT32, Flags, decode, round_float
from .formats import FloatFormat

__all__ = ["add_f32", "max_f32", "mul_f32", "relu"]


def relu(bits, fmt: FloatFormat = FLOAT32) -> np.ndarray:
    """``bits`` (codes of ``fmt``, any shape; uint32 comes back) with +0 in place of every word
    whose sign bit is set.

    The same for float32 and for int32: negative numbers and -0 become 0. The canonical NaN has
    its sign clear and stays.
    """
    bits = np.asarray(bits, dtype=np.uint32)
    return np.where(bits & np.uint32(fmt.sign_bit), np.uint32(0), bits)


def add_f32(a, b) -> tuple[np.ndarray, np.ndarray]:
    """``a + b`` in float32 with subnormals as zeros: bits and flags of the broadcast shape.

    Exact zero from opposite signs is +0; two zeros of the same sign keep it. Opposite infinities
    give NaN and INVALID; a NaN operand gives the canonical NaN and no flag.
    """
    x, y = np.broadcast_arrays(decode(FLOAT32, a), decode(FLOAT32, b))
    with np.errstate(invalid="ignore"):
        total = x + y
        # Rounding to odd in float64, so that the rounding to float32 is the only one that counts:
        # the lowest bit of an inexact sum is set, on the side of the exact sum (two-sum error).
        from_x = total - y
        error = (x - from_x) + (y - (total - from_x))
    inexact = np.isfinite(total) & (error != 0)
    codes = total.view(np.int64)
    odd = codes & 1 == 1
    outwards = np.signbit(error) == np.signbit(total)
    codes = np.where(inexact & ~odd, np.where(outwards, codes + 1, codes - 1), codes)
    bits, flags = round_float(FLOAT32, codes.view(np.float64))
    invalid = np.isinf(x) & np.isinf(y) & (np.signbit(x) != np.signbit(y))
    return bits, _with_invalid(flags, invalid)


def mul_f32(a, b) -> tuple[np.ndarray, np.ndarray]:
    """``a * b`` in float32 with subnormals as zeros: bits and flags of the broadcast shape.

    Zero times infinity gives NaN and INVALID; a NaN operand gives the canonical NaN and no flag.
    """
    x, y = np.broadcast_arrays(decode(FLOAT32, a), decode(FLOAT32, b))
    with np.errstate(invalid="ignore"):
        # Exact: 48 bits of product, exponents far inside those of float64.
        product = x * y
    invalid = (np.isinf(x) & (y == 0)) | (np.isinf(y) & (x == 0))
    bits, flags = round_float(FLOAT32, product)
    return bits, _with_invalid(flags, invalid)


def max_f32(a, b) -> np.ndarray:
    """The larger of two float32 numbers; ``a`` if they are equal, +0 and -0 included.

    NaN if either is NaN, the canonical one.
    """
    x, y = decode(FLOAT32, a), decode(FLOAT32, b)
    with np.errstate(invalid="ignore"):
        bits = np.where(y > x, b, a).astype(np.uint32)
    return np.where(np.isnan(x) | np.isnan(y), np.uint32(FLOAT32.nan), bits)


def _with_invalid(flags: np.ndarray, invalid: np.ndarray) -> np.ndarray:
    return np.where(invalid, np.uint8(Flags.INVALID), flags)
