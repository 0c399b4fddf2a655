"""The array: fused dot products of all K tiles of a MATMUL, as docs/numerics.md says."""

import numpy as np

from golden.arithmetic.dot_product import FLOAT32, WINDOW_BITS, Flags

from .compilation import inline, kernel
from .numbers import INFINITY, INVALID, MAGNITUDE, NAN, SIGN, round_float32

__all__ = ["column_dots"]

_LOST = int(Flags.INEXACT)
_OUT_OF_RANGE = int(Flags.OVERFLOW | Flags.UNDERFLOW)
_FRACTION_BITS = FLOAT32.mantissa_bits
_HIDDEN = 1 << _FRACTION_BITS
_NO_TERM = -(1 << 20)
#: Products of two operands, and partial sums, on the grid of powers of four.
_PRODUCT_OFFSET = 12
_PSUM_OFFSET = 77
#: No term is left of a number that is shifted further.
_MOST_SHIFT = WINDOW_BITS + 2
#: 4**g at g + 256: more than any grid exponent can be.
_POWERS = 4.0 ** np.arange(-256, 257)
_POWER_ORIGIN = 256


@inline
def _operand(code, mantissa_bits, exponent_bits):
    """Significand with its sign, shifted by the exponent's lowest bit; grid exponent without the
    offset, far below all others for zeros and special values; whether it is special."""
    top = (1 << exponent_bits) - 1
    exponent = (code >> mantissa_bits) & top
    if exponent == 0:
        return 0, _NO_TERM, False
    if exponent == top:
        return 0, _NO_TERM, True
    mantissa = code & ((1 << mantissa_bits) - 1)
    significand = (mantissa | (1 << mantissa_bits)) << (exponent & 1)
    if (code >> (mantissa_bits + exponent_bits)) & 1:
        significand = -significand
    return significand, exponent >> 1, False


@inline
def _special(vectors, weights, tile, m, column, psum, mantissa_bits, exponent_bits):
    """Result and flags of terms with a NaN or an infinity among them."""
    top = (1 << exponent_bits) - 1
    fraction = (1 << mantissa_bits) - 1
    width = mantissa_bits + exponent_bits
    magnitude = psum & MAGNITUDE
    nan = magnitude > INFINITY
    plus = psum == INFINITY
    minus = psum == INFINITY | SIGN
    for row in range(weights.shape[1]):
        a, b = np.int64(vectors[tile, m, row]), np.int64(weights[tile, row, column])
        a_exponent, b_exponent = (a >> mantissa_bits) & top, (b >> mantissa_bits) & top
        if a_exponent != top and b_exponent != top:
            continue
        if (a_exponent == top and a & fraction) or (b_exponent == top and b & fraction):
            nan = True
        elif a_exponent == 0 or b_exponent == 0:
            plus = minus = True
        elif ((a ^ b) >> width) & 1:
            minus = True
        else:
            plus = True
    if nan:
        return np.int64(NAN), 0
    if plus and minus:
        return np.int64(NAN), INVALID
    return np.int64(INFINITY) if plus else np.int64(INFINITY | SIGN), 0


@inline
def _round(total, grid, lost):
    """Float32 bits and flags of ``total * 4**grid``."""
    if total == 0:
        return np.int64(0), _LOST if lost else 0
    bits, flags = round_float32(np.float64(total) * _POWERS[grid + _POWER_ORIGIN])
    if lost and not flags & _OUT_OF_RANGE:
        flags |= _LOST
    return bits, flags


@kernel
def column_dots(layout, vectors, weights, sums, channels):
    """``sums + vectors[0] @ weights[0] + vectors[1] @ weights[1] + ...``, tile by tile.

    Parameters
    ----------
    layout : record of :data:`~emulator.kernels.records.LAYOUT`
    vectors : (tiles, M, rows) uint16 operand codes
    weights : (tiles, rows, columns) uint16
    sums : (M, columns) uint32 float32 bits, changed in place
    channels : columns whose flags count

    Returns
    -------
    the union of the flags
    """
    mantissa_bits, exponent_bits = layout[0].mantissa_bits, layout[0].exponent_bits
    tiles, count, rows = vectors.shape
    columns = weights.shape[2]
    offset = (1 << (exponent_bits - 1)) - 1 + _PRODUCT_OFFSET
    scale = WINDOW_BITS - 2 * (mantissa_bits + 1) - 2
    x_value = np.empty((rows, count), np.int32)
    x_grid = np.empty((rows, count), np.int32)
    x_special = np.empty(count, np.bool_)
    w_value = np.empty(rows, np.int32)
    w_grid = np.empty(rows, np.int32)
    grid = np.empty(count, np.int32)
    total = np.empty(count, np.int64)
    lost = np.empty(count, np.int32)
    union = 0
    for tile in range(tiles):
        for row in range(rows):
            for m in range(count):
                value, place, special = _operand(
                    np.int64(vectors[tile, m, row]), mantissa_bits, exponent_bits
                )
                x_value[row, m], x_grid[row, m] = value, place
                x_special[m] = special or (row > 0 and x_special[m])
        for column in range(columns):
            w_special = False
            for row in range(rows):
                value, place, special = _operand(
                    np.int64(weights[tile, row, column]), mantissa_bits, exponent_bits
                )
                w_value[row], w_grid[row] = value << scale, place - offset
                w_special |= special
            # The largest grid exponent of each vector's terms.
            for m in range(count):
                exponent = (np.int64(sums[m, column]) >> _FRACTION_BITS) & 0xFF
                here = exponent != 0 and exponent != 0xFF
                grid[m] = ((exponent + 1) >> 1) - _PSUM_OFFSET if here else _NO_TERM
                total[m] = 0
                lost[m] = 0
            for row in range(rows):
                if w_value[row]:
                    place = w_grid[row]
                    for m in range(count):
                        grid[m] = max(grid[m], np.int32(x_grid[row, m] + place))
            for row in range(rows):
                w = w_value[row]
                if w:
                    place = w_grid[row]
                    for m in range(count):
                        product = np.int32(x_value[row, m] * w)
                        distance = np.int32(2 * (grid[m] - x_grid[row, m] - place))
                        shift = min(distance, np.int32(_MOST_SHIFT))
                        size = abs(product)
                        kept = np.int32(size >> shift)
                        lost[m] |= np.int32(size - (kept << shift))
                        total[m] += kept if product >= 0 else -kept
            for m in range(count):
                psum = np.int64(sums[m, column])
                exponent = (psum >> _FRACTION_BITS) & 0xFF
                if w_special or x_special[m] or exponent == 0xFF:
                    bits, flags = _special(
                        vectors, weights, tile, m, column, psum, mantissa_bits, exponent_bits
                    )
                else:
                    if exponent:
                        fraction = psum & (_HIDDEN - 1)
                        addend = (fraction | _HIDDEN) << (3 + (~exponent & 1))
                        place = ((exponent + 1) >> 1) - _PSUM_OFFSET
                        shift = min(2 * (grid[m] - place), 62)
                        kept = addend >> shift
                        if kept << shift != addend:
                            lost[m] = 1
                        total[m] += -kept if psum & SIGN else kept
                    bits, flags = _round(total[m], grid[m], lost[m] != 0)
                sums[m, column] = np.uint32(bits)
                if column < channels:
                    union |= flags
    return union
