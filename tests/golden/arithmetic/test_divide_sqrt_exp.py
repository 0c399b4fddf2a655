"""golden.arithmetic.divide_sqrt_exp against float64, exact integers and 60-digit decimals."""

import decimal
import itertools
from fractions import Fraction

import numpy as np
import pytest

from golden.arithmetic import divide_sqrt_exp as gs
from golden.arithmetic.dot_product import Flags

INEXACT, INVALID = int(Flags.INEXACT), int(Flags.INVALID)
OVER, UNDER = int(Flags.OVERFLOW) | INEXACT, int(Flags.UNDERFLOW) | INEXACT
NAN, INF, MINUS_INF, ONE = 0x7FC00000, 0x7F800000, 0xFF800000, 0x3F800000
SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFFC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
        0x7F7FFFFF, 0xFF7FFFFF, 0x3F7FFFFF, 0x3F800001, 0x40000000, 0x40800000, 0x7E800000,
        0x41100000, 0x40400000, 0x3F000000, 0x01000000, 0x1F800000, 0x20000000, 0x5F800000,
    ],
    dtype=np.uint32,
)  # fmt: skip


def value(bits):
    """Float64 values of float32 ``bits`` with subnormals as zeros."""
    bits = np.asarray(bits, dtype=np.uint32)
    flushed = np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(np.uint32)
    with np.errstate(invalid="ignore"):  # NaN codes that would signal
        return flushed.view(np.float32).astype(np.float64)


def is_nan(bits):
    return (bits & 0x7FFFFFFF) > INF


def assert_same(actual, expected, *inputs):
    for what, got, want in zip(("bits", "flags"), actual, expected, strict=True):
        wrong = np.flatnonzero(got != want)
        if wrong.size:
            i = wrong[0]
            given = ", ".join(f"{int(v[i]):#010x} ({value(v[i])!s})" for v in inputs)
            pytest.fail(
                f"{what} {i} ({wrong.size} wrong of {len(got)}): {given} give "
                f"{int(got[i]):#010x}, expected {int(want[i]):#010x}"
            )


def rounded_once(wide):
    """Bits and flags of float64 ``wide`` rounded to float32 by the processor, then the limits.

    Below 2**-126 the processor rounds to a multiple of 2**-149 instead of as if the exponent had
    no limit. What is asked is only whether that reaches 2**-126, so such numbers are rounded 2**64
    times larger.
    """
    with np.errstate(all="ignore"):
        narrow = wide.astype(np.float32)
        large = (wide * 2.0**64).astype(np.float32).astype(np.float64) * 2.0**-64
    exact = np.isinf(wide) | (wide == 0) | np.isnan(wide)
    under = ~exact & (np.abs(large) < 2.0**-126)
    over = ~exact & np.isinf(narrow)
    flags = np.where(narrow.astype(np.float64) != wide, INEXACT, 0)
    flags = np.where(over, OVER, np.where(under, UNDER, np.where(exact, 0, flags)))
    bits = narrow.view(np.uint32)
    bits = np.where(under, bits & 0x80000000, bits)
    small = ~exact & ~under & (np.abs(wide) < 2.0**-126)  # rounded up to the smallest normal
    bits = np.where(small, (bits & 0x80000000) | 0x00800000, bits)
    flags = np.where(small, INEXACT, flags)
    return np.where(np.isnan(wide), NAN, bits).astype(np.uint32), flags.astype(np.uint8)


def quotient_operands(rng, count):
    """Specials with each other; random pairs, many of them with a quotient near the limits."""
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    x = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    y = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    target = rng.choice([-128, -127, -126, -125, 0, 127, 128], count)
    exponent = np.clip(((x >> 23) & 0xFF).astype(np.int64) - target, 0, 255).astype(np.uint32)
    y = np.where(rng.random(count) < 0.6, (y & 0x807FFFFF) | exponent << 23, y)
    fraction = rng.choice([0, 1, 2, 0x7FFFFE, 0x7FFFFF], count).astype(np.uint32)
    x = np.where(rng.random(count) < 0.2, (x & 0xFF800000) | fraction, x)
    # Quotients of exactly 24 bits and few more: q * y rounded or exact.
    y = np.where(rng.random(count) < 0.2, y & 0xFFFFF000, y)
    return np.concatenate([a, x]).astype(np.uint32), np.concatenate([b, y]).astype(np.uint32)


