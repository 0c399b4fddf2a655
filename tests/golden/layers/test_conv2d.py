"""Layers on bit patterns: order of sums, padding, special values, shapes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import Flags, column_dot, decode, encode
from golden.arithmetic.formats import BF16, FLOAT32, FP16, INT8
from golden.layers.conv2d import conv2d, linear, output_size

FORMATS = [BF16, FP16, INT8]


def random_codes(rng, fmt, shape):
    """Codes of numbers of mixed magnitude, with some zeros."""
    if not fmt.is_float:
        return rng.integers(0, 256, shape).astype(np.uint8)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)
    return encode(fmt, np.where(rng.random(shape) < 0.1, 0.0, values))


def random_bias(rng, fmt, outputs):
    if not fmt.is_float:
        return rng.integers(-(2**20), 2**20, outputs).astype(np.int32).view(np.uint32)
    return encode(FLOAT32, rng.standard_normal(outputs))


def conv2d_by_hand(fmt, x, weights, bias, stride, padding, rows):
    """The same sums, one output and one product at a time."""
    batch, height, width, channels = x.shape
    outputs, _, kernel_h, kernel_w = weights.shape
    out_h = (height + 2 * padding[0] - kernel_h) // stride[0] + 1
    out_w = (width + 2 * padding[1] - kernel_w) // stride[1] + 1
    sums = np.zeros((batch, out_h, out_w, outputs), np.uint32)
    flags = np.zeros(sums.shape, np.uint8)
    for place in np.ndindex(sums.shape):
        n, ho, wo, o = place
        psum, seen = np.uint32(0) if bias is None else bias[o], 0
        for first in range(0, channels, rows):
            for kh in range(kernel_h):
                for kw in range(kernel_w):
                    h = ho * stride[0] + kh - padding[0]
                    w = wo * stride[1] + kw - padding[1]
                    inside = 0 <= h < height and 0 <= w < width
                    lanes = np.zeros((1, rows), x.dtype)
                    column = np.zeros((rows, 1), x.dtype)
                    for row, channel in enumerate(range(first, min(first + rows, channels))):
                        lanes[0, row] = x[n, h, w, channel] if inside else 0
                        column[row, 0] = weights[o, channel, kh, kw]
                    result, new = column_dot(fmt, lanes, column, np.array([[psum]], np.uint32))
                    psum, seen = result[0, 0], seen | new[0, 0]
        sums[place], flags[place] = psum, seen
    return sums, flags


def assert_same_bits(fmt, actual, expected, what):
    wrong = np.argwhere(actual != expected)
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        got, want = int(actual[place]), int(expected[place])
        real = FLOAT32 if fmt.is_float else INT8
        raise AssertionError(
            f"{what}: {len(wrong)} wrong; first at {place}: {got:#010x} ({decode(real, got)}), "
            f"expected {want:#010x} ({decode(real, want)})"
        )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize(
    ("size", "channels", "outputs", "kernel", "stride", "padding", "rows"),
    [
        ((1, 5, 4), 3, 2, (3, 3), (1, 1), (1, 1), 4),
        ((1, 1, 1), 5, 3, (1, 1), (1, 1), (0, 0), 4),
        ((2, 4, 3), 7, 2, (1, 1), (1, 1), (0, 0), 3),
        ((1, 6, 7), 2, 3, (5, 5), (2, 2), (2, 2), 1),
        ((2, 5, 5), 4, 1, (3, 3), (2, 1), (0, 1), 4),
        ((1, 3, 6), 5, 2, (1, 3), (1, 2), (0, 2), 2),
    ],
)
def test_sums_in_order_of_k_tiles(rng, fmt, size, channels, outputs, kernel, stride, padding, rows):
    x = random_codes(rng, fmt, (*size, channels))
    weights = random_codes(rng, fmt, (outputs, channels, *kernel))
    for bias in (None, random_bias(rng, fmt, outputs)):
        sums, flags = conv2d(fmt, x, weights, bias, stride=stride, padding=padding, rows=rows)
        expected, expected_flags = conv2d_by_hand(fmt, x, weights, bias, stride, padding, rows)
        assert sums.dtype == np.uint32 and sums.shape == expected.shape
        assert_same_bits(fmt, sums, expected, f"sums with bias {bias}")
        assert (flags == expected_flags).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("seed_step", range(6))
def test_small_integers_are_exact(seed, fmt, seed_step):
    """Integers up to 4 never round: any shape equals torch's integer convolution."""
    rng = np.random.default_rng([seed, seed_step])
    kernel, stride = int(rng.choice([1, 3, 5])), int(rng.integers(1, 3))
    padding, rows = int(rng.integers(0, 3)), int(rng.integers(1, 9))
    batch, height, width = (int(n) for n in rng.integers([1, 5, 5], [4, 10, 10]))
    channels, outputs = (int(n) for n in rng.integers(1, 12, 2))
    x = rng.integers(-4, 5, (batch, height, width, channels))
    weights = rng.integers(-4, 5, (outputs, channels, kernel, kernel))
    bias = rng.integers(-100, 100, outputs)
    bias_bits = encode(FLOAT32, bias) if fmt.is_float else bias.astype(np.int32).view(np.uint32)
    sums, flags = conv2d(
        fmt,
        encode(fmt, x),
        encode(fmt, weights),
        bias_bits,
        stride=stride,
        padding=padding,
        rows=rows,
    )
    expected = functional.conv2d(
        torch.from_numpy(x.transpose(0, 3, 1, 2)).double(),
        torch.from_numpy(weights).double(),
        torch.from_numpy(bias).double(),
        stride=stride,
        padding=padding,
    ).numpy()
    actual = decode(FLOAT32, sums) if fmt.is_float else sums.view(np.int32)
    assert (actual == expected.transpose(0, 2, 3, 1)).all()
    assert not flags.any()


