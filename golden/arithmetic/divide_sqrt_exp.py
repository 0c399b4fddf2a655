"""Bit-exact division, square root and exponential in float32.

The executable form of the section about them in docs/numerics.md: vectorised integer arithmetic on
the bits of float32 numbers (``uint32``, any shape). Subnormal operands count as zeros with their
sign; every result is rounded as :mod:`golden.arithmetic.float32` does it: nearest, ties to even, as
if the exponent had no limits, then too large becomes infinity and too small becomes zero. The only
NaN is the quiet one with the sign clear.

All functions return the bits (``uint32``) and the :class:`golden.arithmetic.dot_product.Flags`
(``uint8``). There is no flag for a division by zero: its result is an exact infinity.
"""

import numpy as np

from .dot_product import FLOAT32, Flags

__all__ = [
    "EXPONENTIAL_DIGITS",
    "EXPONENTIAL_FRACTION_BITS",
    "divide",
    "exponential",
    "exponential_loss",
    "logarithm_table",
    "reciprocal_square_root",
    "square_root",
]

#: Fraction bits of the fixed-point numbers of :func:`exponential`.
EXPONENTIAL_FRACTION_BITS = 34
#: Factors 1 + 2**-k that :func:`exponential` tries, k from 1 up.
EXPONENTIAL_DIGITS = 16

_INTEGER_DIGITS = 8
_HIDDEN = 1 << FLOAT32.mantissa_bits
_ONE = np.uint32(FLOAT32.bias << FLOAT32.mantissa_bits)
_CHUNK_ELEMENTS = 1 << 15


def divide(a, b) -> tuple[np.ndarray, np.ndarray]:
    """``a / b``, correctly rounded: bits and flags of the broadcast shape.

    0/0 and infinity/infinity give NaN and INVALID; x/0 is an infinity of the sign of both operands
    together, without a flag. A NaN operand gives NaN and no flag.
    """
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.uint32), np.asarray(b, dtype=np.uint32))
    x, y = _Number(a), _Number(b)
    less = x.significand < y.significand
    # From 1 (included) to 2, with 24 fraction bits.
    dividend = x.significand << (24 + less)
    quotient = dividend // y.significand
    result, flags = _pack(
        x.exponent - y.exponent + FLOAT32.bias - less,
        quotient,
        quotient * y.significand != dividend,
    )
    infinite, zero = x.infinite | y.zero, x.zero | y.infinite
    invalid = (x.zero & y.zero) | (x.infinite & y.infinite)
    return _with_special(
        result, flags, x.negative ^ y.negative, zero, infinite, x.nan | y.nan | invalid, invalid
    )


def square_root(a) -> tuple[np.ndarray, np.ndarray]:
    """Square root, correctly rounded: bits and flags of the shape of ``a``.

    Zeros keep their sign. Negative numbers, minus infinity included, give NaN and INVALID; a NaN
    operand gives NaN and no flag.
    """
    x = _Number(np.asarray(a, dtype=np.uint32))
    # Of the number m * 2**(even), m from 1 to 4: the root has 24 fraction bits, m 48.
    radicand = x.significand << (25 + (~x.exponent & 1))
    root = np.rint(np.sqrt(radicand.astype(np.float64))).astype(np.int64)
    root -= root * root > radicand  # the nearest integer is the root or one above
    result, flags = _pack((x.exponent + FLOAT32.bias) >> 1, root, root * root != radicand)
    invalid = x.negative & ~x.zero & ~x.nan
    return _with_special(result, flags, x.negative, x.zero, x.infinite, x.nan | invalid, invalid)


def reciprocal_square_root(a) -> tuple[np.ndarray, np.ndarray]:
    """``divide(1, square_root(a))``, two roundings: bits and flags of the shape of ``a``.

    The error is below 1.5 units in the last place of the exact result. Zeros give infinities of
    their sign.
    """
    root, flags = square_root(a)
    result, new = divide(_ONE, root)
    return result, flags | new


