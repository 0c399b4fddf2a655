"""golden.commands.post against NumPy float32, ml_dtypes and exact fractions.

Covers: golden/arithmetic/float32.py.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from golden.arithmetic.dot_product import BF16, FLOAT32, FP8_E4M3, FP8_E5M2, FP16, INT8, Flags
from golden.arithmetic.float32 import add_f32, max_f32, mul_f32, relu
from golden.commands import post as gp

SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFFC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
        0x7F7FFFFF, 0xFF7FFFFF, 0x3F7FFFFF, 0x33800000, 0x34000000, 0x4B800000, 0x4B7FFFFF,
        0x3F800001, 0x7E800000, 0x01000000, 0x1F800000, 0x20000000, 0x5F800000,
    ],
    dtype=np.uint32,
)  # fmt: skip


def operands(rng, count):
    """Pairs of float32 bits: all specials with each other, then random ones, many of them near."""
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    x = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    y = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    near = rng.integers(-26, 27, count)
    exponent = np.clip(((x >> 23) & 0xFF).astype(np.int64) + near, 0, 255).astype(np.uint32)
    close = (y & np.uint32(0x807FFFFF)) | exponent << np.uint32(23)
    y = np.where(rng.random(count) < 0.7, close, y)
    y = np.where(rng.random(count) < 0.1, x ^ np.uint32(0x80000000), y)
    return np.concatenate([a, x]), np.concatenate([b, y])


def flush(bits):
    return np.where(bits & 0x7F800000, bits, bits & np.uint32(0x80000000)).astype(np.uint32)


def canonical(bits):
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, np.uint32(0x7FC00000), bits).astype(np.uint32)


def assert_same(actual, expected, *inputs):
    wrong = np.flatnonzero(actual != expected)
    if wrong.size:
        i = wrong[0]
        given = ", ".join(f"{int(v.ravel()[i]):#x}" for v in inputs)
        pytest.fail(
            f"element {i} of {wrong.size} wrong: inputs {given} give {int(actual[i]):#x}, "
            f"expected {int(expected[i]):#x}"
        )


@pytest.mark.parametrize(("function", "ufunc"), [(add_f32, np.add), (mul_f32, np.multiply)])
def test_arithmetic_against_numpy(function, ufunc, rng):
    """Equal to IEEE 754 float32 wherever neither operands nor result are subnormal."""
    a, b = operands(rng, 200_000)
    actual, flags = function(a, b)
    with np.errstate(all="ignore"):
        exact_range = ufunc(flush(a).view(np.float32), flush(b).view(np.float32))
    ieee = canonical(exact_range.view(np.uint32))
    small = (ieee & 0x7FFFFFFF) <= 0x00800000
    assert_same(actual[~small], ieee[~small], a[~small], b[~small])
    # A result that IEEE 754 rounds to a subnormal is zero here.
    subnormal = ((ieee & 0x7FFFFFFF) < 0x00800000) & ((ieee & 0x7FFFFFFF) != 0)
    assert_same(actual[subnormal], ieee[subnormal] & np.uint32(1 << 31), a[subnormal], b[subnormal])
    assert (flags[subnormal] == int(Flags.UNDERFLOW | Flags.INEXACT)).all()
    nan_in = ((a & 0x7FFFFFFF) > 0x7F800000) | ((b & 0x7FFFFFFF) > 0x7F800000)
    expected_invalid = (ieee == 0x7FC00000) & ~nan_in
    assert ((flags & int(Flags.INVALID) != 0) == expected_invalid).all()


@pytest.mark.parametrize("function", [add_f32, mul_f32])
def test_arithmetic_against_fractions(function, rng):
    """Bits and flags of finite operands follow from the exact rational result."""
    a, b = operands(rng, 6000)
    finite = ((a & 0x7F800000) != 0x7F800000) & ((b & 0x7F800000) != 0x7F800000)
    a, b = a[finite], b[finite]
    actual, flags = function(a, b)
    for x, y, bits, flag in zip(a, b, actual, flags, strict=True):
        p, q = (Fraction(float(flush(v).view(np.float32))) for v in (x, y))
        exact = p + q if function is add_f32 else p * q
        expected = round_fraction(exact)
        if exact == 0:
            signs = (int(x) >> 31, int(y) >> 31)
            sign = signs[0] & signs[1] if function is add_f32 else signs[0] ^ signs[1]
            expected = (sign << 31, 0)
        assert (int(bits), int(flag)) == expected, f"{int(x):#010x}, {int(y):#010x}"


def round_fraction(value, *, mantissa_bits=23, exponent_bits=8):
    """Code and flags of a non-zero rational: nearest even with unlimited exponent, then limits."""
    if value == 0:
        return 0, 0
    bias = (1 << (exponent_bits - 1)) - 1
    sign, magnitude = int(value < 0), abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    scaled = magnitude / Fraction(2) ** (exponent - mantissa_bits)
    significand = round(scaled)
    inexact = significand != scaled
    if significand >> (mantissa_bits + 1):
        significand >>= 1
        exponent += 1
    top = sign << (mantissa_bits + exponent_bits)
    if exponent > bias:
        return top | ((1 << exponent_bits) - 1) << mantissa_bits, int(Flags.OVERFLOW) | 8
    if exponent < 1 - bias:
        return top, int(Flags.UNDERFLOW) | 8
    code = ((exponent + bias) << mantissa_bits) + significand - (1 << mantissa_bits)
    return top | code, 8 * int(inexact)


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [(BF16, ml_dtypes.bfloat16), (FP16, np.float16), (FP8_E5M2, ml_dtypes.float8_e5m2)],
)
def test_conversion_against_dtypes(fmt, dtype, rng):
    bits = operands(rng, 100_000)[0]
    bits = np.concatenate([bits, narrow_range(rng, fmt, 100_000)])
    codes, _flags = gp.to_operand(fmt, bits)
    with np.errstate(all="ignore"):
        other = flush(bits).view(np.float32).astype(dtype).view(codes.dtype).astype(np.uint32)
    magnitude = other & (fmt.sign_bit - 1)
    other = np.where(magnitude > fmt.infinity, fmt.nan, other)
    normal = magnitude > 1 << fmt.mantissa_bits
    assert_same(codes[normal], other[normal], bits[normal])
    below = magnitude < 1 << fmt.mantissa_bits
    assert_same(codes[below], other[below] & fmt.sign_bit, bits[below])


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E4M3, FP8_E5M2], ids=lambda fmt: fmt.name)
def test_conversion_against_fractions(fmt, rng):
    bits = np.concatenate([operands(rng, 1500)[0], narrow_range(rng, fmt, 1500)])
    bits = bits[((bits & 0x7F800000) != 0x7F800000) & (flush(bits) & 0x7FFFFFFF != 0)]
    codes, flags = gp.to_operand(fmt, bits)
    for x, code, flag in zip(bits, codes, flags, strict=True):
        expected = round_fraction(
            Fraction(float(x.view(np.float32))),
            mantissa_bits=fmt.mantissa_bits,
            exponent_bits=fmt.exponent_bits,
        )
        assert (int(code), int(flag)) == expected, f"{int(x):#010x} to {fmt.name}"


def narrow_range(rng, fmt, count):
    """Float32 bits around the range of ``fmt``, many of them ties."""
    exponent = rng.integers(127 - fmt.bias - 2, 127 + fmt.bias + 3, count).clip(0, 255)
    mantissa = rng.integers(0, 1 << 23, count)
    drop = 23 - fmt.mantissa_bits
    coarse = (mantissa >> (drop - 1) << (drop - 1)) | (1 << (drop - 1))
    mantissa = np.where(rng.random(count) < 0.4, coarse, mantissa)
    sign = rng.integers(0, 2, count)
    return (sign << 31 | exponent << 23 | mantissa).astype(np.uint32)


def test_max(rng):
    a, b = operands(rng, 50_000)
    a, b = canonical(a), canonical(b)
    actual = max_f32(a, b)
    x, y = flush(a).view(np.float32), flush(b).view(np.float32)
    expected = np.where(np.isnan(x) | np.isnan(y), np.uint32(FLOAT32.nan), np.where(y > x, b, a))
    assert_same(actual, expected, a, b)
    assert max_f32([0x80000000], [0])[0] == 0x80000000, "the first of equal zeros stays"


def test_relu():
    bits = np.array([0x3F800000, 0xBF800000, 0x80000000, 0x7FC00000, 0xFF800000], dtype=np.uint32)
    assert relu(bits).tolist() == [0x3F800000, 0, 0, 0x7FC00000, 0]


@pytest.mark.parametrize("shift", [0, 1, 2, 7, 15, 16, 31, 40, 46, 47])
def test_requantize_against_fractions(shift, rng):
    bits = rng.integers(0, 1 << 32, 400, dtype=np.uint32)
    small = rng.integers(-2000, 2000, 400).astype(np.int32).view(np.uint32)
    bits = np.concatenate([bits, small, np.array([0, 1, 0x80000000, 0x7FFFFFFF], dtype=np.uint32)])
    for multiplier in (0, 1, 3, 255, 32768, 65535):
        codes, flags = gp.requantize(INT8, bits, multiplier | shift << 16)
        for x, code, flag in zip(bits.view(np.int32), codes, flags, strict=True):
            exact = Fraction(int(x) * multiplier, 1 << shift)
            rounded = round(exact)
            result = max(-128, min(127, rounded))
            expected_flags = 8 * int(rounded != exact)
            if result != rounded:
                expected_flags = int(Flags.OVERFLOW | Flags.INEXACT)
            assert (int(code), int(flag)) == (result & 0xFF, expected_flags), (
                f"{x} * {multiplier} >> {shift}"
            )


def test_post_of_a_window():
    """By hand: order of the steps, average of four, wide and narrow."""
    values = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32).view(np.uint32).reshape(1, 4, 1)
    quarter = int(np.float32(0.25).view(np.uint32))
    one = int(np.float32(1).view(np.uint32))

    def run(**options):
        bits, _ = gp.post(BF16, values, wide=True, **options)
        return bits.view(np.float32).item()

    assert run(relu=False, pool="sum", scale=quarter) == 0.625
    assert run(relu=True, pool="sum", scale=quarter) == 1.125
    assert run(relu=False, pool="max", scale=one) == 3.0
    narrow, flags = gp.post(BF16, values, relu=True, pool="sum", scale=quarter)
    assert (narrow.item(), flags.item()) == (0x3F90, 0)


def test_post_of_integers():
    values = np.array([100, -300, 50, 70], dtype=np.int32).view(np.uint32).reshape(1, 4, 1)
    half = 1 | 1 << 16
    assert gp.post(INT8, values, relu=True, pool="sum", scale=half)[0].item() == 110
    assert gp.post(INT8, values, relu=False, pool="sum", scale=half)[0].item() == 256 - 40
    wide, _ = gp.post(INT8, values, relu=False, pool="max", scale=half, wide=True)
    assert wide.item() == 100
    big = np.full((1, 2, 1), 0x7FFFFFFF, dtype=np.uint32)
    bits, flags = gp.post(INT8, big, relu=False, pool="sum", scale=1, wide=True)
    assert (bits.item(), flags.item()) == (0xFFFFFFFE, int(Flags.OVERFLOW))


def test_messages():
    values = np.zeros((1, 1, 1), dtype=np.uint32)
    with pytest.raises(ValueError, match="pool must be 'max' or 'sum', not 'mean'"):
        gp.post(BF16, values, relu=False, pool="mean", scale=0)
    with pytest.raises(ValueError, match=r"shape \(N, window, channels\), not \(1, 1\)"):
        gp.post(BF16, values[0], relu=False, pool="max", scale=0)
    with pytest.raises(ValueError, match="must be from 0 to 47, not 48"):
        gp.post(INT8, values, relu=False, pool="max", scale=48 << 16)
    for bits in (0x00000001, 0xFFC00000, 0x7F800001):
        with pytest.raises(ValueError, match=rf"\(0, 0, 0\) holds {bits:#010x}"):
            gp.post(BF16, values + np.uint32(bits), relu=False, pool="max", scale=0)
