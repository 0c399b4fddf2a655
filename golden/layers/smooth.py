"""Sigmoid, tanh, SiLU, GELU and softplus, and their derivatives, bit for bit.

The executable form of the section "Smooth activations" of docs/training.md. All of them are chains
of additions and multiplications of float32 numbers: polynomials, and a power of two.

Maps are arrays of operand codes of any shape. Each function takes ``derivative``; with it the
result is that of the derivative, not of the function. Functions return codes and the union of their
:class:`golden.arithmetic.dot_product.Flags` (int). The constants are rounded to float32 once; how
far what they define is from the functions is derived in :mod:`golden.training.smooth_bounds`.
"""

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, power_of_two, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat

__all__ = [
    "GELU_ERF",
    "GELU_TANH",
    "derivative",
    "exponential",
    "gelu",
    "logistic",
    "logistic_loss",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
]

#: log2(e).
_LOG2_E = 1.4426950408889634
#: Added to a number, this leaves the nearest integer, less 7, in its lowest bits.
_TO_INTEGER = constant(1.5 * 2**23 - 7)
_LEAST = constant(-120.0)

# 2**f - 1 for f from -1/2 to 1/2, times _SCALE * 2**7: (((f + a) f + b) f + c) f.
_POWER = [5.805431842803955, 24.977100372314453, 72.06580352783203]
_ONE_SCALED = constant(103.97052001953125)
_SCALE = 0.8122696876525879
# For w = _SCALE * z, z from 0 to 1: 1 / (1 + z) is _LEAD times this polynomial, without the
# coefficient of w**6, which is 1.
_RECIPROCAL = [-3.6188995838165283, 6.019465446472168, -6.5520100593566895, 5.775731563568115,
               -4.748381614685059, 3.859344720840454]  # fmt: skip
_LEAD = 0.25911134481430054
# The same for w = _SCALE * (z - 1).
_SHIFTED = [1.254625916481018, 1.218377709388733, -0.15287870168685913, 0.7741393446922302,
            -1.1855556964874268, 1.929685115814209]  # fmt: skip
_SHIFTED_LEAD = 0.2591122090816498
# ln(1 + z) is _LOG_LEAD times (((((w + a) w + b) w + c) w + d) w + e) w.
_LOGARITHM = [-3.444607973098755, 5.806097030639648, -7.3017048835754395, 9.107099533081055,
              -14.813639640808105]  # fmt: skip
_LOG_LEAD = -0.0831063762307167
# The argument of the sigmoid in GELU: factor * x * (polynomial of x * x), leading coefficient 1.
GELU_ERF = (-7.03185062e-04, [-105.25251251, -2268.27229643])
GELU_TANH = (0.07135481627362, [22.3638600022364])
#: The polynomial goes no further.
_SQUARE = constant(36.0)

_ZERO, _ONE = constant(0.0), constant(1.0)


def sigmoid(fmt: FloatFormat, x_bits, *, derivative: bool = False):
    """``s = 1 / (1 + e**-x)``; ``s - s * s``."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    s = logistic(unit, x)
    return _stored(unit, fmt, _bump(unit, s) if derivative else s)


def silu(fmt: FloatFormat, x_bits, *, derivative: bool = False):
    """``s * x``; ``((1 - s) * x) * s + s``."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    s = logistic(unit, x)
    result = unit.multiply(s, x)
    if derivative:
        result = unit.multiply(unit.subtract(_ONE, s), x)
        result = unit.add(unit.multiply(result, s), s)
    return _stored(unit, fmt, result)


def gelu(fmt: FloatFormat, x_bits, *, tanh: bool, derivative: bool = False):
    """``s * x`` with the sigmoid s of ``g(x)``; ``(s - s * s) * (x g'(x)) + s``."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    factor, terms = GELU_TANH if tanh else GELU_ERF
    square = unit.multiply(x, x)
    square = np.where(_above(square, 36.0), _SQUARE, square)
    argument = _horner(unit, terms, square, x)
    s = logistic(unit, argument, factor * _LOG2_E, sign=x)
    result = unit.multiply(s, x)
    if derivative:
        # The coefficients of g': those of g, times 1, 3 and 5.
        odd = 2 * len(terms) + 1
        slopes = [term * (odd - 2 * n) / odd for n, term in enumerate(terms, 1)]
        slope = unit.multiply(_horner(unit, slopes, square, _bump(unit, s)), x)
        result = unit.add(unit.multiply(slope, constant(factor * odd)), s)
    return _stored(unit, fmt, result)


def tanh(fmt: FloatFormat, x_bits, *, derivative: bool = False):
    """``t``; ``1 - t * t``."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    h, t = _reduced(unit, x, 2 * _LOG2_E)
    power = power_of_two(t)
    # S (z - 1), z = e**-|2x|: the part of 2**n is exactly +0 where n is 0.
    d = unit.add(unit.multiply(_ONE_SCALED, power), constant(-_SCALE))
    d = unit.add(unit.multiply(h, power), d)
    m = unit.multiply(d, constant(_SHIFTED_LEAD / _SCALE))
    t = unit.multiply(unit.add(_steps(unit, _SHIFTED[:-1], d), constant(_SHIFTED[-1])), m)
    if derivative:
        t = unit.add(negate(unit.multiply(t, t)), _ONE)
    else:
        t = np.where(_positive(x), negate(t), t)
    return _stored(unit, fmt, t)


