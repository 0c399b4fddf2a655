"""The array's kernel against golden's columns, bit for bit.

Covers: emulator/kernels/records.py.
"""

import numpy as np
import pytest

from emulator.kernels.column import column_dots
from emulator.kernels.records import LAYOUT
from golden.arithmetic.dot_product import DROP_DISTANCE, FLOAT32, column_dot
from golden.arithmetic.formats import BF16, FORMATS

FLOATS = [fmt for fmt in FORMATS.values() if fmt.is_float]
INFINITY, NAN, SIGN = FLOAT32.infinity, FLOAT32.nan, FLOAT32.sign_bit


def layout(fmt):
    record = np.zeros(1, LAYOUT)
    record["mantissa_bits"], record["exponent_bits"] = fmt.mantissa_bits, fmt.exponent_bits
    return record


def check(fmt, x, w, psum, channels=None):
    """``x`` (tiles, M, rows), ``w`` (tiles, rows, columns), ``psum`` (M, columns)."""
    x, w, sums = np.uint16(x), np.uint16(w), np.array(psum, np.uint32)
    channels = sums.shape[1] if channels is None else channels
    expected, flags = sums, 0
    for vectors, weights in zip(x, w, strict=True):
        expected, new = column_dot(fmt, vectors, weights, expected)
        flags |= int(np.bitwise_or.reduce(new[:, :channels], axis=None))
    actual = sums.copy()
    raised = column_dots(layout(fmt), x, w, actual, channels)
    for m, c in np.argwhere(actual != expected)[:1]:
        raise AssertionError(
            f"{fmt.name} vector {m} column {c}: {actual[m, c]:#010x}, expected "
            f"{expected[m, c]:#010x}; sum {sums[m, c]:#010x}, x "
            f"{[[hex(code) for code in tile[m]] for tile in x]}, w "
            f"{[[hex(code) for code in tile[:, c]] for tile in w]}"
        )
    assert raised == flags, f"{fmt.name} flags {raised:#x}, expected {flags:#x}; {x} {w} {sums}"
    return actual, raised


def codes(rng, fmt, shape, spread, special):
    """Exponents within ``spread`` of the middle; a part ``special`` of zeros, subnormals,
    infinities and NaN."""
    low, high = max(1, fmt.bias - spread), min(fmt.exponent_max, fmt.bias + spread + 1)
    numbers = rng.integers(low, high, shape) << fmt.mantissa_bits
    numbers |= rng.integers(1 << fmt.mantissa_bits, size=shape)
    others = [0, 1, fmt.infinity, fmt.nan, fmt.infinity | 1]
    numbers = np.where(rng.random(shape) < special, rng.choice(others, shape), numbers)
    numbers = np.where(rng.random(shape) < 0.1, 0, numbers)
    return numbers | rng.integers(2, size=shape) << (fmt.width - 1)


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda fmt: fmt.name)
def test_random_tiles(fmt, rng):
    for spread, special in ((1, 0), (4, 0), (9, 0.01), (200, 0), (200, 0.02)):
        for tiles, count, rows, columns in ((1, 1, 1, 1), (3, 17, 5, 4), (2, 40, 12, 15)):
            x = codes(rng, fmt, (tiles, count, rows), spread, special)
            w = codes(rng, fmt, (tiles, rows, columns), spread, special)
            psum = codes(rng, FLOAT32, (count, columns), spread, special)
            check(fmt, x, w, psum, channels=int(rng.integers(columns + 1)))


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda fmt: fmt.name)
def test_flags_of_single_sums(fmt, rng):
    for _ in range(400):
        spread = int(rng.choice([1, 6, 14, 30, 200]))
        x = codes(rng, fmt, (1, 1, 3), spread, 0.02)
        w = codes(rng, fmt, (1, 3, 1), spread, 0.02)
        check(fmt, x, w, codes(rng, FLOAT32, (1, 1), spread, 0.05))


def bf16(value):
    return int(np.float32(value).view(np.uint32)) >> 16


def single(x, w, psum):
    """Bits and flags of one sum of BF16 products."""
    x = np.array([[[bf16(number) for number in x]]])
    w = np.array([[[bf16(number)] for number in w]])
    bits, flags = check(BF16, x, w, [[psum]])
    return int(bits[0, 0]), flags


@pytest.mark.parametrize("distance", [13, 14, 15, 16, 17])
def test_terms_far_below_the_largest(distance):
    """2**0 and a term that is 4**distance smaller: dropped from DROP_DISTANCE on."""
    assert DROP_DISTANCE == 16
    _, flags = single([1.0, -(2.0**-distance) * 1.9921875], [1.0, 2.0**-distance], 0)
    assert flags & 8


@pytest.mark.parametrize(
    ("x", "w", "psum", "bits", "flags"),
    [
        # Ties go to the even number: 2**24 + 1, 2**24 + 3.
        ([4096.0, 1.0], [4096.0, 1.0], 0, 0x4B800000, 8),
        ([4096.0, 3.0], [4096.0, 1.0], 0, 0x4B800002, 8),
        # What is left of numbers that cancel.
        ([3.0, -3.0], [5.0, 5.0], 0, 0, 0),
        ([1.0, -1.0, 2.0**-20], [1.0, 1.0, 1.0], 0, 0x35800000, 0),
        ([-1.0], [1.0], 0x3F800001, 0x34000000, 0),
        # Below the smallest normal number, which is 2**-126, and the one that rounds to it.
        ([2.0**-64], [2.0**-63], 0, 0, 12),
        ([-(2.0**-64)], [2.0**-63], 0, SIGN, 12),
        ([-(2.0**-100)], [2.0**-52], 0x00800000, 0x00800000, 8),
        ([-(2.0**-100)], [2.0**-51], 0x00800000, 0x00800000, 8),
        ([-(2.0**-100)], [2.0**-50], 0x00800000, 0, 12),
        # Too large.
        ([2.0**100], [2.0**28], 0, INFINITY, 10),
        ([-(2.0**100)], [2.0**28], 0, INFINITY | SIGN, 10),
        # Special values.
        ([np.inf], [2.0], 0, INFINITY, 0),
        ([np.inf, 1.0], [-2.0, 1.0], 0, INFINITY | SIGN, 0),
        ([np.inf], [0.0], 0, NAN, 1),
        ([np.inf, np.inf], [1.0, -1.0], 0, NAN, 1),
        ([np.inf], [1.0], INFINITY | SIGN, NAN, 1),
        ([np.inf, np.nan], [0.0, 1.0], 0, NAN, 0),
        ([1.0], [1.0], 0x7F800001, NAN, 0),
        ([1.0], [1.0], INFINITY | SIGN, INFINITY | SIGN, 0),
        # Zeros of all signs, subnormal partial sums.
        ([-0.0], [1.0], SIGN, 0, 0),
        ([0.0], [1.0], 0x007FFFFF, 0, 0),
    ],
)
def test_single_sums(x, w, psum, bits, flags):
    actual, raised = single(x, w, psum)
    assert (hex(actual), raised) == (hex(bits), flags)
