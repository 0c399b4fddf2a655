"""Arithmetic of single numbers, for kernels: bits as int64, flags as in docs/numerics.md.

Operands are canonical: no subnormals, one NaN (:func:`canonical`). Sums and products use the
processor's own float32 and float64, which round as the accelerator does except for results below
the smallest normal number.
"""

import numpy as np

from golden.arithmetic.dot_product import FLOAT32, Flags

from .compilation import inline

__all__ = [
    "INFINITY",
    "MAGNITUDE",
    "NAN",
    "SIGN",
    "add",
    "as_bits",
    "as_float",
    "canonical",
    "larger",
    "multiply",
    "narrow",
    "negate",
    "power_of_two",
    "round_float32",
    "widen",
]

INVALID = int(Flags.INVALID)
_OVER = int(Flags.OVERFLOW | Flags.INEXACT)
_UNDER = int(Flags.UNDERFLOW | Flags.INEXACT)
_INEXACT = int(Flags.INEXACT)

SIGN = FLOAT32.sign_bit
MAGNITUDE = SIGN - 1
INFINITY = FLOAT32.infinity
NAN = FLOAT32.nan
_FRACTION_BITS = FLOAT32.mantissa_bits
_HIDDEN = 1 << _FRACTION_BITS
_FRACTION = _HIDDEN - 1
_BIAS = FLOAT32.bias
_MIN_NORMAL = FLOAT32.min_normal
#: From here on a number rounds to the smallest normal one, the exponent being unlimited: half a
#: unit below it, a tie that goes to the even number.
_ROUNDS_TO_NORMAL = FLOAT32.min_normal * (1 - 2.0 ** -(FLOAT32.significand_bits + 1))


@inline
def as_float(bits):
    """The float32 number."""
    return np.uint32(bits).view(np.float32)


@inline
def as_bits(value):
    """Bits of a float32 number."""
    return np.int64(np.float32(value).view(np.uint32))


@inline
def canonical(bits):
    """Float32 bits as every operation reads them."""
    magnitude = bits & MAGNITUDE
    if magnitude < _HIDDEN:
        return bits & SIGN
    if magnitude > INFINITY:
        return np.int64(NAN)
    return bits


@inline
def negate(bits):
    """The sign turned, but for NaN."""
    return np.int64(NAN) if bits == NAN else bits ^ SIGN


@inline
def power_of_two(bits):
    """2 to the power of the lowest 8 bits, a signed number."""
    return ((bits + _BIAS) & 0xFF) << _FRACTION_BITS


@inline
def round_float32(value):
    """Float32 bits and flags of a float64 number other than NaN."""
    magnitude = abs(value)
    bits = as_bits(np.float32(value))
    if magnitude < _MIN_NORMAL:
        if magnitude == 0.0:
            return bits, 0
        if magnitude >= _ROUNDS_TO_NORMAL:
            return (bits & SIGN) | _HIDDEN, _INEXACT
        return bits & SIGN, _UNDER
    if bits & MAGNITUDE == INFINITY:
        return bits, 0 if magnitude == np.inf else _OVER
    return bits, 0 if np.float64(as_float(bits)) == value else _INEXACT


@inline
def add(a, b):
    """Bits and flags of ``a + b``."""
    if a == NAN or b == NAN:
        return np.int64(NAN), 0
    x, y = as_float(a), as_float(b)
    bits = as_bits(x + y)
    magnitude = bits & MAGNITUDE
    if magnitude < _HIDDEN:
        # Exact, as both are multiples of the smallest subnormal number.
        return (bits & SIGN, _UNDER) if magnitude else (bits, 0)
    if magnitude > INFINITY:
        return np.int64(NAN), INVALID
    if magnitude == INFINITY:
        infinite = a & MAGNITUDE == INFINITY or b & MAGNITUDE == INFINITY
        return bits, 0 if infinite else _OVER
    # What float64 leaves out of the sum, if anything.
    wide_x, wide_y = np.float64(x), np.float64(y)
    total = wide_x + wide_y
    from_x = total - wide_y
    error = (wide_x - from_x) + (wide_y - (total - from_x))
    exact = error == 0.0 and np.float64(as_float(bits)) == total
    return bits, 0 if exact else _INEXACT


@inline
def multiply(a, b):
    """Bits and flags of ``a * b``."""
    if a == NAN or b == NAN:
        return np.int64(NAN), 0
    # Exact in float64.
    product = np.float64(as_float(a)) * np.float64(as_float(b))
    if product != product:
        return np.int64(NAN), INVALID
    return round_float32(product)


@inline
def larger(a, b):
    """The larger number, ``a`` if they are equal; NaN if one is NaN."""
    if a == NAN or b == NAN:
        return np.int64(NAN)
    return b if as_float(b) > as_float(a) else a


@inline
def widen(code, mantissa_bits, exponent_bits):
    """Float32 bits of an operand."""
    top = (1 << exponent_bits) - 1
    exponent = (code >> mantissa_bits) & top
    mantissa = code & ((1 << mantissa_bits) - 1)
    sign = SIGN if (code >> (mantissa_bits + exponent_bits)) & 1 else 0
    if exponent == 0:
        return np.int64(sign)
    if exponent == top:
        return np.int64(NAN) if mantissa else np.int64(sign | INFINITY)
    exponent += _BIAS - (top >> 1)
    return sign | (exponent << _FRACTION_BITS) | (mantissa << (_FRACTION_BITS - mantissa_bits))


@inline
def narrow(bits, mantissa_bits, exponent_bits):
    """Operand code and flags of a float32 number, rounded."""
    top = (1 << exponent_bits) - 1
    infinity = top << mantissa_bits
    magnitude = bits & MAGNITUDE
    sign = (bits >> 31) << (mantissa_bits + exponent_bits)
    if magnitude == 0:
        return sign, 0
    if magnitude >= INFINITY:
        if magnitude > INFINITY:
            return infinity | (1 << (mantissa_bits - 1)), 0
        return sign | infinity, 0
    cut = _FRACTION_BITS - mantissa_bits
    exponent = (magnitude >> _FRACTION_BITS) - _BIAS + (top >> 1)
    significand = (magnitude & _FRACTION) | _HIDDEN
    kept = significand >> cut
    rest = significand - (kept << cut)
    half = 1 << (cut - 1)
    if rest > half or (rest == half and kept & 1):
        kept += 1
        if kept >> (mantissa_bits + 1):
            kept >>= 1
            exponent += 1
    if exponent >= top:
        return sign | infinity, _OVER
    if exponent <= 0:
        return sign, _UNDER
    code = (exponent << mantissa_bits) | (kept & ((1 << mantissa_bits) - 1))
    return sign | code, _INEXACT if rest else 0
