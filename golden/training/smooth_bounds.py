"""How far sigmoid, tanh, SiLU, GELU and softplus of :mod:`golden.layers.smooth` are from the exact
functions.

With z = e**-|x|, whose exponent is ``n + f``:

- The polynomials are off, relative to what they stand for, by at most 2**-16 (``2**f - 1``),
  2**-17 (``2**f``), 2**-16.5 (``1 / (1 + z)``; exact, in float32, where the result is 1) and 2**-16
  (``ln(1 + z)``). ``tests/golden/layers/test_smooth.py`` measures them in float64, and that the
  error of ``1 / (1 + z)`` is below ``z * 2**-10``, which is ``2**-9`` times the smaller of s and
  1 - s.
- ``x * log2(e)`` is rounded twice, with its constant: z is off by ``|x| * 2**-23`` for that. n and
  f are exact. z is 0 instead of less than 2**-119.
- A polynomial takes about a dozen roundings, of which the last ones count: ``2**-21``.
- The polynomials g of GELU are off by so much that Phi is, at most, by 5.2e-5, GELU by 2.7e-5 and
  its derivative by 1.2e-4 (of the variant with tanh g is exact up to x = 6, and beyond 1e-9).

A relative error e of z moves ``s = z / (1 + z)`` by ``s (1 - s) e``, and so does it ``1 - s``.
"""

import numpy as np

from golden.arithmetic.running_error import Estimate, interleaved_sum, rounding_error
from golden.layers.smooth import GELU_ERF, GELU_TANH

__all__ = ["GELU_ERRORS", "SMOOTH_KINDS", "binary_cross_entropy_bounds", "smooth_bounds"]

#: Kinds of layers.
SMOOTH_KINDS = ("sigmoid", "tanh", "silu", "gelu", "softplus")
#: Of GELU and its derivative, by the polynomial alone.
GELU_ERRORS = {False: (2.7e-5, 1.2e-4), True: (1e-8, 1e-7)}

_ROUNDINGS = 2.0**-21
_FLUSH = 2.0**-118


def smooth_bounds(fmt, kind: str, x: Estimate, dy: Estimate, **options):
    """Errors of the output, before it is rounded, and of the input's gradient, which is ``dy``
    times the derivative as an operand.

    Parameters
    ----------
    fmt : FloatFormat
    kind : one of :data:`SMOOTH_KINDS`
    x, dy : operands
    """
    error, slope, slope_error = _BOUNDS[kind](x.value, **options)
    stored = slope_error + rounding_error(fmt, np.abs(slope) + slope_error)
    return error, (Estimate(slope, stored) * dy).error


def binary_cross_entropy_bounds(x, target):
    """Errors of the value and of the gradient, before it is rounded, of float64 logits and targets
    that are float32 numbers."""
    count = x.size
    error, s, s_error = _softplus(x)
    losses = np.logaddexp(0.0, x) - x * target
    # Product and sum; a root and its square take two roundings more.
    errors = error + (np.abs(x * target) + losses + error) * _ROUNDINGS
    total = interleaved_sum(losses.sum(), (losses + errors).sum(), errors.sum(), count)
    value = total * Estimate.constant(1.0 / count)
    difference = Estimate(s, s_error) - Estimate.exact(target)
    return value.error, (difference * Estimate.constant(1.0 / count)).error


def _logistic(x):
    """The sigmoid and its error."""
    with np.errstate(over="ignore"):
        small = 1.0 / (1.0 + np.exp(np.abs(x)))  # the smaller one of s and 1 - s
    s = np.where(x > 0, 1.0 - small, small)
    z = 2.0**-17 + np.abs(x) * 2.0**-23
    error = s * (np.minimum(2.0**-16.5, small * 2.0**-9) + (1.0 - s) * z + _ROUNDINGS)
    return s, error + _FLUSH


def _sigmoid(x):
    s, error = _logistic(x)
    slope = s * (1.0 - s)
    return error, slope, np.abs(1.0 - 2.0 * s) * error + s * _ROUNDINGS + _FLUSH


def _silu(x):
    s, error = _logistic(x)
    inner = x * (1.0 - s)
    slope = s * (1.0 + inner)
    slope_error = np.abs(1.0 + x * (1.0 - 2.0 * s)) * error + s * (1.0 + np.abs(x)) * _ROUNDINGS
    return np.abs(x) * (error + s * _ROUNDINGS), slope, slope_error + _FLUSH


def _tanh(x):
    t = np.tanh(x)
    error = np.abs(t) * (2.0**-16 + 2.0**-16.5 + _ROUNDINGS) + _FLUSH
    return error, 1.0 - t * t, 2.0 * np.abs(t) * error + _ROUNDINGS


def _softplus(x):
    s, slope_error = _logistic(x)
    logarithm = np.log1p(np.exp(-np.abs(x)))
    value = logarithm + np.maximum(x, 0.0)
    error = logarithm * (2.0**-16 + 2.0**-17 + np.abs(x) * 2.0**-23) + value * _ROUNDINGS
    return error + _FLUSH, s, slope_error


def _gelu(x, tanh):
    factor, terms = GELU_TANH if tanh else GELU_ERF
    square = np.minimum(x * x, 36.0)
    coefficients = np.array([*terms[::-1], 1.0]) * factor
    powers = square[..., np.newaxis] ** np.arange(len(coefficients))
    argument = x * (powers * coefficients).sum(axis=-1)
    steep = (powers * coefficients * (2 * np.arange(len(coefficients)) + 1)).sum(axis=-1)
    s, error = _logistic(argument)
    error = error + s * (1.0 - s) * np.abs(argument) * _ROUNDINGS
    bump = s * (1.0 - s)
    bump_error = np.abs(1.0 - 2.0 * s) * error + s * _ROUNDINGS
    slope = s + x * steep * bump
    own, slope_own = GELU_ERRORS[tanh]
    slope_error = error + np.abs(x * steep) * (bump_error + bump * _ROUNDINGS) + s * _ROUNDINGS
    return (
        np.abs(x) * (error + s * _ROUNDINGS) + own,
        slope,
        slope_error + slope_own + _FLUSH,
    )


_BOUNDS = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "gelu": _gelu,
    "softplus": _softplus,
}