def test_division_against_float64(rng):
    """One more rounding of the float64 quotient is right.

    A quotient of 24-bit significands that is no number of 25 bits (a float32 number or a tie) is
    at least 2**-49 of itself away from any: |a/b - t| = |a - t b| / b, where a - t b is a non-zero
    multiple of the last place of t b, 49 bits. Rounding to the 53 bits of float64 moves it by
    2**-53 at most, so never onto nor over a tie or a float32 number. A quotient is never a tie: t b
    would have more bits than a.
    """
    a, b = quotient_operands(rng, 300_000)
    x, y = value(a), value(b)
    with np.errstate(all="ignore"):
        bits, flags = rounded_once(x / y)
    nan = is_nan(a) | is_nan(b)
    flags = np.where((bits == NAN) & ~nan, INVALID, flags)
    assert (flags == INVALID).any() and (flags == OVER).any() and (flags == UNDER).any()
    assert_same(gs.divide(a, b), (bits, flags), a, b)


def test_division_against_integers(rng):
    """The remainder of the result is less than half a place, without float64."""
    a, b = (rng.integers(1 << 23, 1 << 24, 50_000) for _ in range(2))
    bits, flags = gs.divide(*(((v - (1 << 23)) | 127 << 23).astype(np.uint32) for v in (a, b)))
    significand = (bits.astype(np.int64) & 0x7FFFFF) | 1 << 23
    # In units of the quotient's last place: 2**-23, or 2**-24 below one.
    below = bits < ONE
    rest = (a << (23 + below)) - significand * b
    assert (2 * np.abs(rest) < b).all()
    assert (((flags & INEXACT) != 0) == (rest != 0)).all()


def test_division_limits():
    """Exponents beyond the limits, and special values."""
    cases = [
        # (2 - 2**-23) * 2**-127 has 24 bits: exact, and below the smallest normal number.
        (0x00FFFFFF, 0x40000000, 0x00000000, UNDER),
        (0x00FFFFFF, 0x3FFFFFFF, 0x00800000, 0),
        (0x00FFFFFE, 0x3FFFFFFF, 0x00000000, UNDER),
        (0x00FFFFFE, 0x40000000, 0x00000000, UNDER),
        (0x00800000, 0x3F800001, 0x00000000, UNDER),
        (0x7F7FFFFF, 0x3F7FFFFF, INF, OVER),
        (0x7F7FFFFF, 0x3F800000, 0x7F7FFFFF, 0),
        (0x7F7FFFFE, 0x3F7FFFFF, 0x7F7FFFFF, INEXACT),
        (0xFF7FFFFF, 0x00800000, MINUS_INF, OVER),
        (0x00800000, 0xFF7FFFFF, 0x80000000, UNDER),
        (0x3F800000, 0x00000000, INF, 0),
        (0x3F800000, 0x80000001, MINUS_INF, 0),
        (0x00000000, 0x80000000, NAN, INVALID),
        (0x7F800000, 0xFF800000, NAN, INVALID),
        (0x00000000, 0x7FC00000, NAN, 0),
        (0xFF800000, 0x00000000, MINUS_INF, 0),
        (0xBF800000, 0x7F800000, 0x80000000, 0),
    ]
    a, b, bits, flags = (np.array(column) for column in zip(*cases, strict=True))
    assert_same(gs.divide(a, b), (bits, flags), a.astype(np.uint32), b.astype(np.uint32))


def test_root_against_float64(rng):
    """One more rounding of the float64 root is right.

    A root is never a tie: the square of a number of exactly 25 bits has more than 24. For a tie t
    of 25 bits and a radicand x, |sqrt(x) - t| = |x - t**2| / (sqrt(x) + t), where x - t**2 is a
    non-zero multiple of the last place of t**2, 2**-48 for t from 1 to 2; so the distance exceeds
    2**-50, and the 2**-53 by which float64 rounds do not reach it. Exact roots are exact.
    """
    octave = rng.choice([126, 127, 1, 2, 253, 254], 100_000).astype(np.uint32) << 23
    a = [SPECIAL, rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)]
    a.append(octave | rng.integers(0, 1 << 23, 100_000, dtype=np.uint32))
    squares = np.arange(1, 4096, dtype=np.float32) ** 2
    a += [(squares.view(np.uint32) + np.uint32(step)) for step in (-1 & 0xFFFFFFFF, 0, 1)]
    a = np.concatenate(a).astype(np.uint32)
    with np.errstate(all="ignore"):
        bits, flags = rounded_once(np.sqrt(value(a)))
    flags = np.where((bits == NAN) & ~is_nan(a), INVALID, flags)
    assert_same(gs.square_root(a), (bits, flags), a)


