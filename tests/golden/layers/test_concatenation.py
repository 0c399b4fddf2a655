"""Concatenation against torch, and what becomes of numbers that are not finite."""

import numpy as np
import pytest
import torch

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import BF16
from golden.layers.concatenation import concatenate, divides, is_whole, put, split, take


def random_parts(rng, channels):
    """Operands of all sizes, finite and not -0."""
    parts = [
        rng.standard_normal((2, 3, 2, count)) * 2.0 ** rng.integers(-30, 30) for count in channels
    ]
    return [encode(BF16, part) for part in parts]


@pytest.mark.parametrize("granule", [None, 1, 3, 4])
@pytest.mark.parametrize("channels", [(4, 8, 3), (5,), (3, 5, 2), (1, 1, 1, 1, 1), (7, 4)])
def test_parts_one_behind_the_other(channels, granule, rng):
    maps = random_parts(rng, channels)
    joined, flags = concatenate(BF16, maps, rows=4, granule=granule)
    expected = torch.cat(
        [torch.from_numpy(part.astype(np.int64)).movedim(3, 1) for part in maps], 1
    )
    np.testing.assert_array_equal(joined, expected.movedim(1, 3).numpy())
    parts, more = split(BF16, joined, channels, rows=4, granule=granule)
    for part, back in zip(maps, parts, strict=True):
        np.testing.assert_array_equal(part, back)
    assert flags == more == 0


@pytest.mark.parametrize("granule", [2, 3])
def test_special_numbers(granule):
    """Moved as they are in whole granules; else one that is not finite is in all channels of its
    pixel, and -0 becomes +0."""
    values = np.array([[1.0, -0.0, 2.0], [np.inf, 3.0, 4.0]]).reshape(1, 2, 1, 3)
    maps = [encode(BF16, values), encode(BF16, np.ones((1, 2, 1, 2)))]
    joined, _ = concatenate(BF16, maps, rows=4, granule=granule)
    codes = lambda *numbers: encode(BF16, np.array(numbers))  # noqa: E731
    first, second = joined[0, :, 0]
    if granule == 3:
        np.testing.assert_array_equal(first, codes(1, -0.0, 2, 1, 1))
        np.testing.assert_array_equal(second, codes(np.inf, 3, 4, 1, 1))
    else:
        np.testing.assert_array_equal(first, codes(1, 0.0, 2, 1, 1))
        np.testing.assert_array_equal(second, codes(np.inf, *[np.nan] * 4))
    dy = encode(BF16, np.array([5.0, -0.0, np.nan, 1.0, 2.0]).reshape(1, 1, 1, 5))
    (left, right), _ = split(BF16, dy, (3, 2), rows=4, granule=granule)
    if granule == 3:
        np.testing.assert_array_equal(np.concatenate([left, right], -1), dy)
    else:
        np.testing.assert_array_equal(left[0, 0, 0], codes(*[np.nan] * 3))
        np.testing.assert_array_equal(right[0, 0, 0], codes(*[np.nan] * 2))


@pytest.mark.parametrize("granule", [None, 1, 3, 4])
@pytest.mark.parametrize(("begin", "end"), [(0, 4), (4, 11), (3, 6), (2, 3), (8, 11)])
def test_slices(begin, end, granule, rng):
    (x,) = random_parts(rng, (11,))
    found, flags = take(BF16, x, begin=begin, end=end, rows=4, granule=granule)
    np.testing.assert_array_equal(found, x[..., begin:end])
    whole, more = put(BF16, found, 11, begin=begin, end=end, rows=4)
    expected = np.zeros_like(x)
    expected[..., begin:end] = x[..., begin:end]
    np.testing.assert_array_equal(whole, expected)
    assert flags == more == 0


def test_slices_of_special_numbers():
    x = encode(BF16, np.array([-0.0, 1, 2, np.inf, 4, 5, 6, 7]).reshape(1, 1, 1, 8))
    whole, _ = take(BF16, x, begin=0, end=4, rows=4, granule=4)
    np.testing.assert_array_equal(whole, x[..., :4])
    within, _ = take(BF16, x, begin=0, end=3, rows=4, granule=4)
    np.testing.assert_array_equal(within[0, 0, 0], encode(BF16, np.full(3, np.nan)))
    zeros, _ = put(BF16, x[..., :2], 4, begin=1, end=3, rows=4)
    np.testing.assert_array_equal(zeros[0, 0, 0], encode(BF16, np.array([0.0, 0, 1, 0])))


@pytest.mark.parametrize(
    ("ranges", "granule", "expected"),
    [
        ([(0, 4), (4, 9)], 4, True), ([(4, 9), (0, 4)], 4, True), ([(0, 9)], 4, True),
        ([(0, 5), (5, 9)], 4, False), ([(0, 5), (5, 9)], None, True),
        ([(0, 4), (4, 8)], 4, False), ([(0, 4), (0, 4), (4, 9)], 4, False),
        ([(0, 8), (4, 9)], 4, False), ([(4, 9)], 4, False),
    ],
)  # fmt: skip
def test_what_divides_nine_channels(ranges, granule, expected):
    assert divides(ranges, 9, granule) == expected
    assert all(is_whole(own, 9, granule) for own in ranges) or not expected
