"""Gradients of convolutions and linear layers: order, ragged shapes, groups, special values.

Torch computes in float64 from the very operands; what is left is the error of the columns, which
:func:`golden.arithmetic.dot_product.dot_error_bound` bounds by the sum of the magnitudes of all
terms and the number of K tiles. That sum is the same gradient of the magnitudes: torch computes it
as well (:func:`golden.training.bounds.convolution`).

Covers: golden/layers/conv_general.py, golden/layers/product.py.
"""

import itertools

import numpy as np
import pytest

from golden.arithmetic.dot_product import Flags, column_dot, decode, dot_error_bound, encode
from golden.arithmetic.formats import BF16, FLOAT32, FP8_E5M2, FP16, INT8
from golden.arithmetic.running_error import worst_excess
from golden.layers.conv2d import conv2d
from golden.layers.conv_general import convolution, output_map
from golden.layers.conv_gradients import (
    bias_gradient,
    input_gradient,
    linear_input_gradient,
    weight_gradient,
)
from golden.training import bounds as training_bounds

#: N, H, W, I, O, kernel, stride, padding, dilation, groups, rows, columns
CASES = {
    "1x1": (2, 3, 5, 5, 3, (1, 1), (1, 1), (0, 0), (1, 1), 1, 4, 3),
    "3x3": (2, 5, 6, 3, 7, (3, 3), (1, 1), (1, 1), (1, 1), 1, 4, 3),
    "3x3, no padding": (1, 5, 7, 6, 5, (3, 3), (1, 1), (0, 0), (1, 1), 1, 3, 4),
    "3x3, stride 2, rest": (3, 8, 7, 4, 6, (3, 3), (2, 2), (1, 1), (1, 1), 1, 4, 4),
    "1x1, stride 2: phases without taps": (2, 5, 6, 3, 5, (1, 1), (2, 2), (0, 0), (1, 1), 1, 4, 3),
    "4x5, strides 3 and 2": (1, 9, 8, 5, 3, (4, 5), (3, 2), (2, 1), (1, 1), 1, 6, 4),
    "stride over kernel": (1, 10, 4, 3, 3, (2, 1), (3, 3), (0, 0), (1, 1), 1, 2, 3),
    "7x7, stride 2": (1, 9, 9, 3, 4, (7, 7), (2, 2), (3, 3), (1, 1), 1, 8, 5),
    "padding over kernel": (1, 3, 3, 2, 3, (2, 2), (2, 1), (3, 2), (1, 1), 1, 4, 3),
    "dilation": (1, 8, 9, 3, 4, (3, 2), (2, 1), (2, 1), (2, 3), 1, 4, 3),
    "uneven padding": (2, 6, 5, 3, 4, (2, 4), (1, 2), ((0, 1), (3, 2)), (3, 1), 1, 4, 3),
    "map of one pixel": (3, 1, 1, 9, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1, 4, 3),
    "groups": (2, 5, 4, 6, 9, (3, 3), (1, 1), (1, 1), (1, 1), 3, 4, 4),
    "groups, strided, dilated": (1, 7, 8, 8, 4, (3, 3), (2, 2), (1, 2), (1, 2), 4, 3, 5),
    "groups of one channel": (2, 6, 5, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1), 7, 4, 3),
    "depthwise, stride 2, multiplier 2": (1, 6, 7, 5, 10, (3, 3), (2, 2), (1, 1), (1, 1), 5, 4, 4),
}
FORMATS = [BF16, FP16, FP8_E5M2]


