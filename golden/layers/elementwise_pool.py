"""Layers without weights on stored operands, forward and backward, bit for bit.

The executable form of the sections "ReLU" to "Residual addition" of docs/training.md. Maps are
channels-last arrays of operand codes (N, H, W, C); windows are taken row by row. All sums are
float32 additions, one rounding each, and what is stored is rounded once more to the operand format.
Functions return codes and the union of their :class:`golden.arithmetic.dot_product.Flags` (int).

Flattening changes no map: (N, H, W, C) stays as it is, and the linear layer behind it is a
convolution whose kernel is the map.
"""

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, widen
from golden.arithmetic.formats import FloatFormat

from .conv2d import pair
from .windows import Windows

__all__ = [
    "average_pool",
    "average_pool_backward",
    "first_maximum",
    "max_pool",
    "max_pool_backward",
    "relu",
    "relu_mask",
    "residual_add",
    "round_sums",
    "sum_gradients",
]


def relu(fmt: FloatFormat, x_bits) -> np.ndarray:
    """Codes with +0 for negative numbers, -0 and subnormal codes; NaN stays, the canonical one."""
    x = np.asarray(x_bits)
    result = np.where(relu_mask(fmt, x), x, 0).astype(x.dtype)
    return np.where(np.isnan(decode(fmt, x)), fmt.nan, result).astype(x.dtype)


def relu_mask(fmt: FloatFormat, y_bits) -> np.ndarray:
    """True where a stored output of ReLU lets the gradient through: positive numbers and NaN.

    The sign is clear and the exponent code is not zero; the gradient elsewhere is +0.
    """
    y = np.asarray(y_bits).astype(np.int64)
    return (y & fmt.sign_bit == 0) & (y >> fmt.mantissa_bits != 0)


def max_pool(fmt: FloatFormat, x_bits, **window) -> np.ndarray:
    """Largest element of every window (N, HO, WO, C): codes, nothing is rounded.

    Positions outside the map belong to no window. -0 and +0 are equal, and the first maximum is
    the result; NaN is the result if the window holds one. ``window`` is kernel, stride (that of the
    kernel unless it is given), padding and ceil_mode, here and everywhere.
    """
    windows = _pool_windows(np.asarray(x_bits).shape, **window)
    return _maximum(fmt, np.asarray(x_bits), windows)[0]


def first_maximum(fmt: FloatFormat, x_bits, **window) -> np.ndarray:
    """Place ``kh * KW + kw`` of the maximum in its window, (N, HO, WO, C).

    The first of the largest elements; if there are NaN, the last of them, as in torch.
    """
    windows = _pool_windows(np.asarray(x_bits).shape, **window)
    return _maximum(fmt, np.asarray(x_bits), windows)[1]


def max_pool_backward(fmt: FloatFormat, x_bits, dy_bits, **window):
    """Gradient (N, H, W, C) of the stored input ``x_bits``: each goes to its first maximum.

    A pixel starts at +0 and adds the gradients of the windows whose maximum it is, by rows of
    windows; other windows add nothing.
    """
    windows = _pool_windows(np.asarray(x_bits).shape, **window)
    index = _maximum(fmt, np.asarray(x_bits), windows)[1]
    return _scatter(fmt, widen(fmt, dy_bits), windows, lambda place: index == place)


def average_pool(fmt: FloatFormat, x_bits, *, include_pad=True, divisor=None, **window):
    """Float32 sum of each window, by rows, times a constant, rounded to operands.

    The constant is float32(1 / ``divisor``), or that of the window's number of places: all of them
    without padding; see :meth:`golden.layers.windows.Windows.extents`. Places outside the map add
    nothing.
    """
    x = widen(fmt, x_bits)
    windows, unit = _pool_windows(x.shape, **window), VectorUnit()
    # The first element is added to -0, which changes nothing.
    total = np.full(windows.shape, negate(np.uint32(0)))
    for _, *parts in windows.places():
        outputs, pixels = ((slice(None), *part) for part in parts)
        total[outputs] = unit.add(total[outputs], x[pixels])
    return unit.round(fmt, _shares(unit, total, windows, include_pad, divisor)), unit.flags