def softplus(fmt: FloatFormat, x_bits, *, derivative: bool = False):
    """``ln(1 + e**-|x|)`` and the larger of x and 0; the sigmoid."""
    unit, x = VectorUnit(), widen(fmt, x_bits)
    result = logistic(unit, x) if derivative else logistic_loss(unit, x)
    return _stored(unit, fmt, result)


def derivative(function, fmt: FloatFormat, dy_bits, x_bits, **options):
    """``dy`` times the derivative of ``function`` at ``x``, which is rounded to operands before."""
    slope, flags = function(fmt, x_bits, derivative=True, **options)
    unit = VectorUnit()
    product = unit.round(fmt, unit.multiply(widen(fmt, dy_bits), widen(fmt, slope)))
    return product, flags | unit.flags


def logistic(unit: VectorUnit, x, factor: float = _LOG2_E, *, sign=None) -> np.ndarray:
    """Float32 ``1 / (1 + 2**-(x factor))``; ``sign`` has the sign of ``x``."""
    w = exponential(unit, x, factor)
    m = unit.multiply(w, constant(_LEAD / _SCALE))
    m = np.where(_positive(x if sign is None else sign), constant(_LEAD), m)
    total = unit.add(_steps(unit, _RECIPROCAL[:-1], w), constant(_RECIPROCAL[-1]))
    return unit.multiply(total, m)


def logistic_loss(unit: VectorUnit, x) -> np.ndarray:
    """Float32 ``ln(1 + e**-|x|)`` plus the larger of ``x`` and 0."""
    logarithm = _steps(unit, _LOGARITHM, exponential(unit, x, _LOG2_E))
    larger = np.where(_above(x, 0.0), x, _ZERO)
    return unit.add(unit.multiply(logarithm, constant(_LOG_LEAD)), larger)


def exponential(unit: VectorUnit, x, factor: float = _LOG2_E) -> np.ndarray:
    """``_SCALE`` times 2 to the power of minus ``|x factor|``, by default of ``e**-|x|``."""
    h, t = _reduced(unit, x, factor)
    return unit.multiply(unit.add(h, _ONE_SCALED), power_of_two(t))


def _reduced(unit, x, factor):
    """``2**f - 1``, scaled, and what has n - 7 in its lowest bits, of ``n + f = -|x factor|``."""
    y = unit.multiply(x, constant(factor))
    y = np.where(_positive(y), negate(y), y)
    y = np.where(_above(y, decode(FLOAT32, _LEAST)), y, _LEAST)
    t = unit.add(y, _TO_INTEGER)
    f = unit.add(negate(unit.subtract(t, _TO_INTEGER)), y)
    return _steps(unit, _POWER, f), t


def _steps(unit, terms, x):
    """``(((x + a) * x + b) * x + ...) * x``."""
    total = x
    for term in terms:
        total = unit.multiply(unit.add(total, constant(term)), x)
    return total


def _horner(unit, terms, square, x):
    """``((square + a) * square + ...) * x``: every factor but the last is ``square``."""
    total = square
    for term, factor in zip(terms, [*[square] * (len(terms) - 1), x], strict=True):
        total = unit.multiply(unit.add(total, constant(term)), factor)
    return total


def _bump(unit, s):
    """``s - s * s``."""
    return unit.add(negate(unit.multiply(s, s)), s)


def _positive(x):
    """Where a number is above zero, or NaN."""
    return (x < np.uint32(FLOAT32.sign_bit)) & (x >> np.uint32(FLOAT32.mantissa_bits) != 0)


def _above(x, limit):
    """Where a number is above ``limit``, or NaN."""
    values = decode(FLOAT32, x)
    with np.errstate(invalid="ignore"):
        return (values > limit) | np.isnan(values)


def _stored(unit, fmt, bits):
    return unit.round(fmt, bits), unit.flags