def test_root_against_integers(rng):
    """(s - 1/2)**2 < radicand < (s + 1/2)**2 in units of the last place, without float64."""
    m = np.concatenate([rng.integers(1 << 23, 1 << 25, 50_000), [1 << 23, (1 << 25) - 2]])
    m = np.where(m >= 1 << 24, m & ~1, m)
    odd = m >= 1 << 24  # m / 2**23 from 1 to 4
    exponent = 127 + odd.astype(np.int64)
    a = (exponent << 23 | ((m >> odd) - (1 << 23))).astype(np.uint32)
    bits, flags = gs.square_root(a)
    significand = bits.astype(np.int64) - (ONE - (1 << 23))
    radicand = m << 23
    assert (4 * radicand > (2 * significand - 1) ** 2).all()
    assert (4 * radicand < (2 * significand + 1) ** 2).all()
    assert ((flags == INEXACT) == (significand**2 != radicand)).all()


def test_reciprocal_root_error(rng):
    """Below 1.5 units in the last place (ulp) of the exact result.

    Scale x to 1 <= x < 4 and let s be the rounded root: |s - sqrt(x)| <= 2**-24 (half an ulp from
    1 to 2). For s > 1, 1/s and 1/sqrt(x) are between 1/2 and 1, with an ulp of 2**-24, and
    |1/s - 1/sqrt(x)| = |s - sqrt(x)| / (s sqrt(x)) < 2**-24: less than one ulp; the division
    rounds by half an ulp more. For s = 1 the division is exact, and only the former remains.
    """
    a = np.concatenate([np.arange(ONE, ONE + (1 << 15)), rng.integers(ONE, ONE + (2 << 23), 10**6)])
    a = a.astype(np.uint32)
    bits, _ = gs.reciprocal_square_root(a)
    exact = 1 / np.sqrt(value(a))  # wrong by less than 2**-52: 2**-27 ulp
    ulp = 2.0 ** (np.frexp(exact)[1] - 24)
    error = np.abs(value(bits) - exact) / ulp
    assert error.max() < 1.5
    assert error.max() > 1.0, "two roundings must be visible, or this measures something else"


def test_reciprocal_root_special():
    a = np.array([0, 0x80000000, INF, 0xBF800000, 0x7F7FFFFF, 0x00800000], dtype=np.uint32)
    bits = np.array([INF, MINUS_INF, 0, NAN, 0x1F800001, 0x5F000000], dtype=np.uint32)
    flags = np.array([0, 0, 0, INVALID, INEXACT, 0])
    bits[4] = gs.divide(ONE, gs.square_root(a[4:5])[0])[0][0]
    assert bits[4] in (0x1F800000, 0x1F800001)
    assert_same(gs.reciprocal_square_root(a), (bits, flags), a)


def test_exponential_constants():
    """The table against 60-digit decimals; the integer series of golden knows nothing of them."""
    top, integers, fractions = gs.logarithm_table()
    with decimal.localcontext(decimal.Context(prec=60)):
        unit = decimal.Decimal(2) ** gs.EXPONENTIAL_FRACTION_BITS
        ln2 = decimal.Decimal(2).ln()
        assert top == int(256 * ln2 * unit)
        assert integers == [int(2**j * ln2 * unit) + 1 for j in range(7, -1, -1)]
        logarithms = [(1 + decimal.Decimal(2) ** -k).ln() for k in range(1, 17)]
        assert fractions == [int(value * unit) + 1 for value in logarithms]


def test_digits_are_enough():
    """A constant is at most twice the next one: what is left is always below the last constant."""
    top, integers, fractions = gs.logarithm_table()
    chain = [top, *integers, *fractions]
    assert all(big <= 2 * small for big, small in itertools.pairwise(chain))
    assert fractions[-1] <= 1 << 18, "the last rest must fit 18 bits"


def exponential_errors(bits, results):
    """Error of normal results in ulp of e**x; np.exp is off by about 2**-52, so 2**-28 ulp."""
    exact = np.exp(value(bits))
    return (value(results) - exact) / 2.0 ** (np.frexp(exact)[1] - 24)


@pytest.mark.parametrize(("start", "count"), [(0x3F000000, 1 << 23), (0xBBA00000, 1 << 20)])
def test_exponential_one_after_the_other(start, count):
    """All from 1/2 to 1, and some from -0.005 down: monotonic, and within the derived bound.

    The unrounded result is below e**x by at most the fraction exponential_loss(), which is at most
    loss * 2**24 ulp (a significand below 2 has an ulp of 2**-23); rounding adds half an ulp.
    """
    bits = np.arange(start, start + count, dtype=np.uint32)
    results, flags = gs.exponential(bits)
    assert (flags == INEXACT).all()
    steps = np.diff(results.astype(np.int64))
    assert (steps <= 0 if start >> 31 else steps >= 0).all()
    errors = exponential_errors(bits, results)
    loss = gs.exponential_loss() * 2.0**24
    assert loss < 0.04, "the documented bound"
    assert -0.5 - loss - 2.0**-28 <= errors.min() and errors.max() <= 0.5 + 2.0**-28