def average_pool_backward(
    fmt: FloatFormat, dy_bits, *, input_size, include_pad=True, divisor=None, **window
):
    """Gradient (N, H, W, C): the window's constant times ``dy_bits``, summed as in max pooling."""
    dy = np.asarray(dy_bits)
    windows = _pool_windows((len(dy), *input_size, dy.shape[3]), **window)
    unit = VectorUnit()
    share = _shares(unit, widen(fmt, dy), windows, include_pad, divisor)
    codes, flags = _scatter(fmt, share, windows, None)
    return codes, flags | unit.flags


def residual_add(fmt: FloatFormat, a_bits, b_bits):
    """Float32 sum of two stored maps, rounded to operands."""
    unit = VectorUnit()
    return unit.round(fmt, unit.add(widen(fmt, a_bits), widen(fmt, b_bits))), unit.flags


def round_sums(fmt: FloatFormat, sums):
    """The array's float32 sums, rounded to operands."""
    unit = VectorUnit()
    return unit.round(fmt, sums), unit.flags


def sum_gradients(fmt: FloatFormat, gradients):
    """Gradient of a map that several layers read: float32 sum in the given order, rounded once.

    One gradient alone is passed on as it is.
    """
    first, *others = (np.asarray(gradient) for gradient in gradients)
    if not others:
        return first, 0
    unit, total = VectorUnit(), widen(fmt, first)
    for other in others:
        total = unit.add(total, widen(fmt, other))
    return unit.round(fmt, total), unit.flags


def _pool_windows(shape, *, kernel, stride=None, padding=0, ceil_mode=False):
    """Checked windows; the stride is the kernel unless it is given."""
    if any(2 * pad > size for pad, size in zip(pair(padding), pair(kernel), strict=True)):
        raise ValueError(
            f"Padding {pair(padding)} must be at most half of the kernel {pair(kernel)}"
        )
    stride = kernel if stride is None else stride
    return Windows(shape, kernel, stride, padding, ceil_mode=ceil_mode)


def _shares(unit, values, windows, include_pad, divisor):
    """``values`` of the windows, each times the reciprocal of its number of places."""
    result = np.empty_like(values)
    for part, places in windows.extents(include_pad=include_pad):
        outputs = (slice(None), *part)
        constant_of = constant(1.0 / (places if divisor is None else divisor))
        result[outputs] = unit.multiply(values[outputs], constant_of)
    return result


def _maximum(fmt, x, windows):
    """Codes and places of the maxima."""
    values = decode(fmt, x)
    best, index = np.full(windows.shape, np.nan), np.full(windows.shape, -1)
    codes = np.zeros(windows.shape, x.dtype)
    for place, *parts in windows.places():
        outputs, pixels = ((slice(None), *part) for part in parts)
        value, old, none = values[pixels], best[outputs], index[outputs] < 0
        with np.errstate(invalid="ignore"):
            better = none | (value > old) | np.isnan(value)
        best[outputs] = np.where(better, value, old)
        codes[outputs] = np.where(better, x[pixels], codes[outputs])
        index[outputs] = np.where(better, place, index[outputs])
    return np.where(np.isnan(best), fmt.nan, codes).astype(x.dtype), index


def _scatter(fmt, values, windows, chosen):
    """Add ``values`` (N, HO, WO, C) float32 to the pixels of their windows; round to operands.

    Windows in order of rows reach a pixel with their last place first.
    """
    unit = VectorUnit()
    total = np.zeros(windows.map, np.uint32)
    for place, *parts in reversed(windows.places()):
        outputs, pixels = ((slice(None), *part) for part in parts)
        if chosen is None:
            total[pixels] = unit.add(total[pixels], values[outputs])
        else:
            here = chosen(place)[outputs]
            target = total[pixels]  # a view
            target[here] = unit.add(target[here], values[outputs][here])
    return unit.round(fmt, total), unit.flags