def exponential(a) -> tuple[np.ndarray, np.ndarray]:
    """e to the power of ``a``: bits and flags of the shape of ``a``.

    Monotonic; the error is below 0.54 units in the last place. Zeros, and so subnormal numbers,
    give exactly 1; minus infinity gives +0 and infinity infinity, without flags. All other finite
    operands give inexact results.
    """
    a = np.asarray(a, dtype=np.uint32)
    result = np.empty(a.shape, dtype=np.uint32)
    flags = np.empty(a.shape, dtype=np.uint8)
    flat, flat_result, flat_flags = a.reshape(-1), result.reshape(-1), flags.reshape(-1)
    for start in range(0, flat.size, _CHUNK_ELEMENTS):
        part = slice(start, start + _CHUNK_ELEMENTS)
        flat_result[part], flat_flags[part] = _exponential(flat[part])
    return result, flags


def logarithm_table() -> tuple[int, list[int], list[int]]:
    """Constants of :func:`exponential` with :data:`EXPONENTIAL_FRACTION_BITS` fraction bits.

    256 ln 2, rounded down; 2**j ln 2 for j from 7 to 0, rounded up; ln(1 + 2**-k) for k from 1 to
    :data:`EXPONENTIAL_DIGITS`, rounded up.
    """
    ln2 = _logarithm(0)
    guard = _GUARD_BITS
    return (
        (ln2 << _INTEGER_DIGITS) >> guard,
        [((ln2 << j) >> guard) + 1 for j in reversed(range(_INTEGER_DIGITS))],
        [(_logarithm(k) >> guard) + 1 for k in range(1, EXPONENTIAL_DIGITS + 1)],
    )


def exponential_loss() -> float:
    """Bound of how far the unrounded :func:`exponential` is below e**x, relative to it.

    Nothing makes it larger than e**x. What makes it smaller, in units of the last fraction bit:

    - the operand is cut to a multiple of a unit (the negative one, to the next smaller): 1;
    - 256 ln 2 is rounded down, the constants are rounded up, each is used at most once: what is
      lost by that;
    - each product with 2**-k is cut, and the result is at least 1: 1 for each;
    - the last factor 1 + r stands for e**r: r**2 / 2; its product is cut: 1, and takes only the
      leading 18 bits of one factor: r * 2**-17.
    """
    unit = 2.0**-EXPONENTIAL_FRACTION_BITS
    top, integers, fractions = logarithm_table()
    scale = 2.0**-_GUARD_BITS
    ln2 = _logarithm(0)
    lost = scale * ((ln2 << _INTEGER_DIGITS) - (top << _GUARD_BITS))
    for j, constant in zip(reversed(range(_INTEGER_DIGITS)), integers, strict=True):
        lost += scale * ((constant << _GUARD_BITS) - (ln2 << j))
    for k, constant in enumerate(fractions, start=1):
        lost += scale * ((constant << _GUARD_BITS) - _logarithm(k))
    rest = 2.0**-EXPONENTIAL_DIGITS
    return unit * (1 + lost + EXPONENTIAL_DIGITS + 1) + rest**2 / 2 + rest * 2.0**-17


_GUARD_BITS = 64


def _logarithm(k: int) -> int:
    """ln(1 + 2**-k) with 34 + 64 fraction bits, below by less than 2**-50 of a unit of 2**-34.

    From ln(1 + 2**-k) = 2 artanh(1/z) with z = 2**(k+1) + 1; artanh(1/z) = 1/z + 1/(3 z**3) + ...
    """
    z = (1 << (k + 1)) + 1
    power = (1 << (EXPONENTIAL_FRACTION_BITS + _GUARD_BITS)) // z
    total, divisor = 0, 1
    while power:
        total += power // divisor
        power //= z * z
        divisor += 2
    return 2 * total


_TABLE = logarithm_table()