def test_channel_blocks_are_the_outermost_loop():
    """big + small - big + small: 1 in the right order, 2 with the kernel position outermost."""
    x = encode(BF16, np.ones((1, 1, 2, 2)))
    weights = np.zeros((1, 2, 1, 2))
    weights[0, 0, 0] = 2.0**40, 1.0  # block 0: kw 0, kw 1
    weights[0, 1, 0] = -(2.0**40), 1.0  # block 1
    sums, flags = conv2d(BF16, x, encode(BF16, weights), rows=1)
    assert decode(FLOAT32, sums).item() == 1.0
    assert flags.item() & Flags.INEXACT


def test_kernel_rows_before_kernel_columns():
    x = encode(BF16, np.ones((1, 2, 2, 1)))
    weights = np.array([[[[2.0**40, 1.0], [-(2.0**40), 1.0]]]])
    sums, _ = conv2d(BF16, x, encode(BF16, weights), rows=4)
    assert decode(FLOAT32, sums).item() == 1.0


def test_bias_is_the_first_partial_sum():
    """big + 1 - big with the bias first loses the 1; a bias added last would not lose it."""
    x = encode(BF16, np.ones((1, 1, 1, 2)))
    weights = encode(BF16, np.array([1.0, -(2.0**40)]).reshape(1, 2, 1, 1))
    sums, _ = conv2d(BF16, x, weights, encode(FLOAT32, [2.0**40]), rows=1)
    assert decode(FLOAT32, sums).item() == 0.0