def random_codes(rng, fmt, shape):
    """Codes of numbers of mixed magnitude, with some zeros."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape)
    return encode(fmt, np.where(rng.random(shape) < 0.1, 0.0, values))


class Case:
    """Random operands of a convolution."""

    def __init__(self, name, fmt, rng):
        n, h, w, i, o, kernel, stride, padding, dilation, groups, rows, columns = CASES[name]
        self.name, self.fmt, self.rows, self.size, self.kernel = name, fmt, rows, (h, w), kernel
        self.groups, self.inputs, self.outputs = groups, i, o
        self.geometry = {"stride": stride, "padding": padding, "dilation": dilation}
        self.all = dict(self.geometry, groups=groups, rows=rows, columns=columns)
        self.map = output_map((h, w), kernel=kernel, **self.geometry)
        self.x = random_codes(rng, fmt, (n, h, w, i))
        self.weights = random_codes(rng, fmt, (o, i // groups, *kernel))
        self.dy = random_codes(rng, fmt, (n, *self.map, o))

    def golden(self):
        narrow = {key: value for key, value in self.all.items() if key != "columns"}
        return {
            "y": convolution(self.fmt, self.x, self.weights, **self.all),
            "dx": input_gradient(self.fmt, self.dy, self.weights, input_size=self.size, **self.all),
            "dw": weight_gradient(self.fmt, self.x, self.dy, kernel=self.kernel, **narrow),
            "db": bias_gradient(self.fmt, self.dy, rows=self.rows),
        }

    def excess(self, golden):
        """What is out of bound: {name: text}."""
        narrow = {key: value for key, value in self.all.items() if key != "columns"}
        estimates = training_bounds.convolution(self.fmt, self.x, self.weights, self.dy, **narrow)
        wrong = {}
        for key, (bits, _) in golden.items():
            actual, reference = decode(FLOAT32, bits), estimates[key].value
            ratio, place = worst_excess(actual, reference, estimates[key].error)
            if not ratio <= 1:
                wrong[key] = (
                    f"{self.name}, {self.fmt.name}: {key}{list(place)} is {bits[place]:#010x} = "
                    f"{actual[place]}, torch {reference[place]}, {ratio:.3g} bounds away"
                )
        return wrong


@pytest.mark.parametrize("name", CASES)
def test_within_the_bound_of_torch(name, rng):
    case = Case(name, BF16, rng)
    wrong = case.excess(case.golden())
    assert not wrong, wrong


@pytest.mark.parametrize("fmt", [FP16, FP8_E5M2], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", ["3x3, stride 2, rest", "groups, strided, dilated"])
def test_other_formats(name, fmt, rng):
    case = Case(name, fmt, rng)
    wrong = case.excess(case.golden())
    assert not wrong, wrong


def test_random_ragged_shapes(rng):
    done = 0
    while done < 12:
        groups = int(rng.choice([1, 1, 2, 3]))
        draw = lambda low, high: tuple(int(v) for v in rng.integers(low, high + 1, 2))  # noqa: E731
        n, (h, w), (i, o) = int(rng.integers(1, 4)), draw(1, 9), draw(1, 5)
        kernel, stride, padding, dilation = draw(1, 4), draw(1, 3), draw(0, 2), draw(1, 2)
        rows, columns = draw(1, 9)
        CASES["random"] = (
            n, h, w, i * groups, o * groups, kernel, stride, padding, dilation, groups, rows,
            columns,
        )  # fmt: skip
        try:
            case = Case("random", BF16, rng)
        except ValueError:  # the kernel does not fit the map
            continue
        finally:
            shape = CASES.pop("random")
        wrong = case.excess(case.golden())
        assert not wrong, (shape, wrong)
        done += 1


def test_the_bound_notices_mutations(rng):
    """Kernels not flipped, a stride phase shifted by one pixel, a pixel counted twice."""
    case = Case("3x3, stride 2, rest", BF16, rng)
    golden = case.golden()
    turned = case.weights[:, :, ::-1]
    mutants = {
        "dx": input_gradient(BF16, case.dy, turned, input_size=case.size, **case.all),
        "dw": (np.roll(golden["dw"][0], 1, axis=3), None),
        "db": column_dot(
            BF16,
            np.full((1, 1), encode(BF16, 1.0)),
            case.dy[0, 0, 0][np.newaxis],
            golden["db"][0][np.newaxis],
        ),
    }
    mutants["db"] = (mutants["db"][0][0], None)
    assert set(case.excess(mutants)) == {"dx", "dw", "db"}


def test_the_bound_is_tight_enough_to_see_a_rounding(rng):
    """One rounding to operands, instead of float32, leaves the bound."""
    case = Case("3x3", BF16, rng)
    dw = case.golden()["dw"][0]
    rounded = encode(FLOAT32, decode(BF16, encode(BF16, decode(FLOAT32, dw))))
    assert "dw" in case.excess({"dw": (rounded, None)})


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_forward_is_the_convolution_of_the_layers(fmt, rng):
    for name in ("3x3", "4x5, strides 3 and 2"):
        case = Case(name, fmt, rng)
        bias = encode(FLOAT32, rng.standard_normal(case.outputs))
        geometry = {key: case.geometry[key] for key in ("stride", "padding")}
        expected = conv2d(fmt, case.x, case.weights, bias, rows=case.rows, **geometry)
        actual = convolution(fmt, case.x, case.weights, bias, rows=case.rows, **geometry)
        for one, other in zip(actual, expected, strict=True):
            assert (one == other).all()


def step(fmt, x, w, psum):
    """One column step of lists of codes."""
    rows = len(x)
    bits, _ = column_dot(
        fmt,
        np.array(x, np.uint16).reshape(1, rows),
        np.array(w, np.uint16).reshape(rows, 1),
        np.array([[psum]], np.uint32),
    )
    return int(bits[0, 0])


def test_order_of_input_gradient(rng):
    """Bit for bit against sums written out, one output at a time."""
    case = Case("3x3, stride 2, rest", BF16, rng)
    (stride, _), (pad, _) = case.geometry["stride"], case.geometry["padding"]
    rows, (out_h, out_w) = case.rows, case.map
    actual = case.golden()["dx"][0]
    for place in itertools.islice(np.ndindex(actual.shape), 0, None, 7):
        n, h, w, i = place
        psum = 0
        for block in range(0, case.outputs, rows):
            for kh in (2, 1, 0):
                for kw in (2, 1, 0):
                    if (h + pad - kh) % stride or (w + pad - kw) % stride:
                        continue
                    ho, wo = (h + pad - kh) // stride, (w + pad - kw) // stride
                    inside = 0 <= ho < out_h and 0 <= wo < out_w
                    lanes = range(block, min(block + rows, case.outputs))
                    dy = [int(case.dy[n, ho, wo, o]) if inside else 0 for o in lanes]
                    psum = step(BF16, dy, [int(case.weights[o, i, kh, kw]) for o in lanes], psum)
        assert int(actual[place]) == psum, f"{place}: {actual[place]:#x}, expected {psum:#x}"


@pytest.mark.parametrize("rows", [1, 4, 5, 60])
def test_order_of_weight_and_bias_gradient(rows, rng):
    case = Case("3x3, stride 2, rest", BF16, rng)
    (stride, _), (pad, _), (height, width) = (
        case.geometry["stride"], case.geometry["padding"], case.size,
    )  # fmt: skip
    dw = weight_gradient(BF16, case.x, case.dy, kernel=3, rows=rows, **case.geometry)[0]
    db = bias_gradient(BF16, case.dy, rows=rows)[0]
    pixels = list(np.ndindex(case.dy.shape[:3]))
    for place in itertools.islice(np.ndindex(dw.shape), 0, None, 11):
        o, i, kh, kw = place
        psum = bias = 0
        for first in range(0, len(pixels), rows):
            x = []
            for n, ho, wo in pixels[first : first + rows]:
                h, w = ho * stride - pad + kh, wo * stride - pad + kw
                inside = 0 <= h < height and 0 <= w < width
                x.append(int(case.x[n, h, w, i]) if inside else 0)
            dy = [int(case.dy[(*pixel, o)]) for pixel in pixels[first : first + rows]]
            psum = step(BF16, x, dy, psum)
            bias = step(BF16, [0x3F80] * len(dy), dy, bias)
        assert int(dw[place]) == psum, f"{place}: {dw[place]:#x}, expected {psum:#x}"
        assert int(db[o]) == bias


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_linear_layer(fmt, rng):
    """As a matrix product of torch's, and as a convolution of stride 1 with finite operands."""
    n, h, w, c, o, rows = 3, 2, 3, 5, 7, 4
    x, weights = random_codes(rng, fmt, (n, h, w, c)), random_codes(rng, fmt, (o, c * h * w))
    dy = random_codes(rng, fmt, (n, 1, 1, o))
    dx, _ = linear_input_gradient(fmt, dy, weights, input_size=(h, w), rows=rows)
    exact = decode(fmt, dy)[:, 0, 0] @ decode(fmt, weights)
    magnitude = np.abs(decode(fmt, dy)[:, 0, 0]) @ np.abs(decode(fmt, weights))
    flat = np.moveaxis(decode(FLOAT32, dx), 3, 1).reshape(n, -1)
    ratio, place = worst_excess(flat, exact, dot_error_bound(magnitude, o, rows))
    assert ratio <= 1, f"dx{place} is {flat[place]}, torch {exact[place]}"
    kernel = weights.reshape(o, c, h, w)
    assert (dx == input_gradient(fmt, dy, kernel, input_size=(h, w), rows=rows)[0]).all()

    dw, _ = weight_gradient(fmt, x, dy, kernel=(h, w), rows=rows)
    features = np.moveaxis(decode(fmt, x), 3, 1).reshape(n, -1)
    exact = decode(fmt, dy)[:, 0, 0].T @ features
    magnitude = np.abs(decode(fmt, dy)[:, 0, 0]).T @ np.abs(features)
    ratio, _ = worst_excess(
        decode(FLOAT32, dw).reshape(o, -1), exact, dot_error_bound(magnitude, n, rows)
    )
    assert ratio <= 1


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 20])
def test_columns_matter_to_no_finite_value(columns, rng):
    for name in ("groups", "depthwise, stride 2, multiplier 2"):
        case = Case(name, BF16, rng)
        expected = case.golden()
        case.all["columns"] = columns
        for key, (bits, _) in case.golden().items():
            assert (bits == expected[key][0]).all(), (name, key)