def test_exponential_everywhere(rng):
    """Random operands of all magnitudes, sorted: monotonic, within the bound, -inf to inf."""
    x = rng.uniform(-110, 110, 300_000) * 2.0 ** -rng.integers(0, 45, 300_000)
    x = np.sort(np.concatenate([x, value(SPECIAL[~is_nan(SPECIAL)])]).astype(np.float32))
    results, flags = gs.exponential(x.view(np.uint32))
    assert (np.diff(results.astype(np.int64)) >= 0).all()
    normal = (flags & (OVER | UNDER) <= INEXACT) & np.isfinite(x)
    errors = exponential_errors(x.view(np.uint32)[normal], results[normal])
    assert np.abs(errors).max() < 0.54
    assert (flags[x == 0] == 0).all() and (results[x == 0] == ONE).all()


#: Of all positive and of all negative operands, that with the largest error.
WORST = (0x41B12897, 0xBBA7BB74)


def test_exponential_worst_against_decimals():
    """Where a scan of all operands found the largest errors: the bound without float64."""
    for bits in WORST:
        result = int(gs.exponential(np.array([bits], dtype=np.uint32))[0][0])
        with decimal.localcontext(decimal.Context(prec=60)):
            exact = Fraction(decimal.Decimal(float(value(bits))).exp())
        got = Fraction(float(value(result)))
        ulp = Fraction(2) ** (int(np.frexp(float(exact))[1]) - 24)
        assert Fraction(1, 2) < abs(got - exact) / ulp < Fraction(54, 100), f"{bits:#010x}"


def test_exponential_limits():
    """Around ln(2**128 - 2**103) = 88.722839052..., ln(2**-126 - 2**-151) = -87.336544776...

    The first is the limit above which e**x rounds to 2**128, the second that below which it does
    not round to 2**-126; 0x42b17217 is 88.72283172..., 0x42b17218 is 88.72283935...;
    0xc2aeac4f is -87.33654022..., 0xc2aeac50 is -87.33654785...
    """
    cases = [
        (0x42B17217, 0x7F7FFF84, INEXACT), (0x42B17218, INF, OVER), (0x42FFFFFF, INF, OVER),
        (0x43000000, INF, OVER), (0x7F7FFFFF, INF, OVER), (INF, INF, 0),
        (0xC2AEAC4F, 0x00800026, INEXACT), (0xC2AEAC50, 0, UNDER), (0xC2FFFFFF, 0, UNDER),
        (0xC3000000, 0, UNDER), (0xFF7FFFFF, 0, UNDER), (MINUS_INF, 0, 0),
        (0, ONE, 0), (0x80000000, ONE, 0), (0x807FFFFF, ONE, 0), (0x007FFFFF, ONE, 0),
        (0x00800000, ONE, INEXACT), (0x80800000, ONE, INEXACT), (0x337FFFFF, ONE, INEXACT),
        (0x33800000, ONE + 1, INEXACT), (0xB2800000, ONE, INEXACT), (0xB3000001, ONE - 1, INEXACT),
        (0xB3800000, ONE - 1, INEXACT), (ONE, 0x402DF854, INEXACT), (0x7F800001, NAN, 0),
        (0xFFC00000, NAN, 0),
    ]  # fmt: skip
    a, bits, flags = (np.array(column) for column in zip(*cases, strict=True))
    assert_same(gs.exponential(a), (bits, flags), a.astype(np.uint32))


def test_shapes():
    a = np.full((2, 3), ONE, dtype=np.uint32)
    for bits, flags in (gs.divide(a, np.uint32(ONE)), gs.square_root(a), gs.exponential(a * 0)):
        assert bits.shape == flags.shape == (2, 3)
        assert bits.dtype == np.uint32 and flags.dtype == np.uint8
        assert (bits == ONE).all() and (flags == 0).all()
    assert gs.exponential(np.uint32(0))[0] == ONE


def test_the_checks_can_fail(monkeypatch):
    """A table that is wrong in one last place is found by the constants' test."""
    top, integers, fractions = gs.logarithm_table()
    wrong = (top, integers, [*fractions[:-1], fractions[-1] - 1])
    monkeypatch.setattr(gs, "logarithm_table", lambda: wrong)
    with pytest.raises(AssertionError):
        test_exponential_constants()
    bits = np.array([ONE], dtype=np.uint32)
    with pytest.raises(pytest.fail.Exception, match=r"bits 0 \(1 wrong of 1\): 0x3f800000"):
        assert_same((bits + np.uint32(1), bits), (bits, bits), bits)