def test_padding_times_infinite_weight_is_nan():
    x = encode(BF16, np.ones((1, 3, 3, 2)))
    weights = np.ones((1, 2, 3, 3))
    weights[0, 0, 0, 0] = np.inf  # reaches outside in the first row and the first column
    sums, flags = conv2d(BF16, x, encode(BF16, weights), padding=1, rows=4)
    values = decode(FLOAT32, sums)[0, :, :, 0]
    border = np.zeros((3, 3), bool)
    border[0] = border[:, 0] = True
    assert np.isnan(values[border]).all()
    assert (values[~border] == np.inf).all()
    assert ((flags[0, :, :, 0] & Flags.INVALID != 0) == border).all()


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_special_values(fmt):
    """NaN and infinities spread, subnormals count as zero, too large sums become infinite."""
    tiny = fmt.min_normal
    x = encode(fmt, np.array([[np.nan, 1.0], [np.inf, 1.0], [1.0, 1.0]]).reshape(3, 1, 1, 2))
    ones = encode(fmt, np.ones((1, 2, 1, 1)))
    values = decode(FLOAT32, conv2d(fmt, x, ones, rows=2)[0]).ravel()
    assert np.isnan(values[0]) and values[1] == np.inf and values[2] == 2.0

    difference = encode(fmt, np.array([1.0, -1.0]).reshape(1, 2, 1, 1))
    both = encode(fmt, np.full((1, 1, 1, 2), np.inf))
    sums, flags = conv2d(fmt, both, difference, rows=1)
    assert sums.item() == FLOAT32.nan and flags.item() & Flags.INVALID

    subnormal = np.full((1, 1, 1, 2), 1, encode(fmt, 1.0).dtype)
    assert decode(fmt, subnormal).ravel().tolist() == [0.0, 0.0]
    sums, flags = conv2d(fmt, subnormal, ones, encode(FLOAT32, [tiny]), rows=2)
    assert decode(FLOAT32, sums).item() == tiny and not flags.item()


def test_overflow_of_the_sum():
    huge = encode(BF16, np.full((1, 1, 1, 4), BF16.max_finite))
    sums, flags = conv2d(BF16, huge, encode(BF16, np.full((1, 4, 1, 1), -2.0)), rows=4)
    assert decode(FLOAT32, sums).item() == -np.inf
    assert flags.item() & Flags.OVERFLOW


def test_linear_follows_flatten(rng):
    x = rng.integers(-4, 5, (3, 2, 3, 5))
    weights = rng.integers(-4, 5, (7, 30))
    sums, _ = linear(BF16, encode(BF16, x), encode(BF16, weights), rows=4)
    assert sums.shape == (3, 1, 1, 7)
    flat = x.transpose(0, 3, 1, 2).reshape(3, 30)
    assert (decode(FLOAT32, sums)[:, 0, 0] == flat @ weights.T).all()


def test_linear_rejects_wrong_feature_count():
    with pytest.raises(ValueError, match=r"over a 5 x 2 x 3 map must have shape \(O, 30\)"):
        linear(BF16, np.zeros((1, 2, 3, 5), np.uint16), np.zeros((7, 29), np.uint16), rows=4)


@pytest.mark.parametrize(
    ("x", "weights", "bias", "rows", "message"),
    [
        ((1, 3, 3), (2, 3, 1, 1), None, 4, r"x must have shape \(N, H, W, C\), not \(1, 3, 3\)"),
        ((1, 3, 3, 2), (2, 2), None, 4, r"weights must have shape \(O, I, KH, KW\), not \(2, 2\)"),
        ((1, 3, 3, 2), (2, 3, 1, 1), None, 4, "x has 2 channels but weights are for 3"),
        ((1, 3, 3, 2), (4, 2, 1, 1), (3,), 4, r"bias must have shape \(4,\), not \(3,\)"),
        ((1, 3, 3, 2), (4, 2, 1, 1), None, 0, "rows must be at least 1, not 0"),
        ((1, 3, 3, 2), (4, 2, 5, 1), None, 4, "A 5 x 1 kernel does not fit a 3 x 3 map"),
    ],
)
def test_shape_messages(x, weights, bias, rows, message):
    bias = None if bias is None else np.zeros(bias, np.uint32)
    with pytest.raises(ValueError, match=message):
        conv2d(BF16, np.zeros(x, np.uint16), np.zeros(weights, np.uint16), bias, rows=rows)


def test_output_size_leaves_a_rest_over():
    assert output_size(8, 3, 2, 0) == 3
    assert output_size(8, 3, 2, 2) == 4
    assert output_size(2, 3, 1, 0) == 0
