"""Depthwise convolutions: order, distance from torch, what lies outside the map, special values."""

import itertools

import numpy as np
import pytest

from golden.arithmetic.dot_product import Flags, decode, encode
from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.float32_unit import widen
from golden.arithmetic.formats import BF16, FLOAT32, FP8_E5M2, FP16, INT8
from golden.arithmetic.running_error import worst_excess
from golden.layers.depthwise import (
    depthwise,
    depthwise_bias_gradient,
    depthwise_input_gradient,
    depthwise_weight_gradient,
)
from golden.training import bounds as training_bounds

#: N, H, W, C, kernel, stride, padding, dilation
CASES = {
    "3x3": (2, 5, 6, 5, (3, 3), (1, 1), (1, 1), (1, 1)),
    "3x3, no padding": (1, 5, 7, 4, (3, 3), (1, 1), (0, 0), (1, 1)),
    "3x3, stride 2, rest": (3, 8, 7, 3, (3, 3), (2, 2), (1, 1), (1, 1)),
    "1x1, stride 2": (2, 5, 6, 3, (1, 1), (2, 2), (0, 0), (1, 1)),
    "4x5, strides 3 and 2": (1, 9, 8, 5, (4, 5), (3, 2), (2, 1), (1, 1)),
    "dilation": (1, 8, 9, 3, (3, 2), (2, 1), (2, 1), (2, 3)),
    "taps that never meet the map": (2, 3, 4, 3, (3, 2), (1, 1), (4, 0), (4, 1)),
    "no tap meets the map": (1, 1, 1, 3, (2, 2), (1, 1), (1, 1), (2, 2)),
    "map of one pixel": (9, 1, 1, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
}


def random_codes(rng, fmt, shape):
    """Codes of numbers of mixed magnitude, with some zeros."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape)
    return encode(fmt, np.where(rng.random(shape) < 0.1, 0.0, values))


class Case:
    """Random operands and what golden makes of them."""

    def __init__(self, name, fmt, rng):
        n, h, w, c, self.kernel, self.stride, self.padding, self.dilation = CASES[name]
        self.name, self.fmt, self.size = name, fmt, (h, w)
        self.geometry = {
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation,
        }  # fmt: skip
        self.x = random_codes(rng, fmt, (n, h, w, c))
        self.weights = random_codes(rng, fmt, (c, 1, *self.kernel))
        self.bias = encode(FLOAT32, rng.standard_normal(c))
        self.y = depthwise(fmt, self.x, self.weights, self.bias, **self.geometry)[0]
        self.dy = random_codes(rng, fmt, self.y.shape)

    def golden(self, dy=None):
        dy, options = self.dy if dy is None else dy, self.geometry
        results = {
            "dx": depthwise_input_gradient(
                self.fmt, dy, self.weights, input_size=self.size, **options
            ),
            "dw": depthwise_weight_gradient(self.fmt, self.x, dy, kernel=self.kernel, **options),
            "db": depthwise_bias_gradient(self.fmt, dy),
        }
        return {"y": self.y} | {key: bits for key, (bits, _) in results.items()}

    def excess(self, golden):
        """What is out of bound: {name: text}."""
        estimates = training_bounds.depthwise(
            self.fmt, self.x, self.weights, self.dy, decode(FLOAT32, self.bias), **self.geometry
        )
        wrong = {}
        for key, bits in golden.items():
            actual, reference = decode(FLOAT32, bits), estimates[key].value
            ratio, place = worst_excess(actual, reference, estimates[key].error)
            if not ratio <= 1:
                wrong[key] = (
                    f"{self.name}, {self.fmt.name}: {key}{list(place)} is {bits[place]:#010x} = "
                    f"{actual[place]}, torch {reference[place]}, {ratio:.3g} bounds away"
                )
        return wrong

    def pixel(self, output, tap):
        """(h, w) that a tap of an output finds; None outside the map."""
        place = tuple(
            o * s - p + t * d
            for o, t, s, p, d in zip(
                output, tap, self.stride, self.padding, self.dilation, strict=True
            )
        )
        inside = all(0 <= p < size for p, size in zip(place, self.size, strict=True))
        return place if inside else None


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E5M2], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", CASES)
def test_within_the_bound_of_torch(name, fmt, rng):
    case = Case(name, fmt, rng)
    wrong = case.excess(case.golden())
    assert not wrong, wrong


def test_the_bound_notices_mutations(rng):
    """A kernel turned over, a gradient of the pixel beside, a pixel missing, no bias."""
    case = Case("3x3, stride 2, rest", BF16, rng)
    golden, short = case.golden(), case.dy.copy()
    short[-1, -1, -1] = 0
    turned = case.weights[:, :, ::-1]
    mutants = {
        "y": depthwise(BF16, case.x, case.weights, **case.geometry)[0],
        "dx": depthwise_input_gradient(
            BF16, case.dy, turned, input_size=case.size, **case.geometry
        )[0],
        "dw": np.roll(golden["dw"], 1, axis=3),
        "db": case.golden(short)["db"],
    }
    assert set(case.excess(mutants)) == set(mutants)


def one(operation, *operands):
    bits, _ = operation(*(np.array([value], np.uint32) for value in operands))
    return int(bits[0])


def summed(numbers):
    """Eight partial sums and a tree, of a list."""
    partial = [0] * 8
    for index, number in enumerate(numbers):
        partial[index % 8] = one(add_f32, partial[index % 8], number)
    while len(partial) > 1:
        partial = [one(add_f32, *pair) for pair in zip(partial[::2], partial[1::2], strict=True)]
    return partial[0]


def summed_map(images):
    """The sums of all images, and theirs if there are several."""
    parts = [summed(image) for image in images]
    return parts[0] if len(parts) == 1 else summed(parts)


@pytest.mark.parametrize("name", ["3x3, stride 2, rest", "dilation"])
def test_order(name, rng):
    """Bit for bit against loops over single numbers; some of them are special."""
    case = Case(name, BF16, rng)
    # Sums of numbers of very different size depend on their order; infinities and NaN spread.
    for codes in (case.x, case.weights, case.dy):
        place = tuple(int(rng.integers(size)) for size in codes.shape)
        codes[place] = rng.choice([BF16.infinity, BF16.nan])
    y, _ = depthwise(BF16, case.x, case.weights, case.bias, **case.geometry)
    golden = case.golden() | {"y": y}
    x, weights, dy = (widen(BF16, codes) for codes in (case.x, case.weights, case.dy))
    taps = list(np.ndindex(case.kernel))
    outputs = list(np.ndindex(*dy.shape[:3]))

    def check(key, place, expected):
        actual = int(golden[key][place])
        assert actual == expected, f"{key}{place} is {actual:#010x}, expected {expected:#010x}"

    for n, *output in outputs:
        for c in range(dy.shape[3]):
            total = int(case.bias[c])
            for tap in taps:
                if (pixel := case.pixel(output, tap)) is not None:
                    product = one(mul_f32, x[n, *pixel, c], weights[c, 0, *tap])
                    total = one(add_f32, total, product)
            check("y", (n, *output, c), total)
    sums, products = np.zeros(x.shape, np.uint32), {}
    for n, *output in outputs:
        for tap, c in itertools.product(taps, range(dy.shape[3])):
            if (pixel := case.pixel(output, tap)) is not None:
                gradient = dy[n, *output, c]
                product = one(mul_f32, gradient, weights[c, 0, *tap])
                place = (n, *pixel, c)
                sums[place] = one(add_f32, sums[place], product)
                terms = products.setdefault((c, 0, *tap), [[] for _ in x])
                terms[n].append(one(mul_f32, x[place], gradient))
    for place in np.ndindex(sums.shape):
        check("dx", place, int(sums[place]))
    for place in np.ndindex(weights.shape):
        check("dw", place, summed_map(products.get(place, [[]])))
    for c in range(dy.shape[3]):
        check("db", (c,), summed_map([image.ravel() for image in dy[..., c]]))


def test_special_values():
    """Nothing is multiplied outside the map, and no channel sees another."""
    one_, inf = int(encode(BF16, 1.0)), BF16.infinity
    weights = np.full((2, 1, 3, 1), one_, np.uint16)
    weights[0, 0, 0] = inf
    x = np.full((1, 3, 1, 2), one_, np.uint16)
    geometry = {"padding": (1, 0)}
    y, flags = depthwise(BF16, x, weights, **geometry)
    # The infinite weight of the first tap finds nothing in the first row.
    assert decode(FLOAT32, y)[0, :, 0].tolist() == [[2, 2], [np.inf, 3], [np.inf, 2]]
    assert flags == 0
    dx, flags = depthwise_input_gradient(BF16, x, weights, input_size=(3, 1), **geometry)
    assert decode(FLOAT32, dx)[0, :, 0].tolist() == [[np.inf, 2], [np.inf, 3], [2, 2]]
    assert flags == 0
    x[0, 0, 0, 1] = 0
    weights[1] = inf
    y, flags = depthwise(BF16, x, weights, **geometry)
    assert np.isnan(decode(FLOAT32, y)[0, :2, 0, 1]).all() and y[0, 2, 0, 1] == FLOAT32.infinity
    assert flags == int(Flags.INVALID)
    # From the bias on: an output without a tap is the bias as the unit reads it.
    bias = np.array([1, FLOAT32.nan | 5], np.uint32)
    alone = {"padding": 1, "dilation": 2}
    y, flags = depthwise(BF16, x[:, :1], np.zeros((2, 1, 2, 2), np.uint16), bias, **alone)
    assert y.ravel().tolist() == [0, FLOAT32.nan] and flags == 0
    # The start is +0, also beside a product of -0.
    minus = np.full((2, 1, 1, 1), BF16.sign_bit, np.uint16)
    assert not depthwise(BF16, np.full((1, 1, 1, 2), one_), minus)[0].any()


def test_messages(rng):
    x, w = random_codes(rng, BF16, (1, 4, 4, 4)), random_codes(rng, BF16, (4, 1, 3, 3))
    with pytest.raises(ValueError, match="needs a float format, not int8"):
        depthwise(INT8, x, w)
    with pytest.raises(ValueError, match=r"must have shape \(4, 1, KH, KW\), not \(3, 1, 3, 3\)"):
        depthwise(BF16, x, w[:3])
    with pytest.raises(ValueError, match=r"bias must have shape \(4,\), not \(3,\)"):
        depthwise(BF16, x, w, np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="does not fit a map"):
        depthwise(BF16, x[:, :2], w)
    with pytest.raises(ValueError, match=r"x must have shape \(N, H, W, C\)"):
        depthwise_weight_gradient(BF16, x[0], x, kernel=3)
    with pytest.raises(ValueError, match=r"must be \(1, 2, 2, 4\), not \(1, 4, 4, 4\)"):
        depthwise_weight_gradient(BF16, x, x, kernel=3)
    with pytest.raises(ValueError, match=r"must be \(1, 2, 2, 4\), not \(1, 4, 4, 4\)"):
        depthwise_input_gradient(BF16, x, w, input_size=(4, 4))
