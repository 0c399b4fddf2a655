"""Bit-exact arithmetic of the array: operand codes and the fused dot product of one column.

This is the executable form of docs/numerics.md. Everything is vectorised integer arithmetic on
NumPy arrays; nothing is taken from the hardware description.

A column adds R exact products and one float32 partial sum in a window of ``WINDOW_BITS`` bits:

- Each finite non-zero term is written as N * 4**g with an integer g, the *grid exponent*, and
  |N| < 2**WINDOW_BITS. For a product g = (ex >> 1) + (ew >> 1) - bias - 12, where ex and ew are the
  exponent codes of the operands; for the partial sum g = ((e + 1) >> 1) - 77.
- The window sits at G, the largest grid exponent of all non-zero terms. Every other term is
  divided by 4**(G - g) and cut to an integer, towards zero; a term with G - g >= DROP_DISTANCE
  becomes zero.
- The integers are added exactly and the sum is rounded once to float32, nearest, ties to even.

The largest term is never cut and has at least ``WINDOW_BITS - 4`` bits above the window's end.
"""

import enum

import numpy as np

from .formats import (
    BF16,
    FLOAT32,
    FORMATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    INT8,
    FloatFormat,
    IntFormat,
    format_by_name,
)

__all__ = [
    "BF16",
    "DROP_DISTANCE",
    "FLOAT32",
    "FORMATS",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "INT8",
    "WINDOW_BITS",
    "Flags",
    "FloatFormat",
    "IntFormat",
    "column_dot",
    "convert_float32",
    "decode",
    "dot_error_bound",
    "encode",
    "format_by_name",
    "round_float",
]

WINDOW_BITS = 28
DROP_DISTANCE = 16

_PRODUCT_OFFSET = 12
_PSUM_OFFSET = 77
_NO_TERM = -(1 << 20)
_CHUNK_ELEMENTS = 1 << 16


class Flags(enum.IntFlag):
    """Bits of the flag results, as the hardware orders them."""

    INVALID = 1
    OVERFLOW = 2
    UNDERFLOW = 4
    INEXACT = 8


def _storage(width: int) -> type:
    return np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32


def round_float(fmt: FloatFormat, values) -> tuple[np.ndarray, np.ndarray]:
    """Round float64 ``values`` (any shape) to ``fmt``: codes and flags (uint8), both of that shape.

    Nearest, ties to even, as if the exponent had no limits; then magnitudes of 2**(bias + 1) or
    more become infinity (overflow, inexact) and those below the smallest normal number become zero
    with their sign (underflow, inexact). NaN becomes the canonical NaN and raises nothing.
    """
    values = np.asarray(values, dtype=np.float64)
    fraction, exponent = np.frexp(np.abs(values))
    finite = np.isfinite(values)
    scaled = np.where(finite, fraction, 0.0) * 2.0**fmt.significand_bits
    rounded = np.rint(scaled)
    significand = rounded.astype(np.int64)
    carry = significand >> fmt.significand_bits
    significand >>= carry
    exponent = exponent.astype(np.int64) - 1 + fmt.bias + carry
    non_zero = finite & (values != 0)
    over = non_zero & (exponent >= fmt.exponent_max)
    under = non_zero & (exponent <= 0)
    normal = non_zero & ~over & ~under
    hidden = 1 << fmt.mantissa_bits
    codes = np.where(normal, (exponent << fmt.mantissa_bits) + significand - hidden, 0)
    codes = np.where(over | np.isinf(values), fmt.infinity, codes)
    codes |= np.where(np.signbit(values), fmt.sign_bit, 0)
    codes = np.where(np.isnan(values), fmt.nan, codes)
    flags = np.where(over, int(Flags.OVERFLOW | Flags.INEXACT), 0)
    flags |= np.where(under, int(Flags.UNDERFLOW | Flags.INEXACT), 0)
    flags |= np.where(normal & (rounded != scaled), int(Flags.INEXACT), 0)
    return codes.astype(_storage(fmt.width)), flags.astype(np.uint8)


