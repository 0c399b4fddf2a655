"""Bit-exact post-processing: what happens to accumulators on their way to the buffer.

The order is ReLU, reduction over the pooling window, scaling, conversion to the operand format.
All functions work on NumPy arrays of bit patterns: float32 or int32 numbers as ``uint32``,
operands as the unsigned type of their width. The description is docs/post_processing.md; nothing
is taken from the hardware.

Flags are arrays of :class:`golden.arithmetic.dot_product.Flags` bits (``uint8``), one element per
result.
"""

import numpy as np

from golden.arithmetic import float32
from golden.arithmetic.dot_product import FLOAT32, Flags, FloatFormat, IntFormat, convert_float32
from golden.arithmetic.float32 import add_f32, max_f32, mul_f32

__all__ = [
    "MAX_SHIFT",
    "pool_float",
    "pool_integer",
    "post",
    "requantize",
    "to_operand",
]

#: Largest shift of :func:`requantize`.
MAX_SHIFT = 47

_SIGN = np.uint32(0x80000000)


def pool_float(values, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Reduce float32 ``values`` (N, window, ...) over axis 1, in order: bits and flags (N, ...).

    ``mode`` is ``"max"`` or ``"sum"``; a sum rounds after every addition, the first element
    starts it.
    """
    values = np.asarray(values, dtype=np.uint32)
    result = values[:, 0]
    flags = np.zeros(result.shape, dtype=np.uint8)
    for index in range(1, values.shape[1]):
        if mode == "max":
            result = max_f32(result, values[:, index])
        else:
            result, new = add_f32(result, values[:, index])
            flags |= new
    return result, flags


def pool_integer(values, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Reduce int32 ``values`` (N, window, ...) over axis 1: bits and flags (N, ...).

    Sums wrap modulo 2**32; OVERFLOW tells that one of the additions did.
    """
    values = np.asarray(values, dtype=np.uint32).view(np.int32).astype(np.int64)
    if mode == "max":
        result = values.max(axis=1)
        return (result & 0xFFFFFFFF).astype(np.uint32), np.zeros(result.shape, dtype=np.uint8)
    result = values[:, 0]
    flags = np.zeros(result.shape, dtype=np.uint8)
    for index in range(1, values.shape[1]):
        total = result + values[:, index]
        result = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64)
        flags |= np.where(result != total, int(Flags.OVERFLOW), 0).astype(np.uint8)
    return (result & 0xFFFFFFFF).astype(np.uint32), flags


def to_operand(fmt: FloatFormat, bits) -> tuple[np.ndarray, np.ndarray]:
    """Float32 ``bits`` rounded to ``fmt``: operand codes and flags of the same shape."""
    return convert_float32(fmt, bits)


def requantize(fmt: IntFormat, bits, scale: int) -> tuple[np.ndarray, np.ndarray]:
    """Int32 ``bits`` scaled to ``fmt``: operand codes and flags of the same shape.

    ``scale`` holds an unsigned 16-bit multiplier in bits 0-15 and a right shift, 0 to
    :data:`MAX_SHIFT`, in bits 16-21. The product is exact, the shifted result is rounded to the
    nearest integer, ties to even (INEXACT if that changed it), and saturated (OVERFLOW and
    INEXACT).
    """
    multiplier, shift = scale & 0xFFFF, (scale >> 16) & 0x3F
    if shift > MAX_SHIFT:
        raise ValueError(f"The shift of a scale must be from 0 to {MAX_SHIFT}, not {shift}")
    product = np.asarray(bits, dtype=np.uint32).view(np.int32).astype(np.int64) * multiplier
    quotient = product >> shift
    rest = product - (quotient << shift)
    half = (1 << shift) >> 1
    up = (rest > half) | ((rest == half) & (quotient & 1 == 1)) if shift else np.False_
    rounded = quotient + up
    result = np.clip(rounded, fmt.minimum, fmt.maximum)
    flags = np.where(rest != 0, int(Flags.INEXACT), 0)
    flags = np.where(result != rounded, int(Flags.OVERFLOW | Flags.INEXACT), flags)
    codes = (result & ((1 << fmt.width) - 1)).astype(np.uint8 if fmt.width <= 8 else np.uint16)
    return codes, flags.astype(np.uint8)


def post(
    fmt: FloatFormat | IntFormat,
    accumulators,
    *,
    relu: bool,
    pool: str,
    scale: int,
    wide: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Post-process ``accumulators`` (N, window, channels) uint32: results and flags (N, channels).

    Parameters
    ----------
    fmt : operand format; decides between float32 and int32 accumulators
    relu : apply :func:`golden.arithmetic.float32.relu` first
    pool : ``"max"`` or ``"sum"`` over the window, in the order of axis 1
    scale : bits of a float32 factor, or see :func:`requantize`
    wide : return 32-bit numbers instead of operands: float32 after scaling, or the int32 numbers
        before it

    Raises
    ------
    ValueError
        for float accumulators that no column produces (subnormals and NaN other than the
        canonical one), an unknown ``pool`` or a shift out of range.
    """
    values = np.asarray(accumulators, dtype=np.uint32)
    if values.ndim != 3:
        raise ValueError(f"Accumulators must have shape (N, window, channels), not {values.shape}")
    if pool not in ("max", "sum"):
        raise ValueError(f"pool must be 'max' or 'sum', not {pool!r}")
    if relu:
        values = float32.relu(values)
    if not fmt.is_float:
        reduced, flags = pool_integer(values, pool)
        if wide:
            return reduced, flags
        result, new = requantize(fmt, reduced, scale)
        return result, flags | new
    _check_accumulators(np.asarray(accumulators, dtype=np.uint32))
    reduced, flags = pool_float(values, pool)
    result, new = mul_f32(reduced, np.uint32(scale))
    flags |= new
    if not wide:
        result, new = to_operand(fmt, result)
        flags |= new
    return result, flags


def _check_accumulators(bits: np.ndarray) -> None:
    magnitude = bits & ~_SIGN
    wrong = (magnitude != 0) & (magnitude < 1 << FLOAT32.mantissa_bits)
    wrong |= (magnitude > FLOAT32.infinity) & (bits != FLOAT32.nan)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"Accumulator {place} holds {int(bits[place]):#010x}, which no column produces"
        )