def _exponential(a):
    x = _Number(a)
    top, integers, fractions = _TABLE
    negative = x.negative & ~x.zero
    # |x| with 34 fraction bits, cut; below 2**7. Larger operands get their result at the end.
    shift = np.clip(FLOAT32.bias + 6 - x.exponent, 0, 63)
    magnitude = (x.significand << 17) >> shift
    rest = np.where(negative, top - 1 - magnitude, magnitude)

    # e**x = 2**n * product of (1 + 2**-k) * (1 + rest); x = n ln 2 + sum of logarithms + rest.
    exponent = np.where(negative, FLOAT32.bias - (1 << _INTEGER_DIGITS), FLOAT32.bias)
    for j, constant in zip(reversed(range(_INTEGER_DIGITS)), integers, strict=True):
        digit = rest >= constant
        rest -= np.where(digit, constant, 0)
        exponent += digit.astype(np.int64) << j
    power = np.full(a.shape, 1 << EXPONENTIAL_FRACTION_BITS, dtype=np.int64)
    for k, constant in enumerate(fractions, start=1):
        digit = rest >= constant
        rest -= np.where(digit, constant, 0)
        power += np.where(digit, power >> k, 0)
    power += ((power >> 17) * rest) >> 17

    huge = x.exponent >= FLOAT32.bias + 7
    exponent = np.where(huge, np.where(negative, -1, FLOAT32.exponent_max), exponent)
    result, flags = _pack(exponent, power >> 10, ~x.zero)
    result = np.where(x.zero, _ONE, result)
    flags = np.where(x.zero, np.uint8(0), flags)
    minus = x.infinite & x.negative
    no = np.zeros(a.shape, dtype=bool)
    return _with_special(result, flags, no, minus, x.infinite & ~minus, x.nan, no)


class _Number:
    """Fields of float32 numbers; ``significand`` has 23 fraction bits and its leading one."""

    def __init__(self, bits: np.ndarray):
        bits = bits.astype(np.int64)
        self.exponent = (bits >> FLOAT32.mantissa_bits) & FLOAT32.exponent_max
        fraction = bits & (_HIDDEN - 1)
        self.significand = fraction | _HIDDEN
        self.negative = bits >> 31 == 1
        self.zero = self.exponent == 0
        special = self.exponent == FLOAT32.exponent_max
        self.infinite = special & (fraction == 0)
        self.nan = special & (fraction != 0)


def _pack(exponent, significand, sticky):
    """Positive numbers rounded to float32: bits (int64) and flags (uint8).

    ``exponent`` is biased; ``significand`` has 24 fraction bits, its leading one is bit 24;
    ``sticky`` tells that something follows.
    """
    guard = significand & 1 == 1
    up = guard & (sticky | (significand & 2 != 0))
    # The carry out of the fraction goes on into the exponent.
    number = (exponent << FLOAT32.mantissa_bits) + (significand >> 1) - _HIDDEN + up
    rounded_exponent = number >> FLOAT32.mantissa_bits
    over, under = rounded_exponent >= FLOAT32.exponent_max, rounded_exponent <= 0
    bits = np.where(over, FLOAT32.infinity, np.where(under, 0, number))
    flags = np.where(guard | sticky, int(Flags.INEXACT), 0)
    flags = np.where(over, int(Flags.OVERFLOW | Flags.INEXACT), flags)
    flags = np.where(under, int(Flags.UNDERFLOW | Flags.INEXACT), flags)
    return bits, flags.astype(np.uint8)


def _with_special(bits, flags, negative, zero, infinite, nan, invalid):
    """The final bits and flags; of ``zero``, ``infinite`` and ``nan`` the last one wins."""
    bits = np.where(zero, 0, bits)
    bits = np.where(infinite, FLOAT32.infinity, bits)
    bits = bits | np.where(negative, FLOAT32.sign_bit, 0)
    bits = np.where(nan, FLOAT32.nan, bits)
    flags = np.where(zero | infinite | nan, 0, flags)
    flags = np.where(invalid, int(Flags.INVALID), flags)
    return bits.astype(np.uint32), flags.astype(np.uint8)