def dense(weights, groups):
    """(O, I / groups, KH, KW) weights with +0 between the groups: (O, I, KH, KW)."""
    outputs, inputs, *kernel = weights.shape
    full = np.zeros((outputs, inputs * groups, *kernel), weights.dtype)
    for o in range(outputs):
        first = o // (outputs // groups) * inputs
        full[o, first : first + inputs] = weights[o]
    return full


def word_tiles(count, channels, groups, rows, columns):
    """(results, channels) of column tiles: the words with a channel of a group of a result."""
    for first in range(0, count, columns):
        tile = range(first, min(first + columns, count))
        of_tile = {o * groups // count for o in tile}
        words = {c // rows for c in range(channels) if c * groups // channels in of_tile}
        yield (
            slice(tile.start, tile.stop),
            slice(min(words) * rows, min((max(words) + 1) * rows, channels)),
        )


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[9] > 1])
def test_groups_are_dense_weights(name, rng):
    """The same bits from dense weights, tile by tile of columns; special values everywhere."""
    case = Case(name, BF16, rng)
    special = [BF16.infinity, BF16.infinity | BF16.sign_bit, BF16.nan, BF16.sign_bit]
    for codes in (case.x, case.weights, case.dy):
        chosen = rng.random(codes.shape) < 0.02
        chosen.flat[rng.integers(codes.size)] = True
        codes[chosen] = rng.choice(np.array(special, codes.dtype), codes.shape)[chosen]
    bias = encode(FLOAT32, rng.choice([-0.0, 1.5], case.outputs))
    weights, options = dense(case.weights, case.groups), dict(case.geometry, rows=case.rows)
    columns, sizes = case.all["columns"], (case.groups, case.rows, case.all["columns"])
    y = convolution(BF16, case.x, case.weights, bias, **case.all)
    for outputs, inputs in word_tiles(case.outputs, case.inputs, *sizes):
        part = convolution(
            BF16, case.x[..., inputs], weights[outputs, inputs], bias[outputs], **options
        )
        for actual, expected in zip(part, y, strict=True):
            assert (actual == expected[..., outputs]).all(), ("y", outputs, columns)
    dx = input_gradient(BF16, case.dy, case.weights, input_size=case.size, **case.all)
    for inputs, outputs in word_tiles(case.inputs, case.outputs, *sizes):
        part = input_gradient(
            BF16, case.dy[..., outputs], weights[outputs, inputs], input_size=case.size, **options
        )
        for actual, expected in zip(part, dx, strict=True):
            assert (actual == expected[..., inputs]).all(), ("dx", inputs, columns)
    dw = weight_gradient(BF16, case.x, case.dy, kernel=case.kernel, **options)[0]
    grouped = weight_gradient(
        BF16, case.x, case.dy, kernel=case.kernel, groups=case.groups, **options
    )[0]
    inside = dense(np.ones_like(case.weights), case.groups) > 0
    assert not np.isfinite(decode(FLOAT32, dw[~inside])).all(), "nothing to be masked"
    wrong = np.argwhere(np.where(inside, dw, 0) != dense(grouped, case.groups))
    assert not len(wrong), f"dw{wrong[0].tolist()}"


