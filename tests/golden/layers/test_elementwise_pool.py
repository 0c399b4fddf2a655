"""ReLU, pooling, residual addition and sums of gradients: order, first maxima, special values.

Torch computes in float64 from the same operands. Bounds: :mod:`golden.training.bounds`, one float32
rounding per addition and multiplication, one rounding to operands at the end.

Covers: golden/layers/windows.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.float32_unit import widen
from golden.arithmetic.formats import BF16, FLOAT32, FP8_E5M2, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.commands.post import pool_float, post, to_operand
from golden.layers.elementwise_pool import (
    average_pool,
    average_pool_backward,
    first_maximum,
    max_pool,
    max_pool_backward,
    relu,
    relu_mask,
    residual_add,
    sum_gradients,
)
from golden.training import bounds as training_bounds

FORMATS = [BF16, FP16, FP8_E5M2]

#: N, H, W, C, kernel, stride, padding
POOLS = {
    "2x2": (2, 6, 4, 3, (2, 2), (2, 2), (0, 0)),
    "2x2, rest": (2, 5, 7, 3, (2, 2), (2, 2), (0, 0)),
    "3x3 overlapping": (1, 7, 8, 4, (3, 3), (2, 2), (0, 0)),
    "3x3 dense": (2, 5, 5, 2, (3, 3), (1, 1), (0, 0)),
    "3x2, strides 1 and 3": (1, 6, 8, 3, (3, 2), (1, 3), (0, 0)),
    "window of the map": (3, 4, 5, 2, (4, 5), (1, 1), (0, 0)),
    "3x3, padded": (2, 7, 6, 3, (3, 3), (2, 2), (1, 1)),
    "2x3, padded to one side": (1, 5, 5, 3, (2, 3), (2, 1), (0, 1)),
}
#: What an average is divided by; ceil_mode.
AVERAGES = {
    "all places": {},
    "places inside": {"include_pad": False},
    "a last window": {"ceil_mode": True},
    "a last window, places inside": {"ceil_mode": True, "include_pad": False},
    "5": {"ceil_mode": True, "divisor": 5},
}


def codes_of(rng, fmt, shape):
    """Few different values, so that maxima are not alone, with zeros of both signs."""
    values = rng.integers(-4, 5, shape) * 0.375
    return encode(fmt, np.where(rng.random(shape) < 0.2, -0.0, values))


def gradients_of(rng, fmt, shape):
    return encode(fmt, rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape))


def torch_map(fmt, codes):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(decode(fmt, codes), 3, 1)))


def numpy_map(values):
    return np.moveaxis(values.detach().numpy(), 1, 3)


def check(what, fmt, codes, reference, estimate):
    """``codes`` near torch's ``reference``; the exact value of the estimate is torch's."""
    assert np.allclose(estimate.value, reference, rtol=1e-12, atol=1e-12), what
    ratio, place = worst_excess(decode(fmt, codes), reference, estimate.round(fmt).error)
    assert ratio <= 1, (
        f"{what}{list(place)} is {int(codes[place]):#x} = {decode(fmt, codes)[place]}, torch "
        f"{reference[place]}, {ratio:.3g} bounds away"
    )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_relu(fmt, rng):
    codes = np.arange(1 << fmt.width, dtype=np.uint32).astype(codes_of(rng, fmt, 1).dtype)
    values = torch.from_numpy(decode(fmt, codes)).requires_grad_()
    y = functional.relu(values)
    assert np.array_equal(decode(fmt, relu(fmt, codes)), y.detach().numpy(), equal_nan=True)
    assert not np.signbit(decode(fmt, relu(fmt, codes))).any()
    y.sum().backward()
    assert (relu_mask(fmt, relu(fmt, codes)) == values.grad.numpy()).all()


@pytest.fixture
def random_pools(rng):
    """Ten shapes of windows, maps and paddings."""
    cases = {}
    while len(cases) < 10:
        draw = lambda low, high: tuple(int(v) for v in rng.integers(low, high + 1, 2))  # noqa: E731
        kernel, stride = draw(1, 4), draw(1, 4)
        padding = tuple(int(rng.integers(0, size // 2 + 1)) for size in kernel)
        h, w = (size + int(rng.integers(0, 6)) for size in kernel)
        n, c = draw(1, 3)
        cases[f"random {len(cases)}"] = (n, h, w, c, kernel, stride, padding)
    return cases


def test_random_pools(random_pools, rng):
    for name, case in random_pools.items():
        for options in AVERAGES.values():
            ceil_mode = options.get("ceil_mode", False)
            check_max_pool(f"{name}: {case} {ceil_mode}", case, BF16, rng, ceil_mode=ceil_mode)
            check_average_pool(f"{name}: {case} {options}", case, BF16, rng, **options)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", POOLS)
def test_max_pool(name, fmt, rng):
    check_max_pool(name, POOLS[name], fmt, rng)
    check_max_pool(f"{name}, a last window", POOLS[name], fmt, rng, ceil_mode=True)


def check_max_pool(name, case, fmt, rng, *, ceil_mode=False):
    n, h, w, c, kernel, stride, padding = case
    window = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    codes = codes_of(rng, fmt, (n, h, w, c))
    x = torch_map(fmt, codes).requires_grad_()
    y, index = functional.max_pool2d(
        x, kernel, stride, padding, ceil_mode=ceil_mode, return_indices=True
    )
    assert (decode(fmt, max_pool(fmt, codes, **window)) == numpy_map(y)).all()

    # The same element of each window as in torch.
    place = first_maximum(fmt, codes, **window)
    lines = np.arange(place.shape[1])[:, np.newaxis, np.newaxis] * stride[0] - padding[0]
    columns = np.arange(place.shape[2])[:, np.newaxis] * stride[1] - padding[1]
    flat = (lines + place // kernel[1]) * w + columns + place % kernel[1]
    assert (flat == numpy_map(index)).all()

    dy = gradients_of(rng, fmt, place.shape)
    y.backward(torch_map(fmt, dy))
    dx, _ = max_pool_backward(fmt, codes, dy, **window)
    estimate = training_bounds.pool_backward_error(
        Estimate.bits(fmt, dy), decode(fmt, codes), **window
    )
    check(f"{name}: dx", fmt, dx, numpy_map(x.grad), estimate)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", POOLS)
def test_average_pool(name, fmt, rng):
    for kind, options in AVERAGES.items():
        check_average_pool(f"{name}, {kind}", POOLS[name], fmt, rng, **options)


def check_average_pool(name, case, fmt, rng, *, ceil_mode=False, include_pad=True, divisor=None):
    n, h, w, c, kernel, stride, padding = case
    window = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    window |= {"include_pad": include_pad, "divisor": divisor}
    codes = gradients_of(rng, fmt, (n, h, w, c))
    x = torch_map(fmt, codes).requires_grad_()
    y = functional.avg_pool2d(x, kernel, stride, padding, ceil_mode, include_pad, divisor)
    result, _ = average_pool(fmt, codes, **window)
    estimate = training_bounds.average_pool(Estimate.bits(fmt, codes), **window)
    check(f"{name}: y", fmt, result, numpy_map(y), estimate)

    dy = gradients_of(rng, fmt, result.shape)
    y.backward(torch_map(fmt, dy))
    dx, _ = average_pool_backward(fmt, dy, input_size=(h, w), **window)
    estimate = training_bounds.average_pool_backward(
        Estimate.bits(fmt, dy), input_size=(h, w), **window
    )
    check(f"{name}: dx", fmt, dx, numpy_map(x.grad), estimate)


def test_average_pool_is_that_of_post_processing(rng):
    """The same bits as a POST command on float32 sums that are operands."""
    x = gradients_of(rng, BF16, (1, 3, 2, 5))
    windows = widen(BF16, x).reshape(1, 6, 5)
    scale = int(encode(FLOAT32, 1 / 6))
    expected, flags = post(BF16, windows, relu=False, pool="sum", scale=scale)
    actual, actual_flags = average_pool(BF16, x, kernel=(3, 2))
    assert (actual.ravel() == expected.ravel()).all()
    assert actual_flags == np.bitwise_or.reduce(flags, axis=None)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_order_of_overlapping_windows(kind, rng):
    """Written out: every pixel adds up its windows by rows, in float32, and is rounded once.

    Large numbers of both signs cancel, so that another order gives another operand.
    """
    height, width, kernel, stride = 6, 7, 3, 1
    x = codes_of(rng, BF16, (1, height, width, 2))
    size = (height - kernel + 1, width - kernel + 1)
    dy = gradients_of(rng, BF16, (1, *size, 2))
    large = rng.choice([2.0**26, -(2.0**26)], dy.shape)
    dy = np.where(rng.random(dy.shape) < 0.5, dy, encode(BF16, large))
    window = {"kernel": kernel, "stride": stride}
    place = first_maximum(BF16, x, **window)
    if kind == "max":
        dx, _ = max_pool_backward(BF16, x, dy, **window)
        share = widen(BF16, dy)
    else:
        dx, _ = average_pool_backward(BF16, dy, input_size=(height, width), **window)
        share, _ = mul_f32(widen(BF16, dy), encode(FLOAT32, 1 / 9))
    for h, w, c in np.ndindex(height, width, 2):
        terms = [np.uint32(0)]
        for ho, wo in np.ndindex(*size):
            inside = ho <= h < ho + kernel and wo <= w < wo + kernel
            here = (h - ho) * kernel + w - wo
            if inside and (kind == "average" or place[0, ho, wo, c] == here):
                terms.append(share[0, ho, wo, c])
        total, _ = pool_float(np.array(terms, np.uint32).reshape(1, -1), "sum")
        expected = int(to_operand(BF16, total)[0][0])
        assert int(dx[0, h, w, c]) == expected, f"({h}, {w}, {c})"


def test_special_values_in_max_pool():
    """NaN wins, the last one; infinities; zeros are equal; -inf of the map beats the padding."""
    nan, inf = BF16.nan, BF16.infinity
    low = inf | BF16.sign_bit
    one = int(encode(BF16, 1.0))
    cases = [
        ([one, nan, inf, nan, one], 3, nan),
        ([low, low, low, low, low], 0, low),
        ([0x8000, 0, 0x8000, 0, 0x8000], 0, 0x8000),
        ([low, inf, inf, one, 0], 1, inf),
    ]
    for values, index, result in cases:
        x = np.array(values, np.uint16).reshape(1, 1, 5, 1)
        assert first_maximum(BF16, x, kernel=(1, 5)).item() == index
        assert max_pool(BF16, x, kernel=(1, 5)).item() == result
    x = np.full((1, 1, 3, 1), low, np.uint16)
    window = {"kernel": (1, 3), "stride": 1, "padding": (0, 1)}
    assert first_maximum(BF16, x, **window).ravel().tolist() == [1, 0, 0]
    dy = np.array([one, nan, inf], np.uint16).reshape(1, 1, 3, 1)
    dx, flags = max_pool_backward(BF16, x, dy, **window)
    assert dx.ravel().tolist() == [nan, inf, 0] and flags == 0


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_residual_add_and_sums_of_gradients(fmt, rng):
    maps = [gradients_of(rng, fmt, (2, 3, 5, 4)) for _ in range(3)]
    exact = [Estimate.bits(fmt, codes) for codes in maps]
    total, _ = residual_add(fmt, *maps[:2])
    check("a + b", fmt, total, exact[0].value + exact[1].value, exact[0] + exact[1])
    total, _ = sum_gradients(fmt, maps)
    both = exact[0] + exact[1] + exact[2]
    check("a + b + c", fmt, total, both.value, both)
    # In order, and only the end is rounded to operands.
    first, _ = add_f32(widen(fmt, maps[0]), widen(fmt, maps[1]))
    assert (total == to_operand(fmt, add_f32(first, widen(fmt, maps[2]))[0])[0]).all()
    assert sum_gradients(fmt, maps[:1])[0] is maps[0]


def test_the_bound_notices_mutations(rng):
    """The last maximum instead of the first; a constant that is off by one unit in the last place
    of the operands."""
    n, h, w, c, kernel, stride, _ = POOLS["2x2"]
    x, dy = codes_of(rng, BF16, (n, h, w, c)), gradients_of(rng, BF16, (n, 3, 2, c))
    window = {"kernel": kernel, "stride": stride}
    estimate = training_bounds.pool_backward_error(
        Estimate.bits(BF16, dy), decode(BF16, x), **window
    )
    wrong = max_pool_backward(BF16, x[:, ::-1, ::-1], dy[:, ::-1, ::-1], **window)[0]
    check("dx", BF16, max_pool_backward(BF16, x, dy, **window)[0], estimate.value, estimate)
    with pytest.raises(AssertionError, match="bounds away"):
        check("dx", BF16, wrong[:, ::-1, ::-1], estimate.value, estimate)
    estimate = training_bounds.average_pool_backward(
        Estimate.bits(BF16, dy), input_size=(h, w), **window
    )
    dx = average_pool_backward(BF16, dy, input_size=(h, w), **window)[0]
    with pytest.raises(AssertionError, match="bounds away"):
        check("dx", BF16, dx + 1, estimate.value, estimate)


def test_messages():
    x = np.zeros((1, 3, 3, 1), np.uint16)
    with pytest.raises(ValueError, match="at most half of the kernel"):
        max_pool(BF16, x, kernel=2, padding=2)
    with pytest.raises(ValueError, match="does not fit a map"):
        average_pool(BF16, x, kernel=4)