def encode(fmt: FloatFormat | IntFormat, values) -> np.ndarray:
    """Codes (unsigned, same shape) of real ``values`` in ``fmt``.

    Floats: see :func:`round_float`. Integers: nearest, ties to even, saturating; NaN is an error
    (``ValueError``), since no integer stands for it.
    """
    if fmt.is_float:
        return round_float(fmt, values)[0]
    values = np.asarray(values, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError(f"NaN has no code in the integer format {fmt.name}")
    integers = np.clip(np.rint(values), fmt.minimum, fmt.maximum).astype(np.int64)
    return (integers & ((1 << fmt.width) - 1)).astype(_storage(fmt.width))


def decode(fmt: FloatFormat | IntFormat, codes) -> np.ndarray:
    """Values (float64, same shape) of ``codes``; subnormal codes are zeros with their sign."""
    codes = np.asarray(codes).astype(np.int64)
    if not fmt.is_float:
        return _signed(codes, fmt.width).astype(np.float64)
    sign, exponent, mantissa = _fields(fmt, codes)
    significand = (mantissa + (1 << fmt.mantissa_bits)).astype(np.float64)
    magnitude = np.ldexp(significand, exponent - fmt.bias - fmt.mantissa_bits)
    magnitude = np.where(exponent == 0, 0.0, magnitude)
    special = exponent == fmt.exponent_max
    magnitude = np.where(special, np.where(mantissa == 0, np.inf, np.nan), magnitude)
    return np.where(sign != 0, -magnitude, magnitude)


def convert_float32(fmt: FloatFormat, codes) -> tuple[np.ndarray, np.ndarray]:
    """Float32 ``codes`` (uint32) rounded to ``fmt``: codes and flags of the same shape."""
    return round_float(fmt, decode(FLOAT32, codes))


def column_dot(fmt: FloatFormat | IntFormat, x, w, psum) -> tuple[np.ndarray, np.ndarray]:
    """One pass through the array: ``psum + x @ w`` as its columns compute it.

    ``x`` has shape (M, R) and ``w`` (R, C), both operand codes; ``psum`` has shape (M, C) and holds
    the bits of float32 numbers, or of int32 numbers for an integer format. Returns the bits of the
    results (M, C) uint32 and their flags (M, C) uint8. Of a float format all of them may have the
    same axes in front, for several passes with weights of their own. Raises ``ValueError`` on
    shapes that do not fit each other.
    """
    x, w, psum = np.asarray(x), np.asarray(w), np.asarray(psum)
    several = fmt.is_float and x.ndim > 2
    if (
        (x.ndim != 2 and not several)
        or w.ndim != x.ndim
        or psum.shape != (*x.shape[:-1], w.shape[-1])
        or w.shape[:-2] != x.shape[:-2]
    ):
        raise ValueError(
            "Shapes must be x (M, R), w (R, C), psum (M, C), "
            f"not x {x.shape}, w {w.shape}, psum {psum.shape}"
        )
    if x.shape[-1] != w.shape[-2]:
        raise ValueError(f"x has {x.shape[-1]} columns but w has {w.shape[-2]} rows")
    if not fmt.is_float:
        return _column_dot_integer(fmt, x, w, psum)
    result = np.empty(psum.shape, dtype=np.uint32)
    flags = np.empty(psum.shape, dtype=np.uint8)
    if several:
        x, w, psum, *results = (
            part.reshape(-1, *part.shape[-2:]) for part in (x, w, psum, result, flags)
        )
        step = max(1, _CHUNK_ELEMENTS // max(1, w[0].size * x.shape[1])) if len(w) else 1
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            results[0][part], results[1][part] = _column_dot_float(
                fmt, x[part], _Operand(fmt, w[part]), psum[part]
            )
        return result, flags
    step = max(1, _CHUNK_ELEMENTS // max(1, w.size))
    weights = _Operand(fmt, w)
    for start in range(0, x.shape[0], step):
        part = slice(start, start + step)
        result[part], flags[part] = _column_dot_float(fmt, x[part], weights, psum[part])
    return result, flags


def dot_error_bound(magnitude, terms: int, rows: int):
    """Bound of |computed - exact| of a float dot product of ``terms`` products.

    ``magnitude`` is the sum of |x * w| over the products plus |start value| (scalar or array, of
    operands as encoded); the products go through the columns ``rows`` at a time. One step cuts at
    most ``rows`` of its ``rows + 1`` terms by less than 2**-24 of the largest term, rounds by at
    most 2**-24 of its sum, and may flush a result below 2**-126. No term and no sum exceeds the
    magnitude seen so far plus the error made so far, hence the geometric growth. Holds as long as
    nothing overflows.
    """
    steps = -(-terms // rows)
    per_step = rows * 2.0 ** (4 - WINDOW_BITS) + 2.0**-24 * (1 + rows * 2.0 ** (4 - WINDOW_BITS))
    growth = (1.0 + per_step) ** steps
    return np.asarray(magnitude, dtype=np.float64) * (growth - 1.0) + steps * growth * 2.0**-126


def _signed(codes: np.ndarray, width: int) -> np.ndarray:
    codes = codes.astype(np.int64) & ((1 << width) - 1)
    return codes - ((codes >> (width - 1)) << width)


def _fields(fmt: FloatFormat, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sign bit, exponent code and mantissa code."""
    return (
        (codes >> (fmt.width - 1)) & 1,
        (codes >> fmt.mantissa_bits) & fmt.exponent_max,
        codes & ((1 << fmt.mantissa_bits) - 1),
    )


class _Operand:
    """Decoded operands: ``value`` is the significand shifted by the exponent's lowest bit."""

    def __init__(self, fmt: FloatFormat, codes: np.ndarray):
        sign, exponent, mantissa = _fields(fmt, codes.astype(np.int64))
        special = exponent == fmt.exponent_max
        self.nan = special & (mantissa != 0)
        self.inf = special & (mantissa == 0)
        self.zero = exponent == 0
        significand = (mantissa + (1 << fmt.mantissa_bits)) << (exponent & 1)
        significand = np.where(self.zero | special, 0, significand)
        self.value = significand.astype(np.int32)
        self.sign = -sign.astype(np.int32)  # 0 or -1
        self.grid = (exponent >> 1).astype(np.int32)
        self.nowhere = self.zero | special


def _column_dot_integer(fmt, x, w, psum):
    total = _signed(x, fmt.width) @ _signed(w, fmt.width) + _signed(psum, 32)
    result = total & 0xFFFFFFFF
    flags = np.where(_signed(result, 32) != total, int(Flags.OVERFLOW), 0)
    return result.astype(np.uint32), flags.astype(np.uint8)


def _column_dot_float(fmt, x, weights, psum):
    lanes = _Operand(fmt, x)
    sign, exponent, mantissa = _fields(FLOAT32, psum.astype(np.int64))
    psum_zero = exponent == 0
    psum_special = exponent == FLOAT32.exponent_max

    # Terms on the grid. The product of significands has 2 * significand_bits + 2 bits.
    offset = fmt.bias + _PRODUCT_OFFSET
    products = lanes.value[..., :, :, None] * weights.value[..., None, :, :]
    products <<= WINDOW_BITS - 2 * fmt.significand_bits - 2
    grids = lanes.grid[..., :, :, None] + (weights.grid[..., None, :, :] - np.int32(offset))
    np.copyto(
        grids, _NO_TERM, where=lanes.nowhere[..., :, :, None] | weights.nowhere[..., None, :, :]
    )
    addend = (mantissa + (1 << 23)) << (3 + (~exponent & 1))
    addend_grid = ((exponent + 1) >> 1) - _PSUM_OFFSET
    absent = psum_zero | psum_special
    addend = np.where(absent, 0, addend)
    addend_grid = np.where(absent, _NO_TERM, addend_grid).astype(np.int32)

    # Alignment to the largest grid exponent.
    top = np.maximum(grids.max(axis=-2), addend_grid)
    distance = top[..., None, :] - grids
    shift = 2 * np.minimum(distance, 15)
    aligned = products >> shift
    cut = (aligned << shift) != products
    np.copyto(aligned, 0, where=distance >= DROP_DISTANCE)
    lost = (cut | ((distance >= DROP_DISTANCE) & (products != 0))).any(axis=-2)
    addend_shift = np.minimum(2 * (top - addend_grid).astype(np.int64), 62)
    addend_aligned = addend >> addend_shift
    lost |= (addend_aligned << addend_shift) != addend
    negative = lanes.sign[..., :, :, None] ^ weights.sign[..., None, :, :]
    aligned ^= negative
    aligned -= negative
    total = aligned.sum(axis=-2, dtype=np.int64)
    total += np.where(sign != 0, -addend_aligned, addend_aligned)

    result, flags = _round_sum(total, top.astype(np.int64), lost)

    # Special values.
    infinite = lanes.inf[..., :, :, None] | weights.inf[..., None, :, :]
    psum_inf = psum_special & (mantissa == 0)
    nan = lanes.nan.any(axis=-1)[..., None] | weights.nan.any(axis=-2)[..., None, :]
    nan = nan | (psum_special & (mantissa != 0))
    plus = psum_inf & (sign == 0)
    minus = psum_inf & (sign != 0)
    if infinite.any():
        zero = infinite & (lanes.zero[..., :, :, None] | weights.zero[..., None, :, :])
        plus = plus | (zero | (infinite & (negative == 0))).any(axis=-2)
        minus = minus | (zero | (infinite & (negative != 0))).any(axis=-2)
    invalid = plus & minus & ~nan
    result = np.where(minus, FLOAT32.infinity | FLOAT32.sign_bit, result)
    result = np.where(plus, FLOAT32.infinity, result)
    result = np.where(nan | invalid, FLOAT32.nan, result)
    flags = np.where(nan | plus | minus, 0, flags)
    flags = np.where(invalid, int(Flags.INVALID), flags)
    return result.astype(np.uint32), flags.astype(np.uint8)


def _round_sum(total: np.ndarray, grid: np.ndarray, lost: np.ndarray):
    """Float32 bits and flags of ``total * 4**grid``; ``lost`` marks sums of terms that were cut."""
    result, flags = round_float(FLOAT32, np.ldexp(total.astype(np.float64), 2 * grid))
    lost = lost & (flags & int(Flags.OVERFLOW | Flags.UNDERFLOW) == 0)
    # |total| < 2**53 and float64 reaches far beyond the products' range: the one rounding above is
    # the only one.
    result = np.where(total == 0, 0, result)
    return result, flags | np.where(lost, int(Flags.INEXACT), 0).astype(np.uint8)