def test_non_finite_values_beside_other_groups():
    """NaN spreads over the channel words that a column tile reads, and no further."""
    x = np.zeros((1, 1, 1, 8), np.uint16)
    x[..., 1] = BF16.infinity
    weights = np.full((8, 1, 1, 1), encode(BF16, 1.0))
    y = decode(FLOAT32, convolution(BF16, x, weights, groups=8, rows=4, columns=2)[0]).ravel()
    assert np.isnan(y[[0, 2, 3]]).all() and y[1] == np.inf and (y[4:] == 0).all()
    # A tile of all eight columns reads both words.
    y = decode(FLOAT32, convolution(BF16, x, weights, groups=8, rows=4, columns=8)[0]).ravel()
    assert y[1] == np.inf and np.isnan(np.delete(y, 1)).all()
    # Weight gradients do not mix channels.
    dw = weight_gradient(BF16, x, np.ones_like(x) * encode(BF16, 1.0), kernel=1, groups=8, rows=4)
    assert decode(FLOAT32, dw[0]).ravel().tolist() == [0, np.inf, 0, 0, 0, 0, 0, 0]


def test_special_values():
    one, inf = int(encode(BF16, 1.0)), BF16.infinity
    weights = np.full((1, 1, 3, 1), one, np.uint16)
    weights[0, 0, 0] = inf
    dy = np.full((1, 3, 1, 1), one, np.uint16)
    # The padding is multiplied: the tap with the infinite weight meets it in the last row.
    dx, flags = input_gradient(BF16, dy, weights, input_size=(3, 1), padding=(1, 0), rows=2)
    assert [hex(v) for v in dx.ravel()] == ["0x7f800000", "0x7f800000", "0x7fc00000"]
    assert flags.ravel().tolist() == [0, 0, int(Flags.INVALID)]
    # Lanes outside the output map are zero on both sides; an infinity leaves through its tap only.
    dy[0, 0] = inf
    ones = np.full((1, 3, 1, 1), one, np.uint16)
    dw, flags = weight_gradient(BF16, ones, dy, kernel=(3, 1), padding=(1, 0), rows=2)
    assert [hex(v) for v in dw.ravel()] == ["0x7fc00000", "0x7f800000", "0x7f800000"]
    assert bias_gradient(BF16, dy, rows=2)[0].tolist() == [FLOAT32.infinity]
    # Phases that no tap reaches.
    dx, flags = input_gradient(
        BF16, dy[:, :1], weights[:, :, :1], input_size=(2, 2), stride=2, rows=2
    )
    assert dx.ravel().tolist() == [FLOAT32.infinity, 0, 0, 0] and not flags.any()


def test_messages(rng):
    x, w = random_codes(rng, BF16, (1, 4, 4, 4)), random_codes(rng, BF16, (6, 2, 3, 3))
    with pytest.raises(ValueError, match="needs a float format, not int8"):
        convolution(INT8, x, w, groups=2, rows=4, columns=4)
    with pytest.raises(ValueError, match="needs the number of columns"):
        convolution(BF16, x, w, groups=2, rows=4)
    with pytest.raises(ValueError, match="has 4 channels, weights are for 2"):
        convolution(BF16, x, w, rows=4)
    with pytest.raises(ValueError, match="do not divide into 4 groups"):
        convolution(BF16, x, w[:, :1], groups=4, rows=4, columns=4)
    with pytest.raises(ValueError, match="does not fit a map"):
        convolution(BF16, x[:, :2], w, groups=2, rows=4, columns=4)
    dy = random_codes(rng, BF16, (1, 2, 3, 6))
    with pytest.raises(ValueError, match=r"must be \(2, 2\), not \(2, 3\)"):
        input_gradient(BF16, dy, w, input_size=(4, 4), groups=2, rows=4, columns=4)
