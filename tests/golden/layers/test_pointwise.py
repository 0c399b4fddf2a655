"""Element by element: every operand of a format, against torch, special values included.

Torch computes in float64 from the same operands.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FP8_E4M3, FP8_E5M2, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.pointwise import (
    add_scaled,
    affine,
    clamp,
    clamp_mask,
    hardsigmoid,
    hardsigmoid_backward,
    hardswish,
    hardswish_backward,
    leaky_relu,
    leaky_relu_backward,
    multiply,
)
from golden.training.map_bounds import map_bounds

FORMATS = [BF16, FP16, FP8_E5M2, FP8_E4M3]


def every_code(fmt):
    """All of them, in the type that the format is stored in."""
    return np.arange(1 << fmt.width, dtype=np.uint32).astype(encode(fmt, 0.0).dtype)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("limits", [(0.0, 6.0), (-1.0, 1.0), (-0.3, 0.7), (-2.0, 0.0)], ids=str)
def test_clamp(fmt, limits, rng):
    """The same as torch with limits that are operands; nothing else is rounded."""
    codes = every_code(fmt)
    low, high = (float(decode(fmt, encode(fmt, limit))) for limit in limits)
    x = torch.from_numpy(decode(fmt, codes)).requires_grad_()
    y = functional.hardtanh(x, low, high)
    result = clamp(fmt, codes, low=limits[0], high=limits[1])
    np.testing.assert_array_equal(decode(fmt, result), y.detach().numpy())
    values = decode(fmt, result)
    if 0.0 in (low, high):
        assert not np.signbit(values[values == 0]).any()
    y.sum().backward()
    mask = clamp_mask(fmt, result, low=limits[0], high=limits[1])
    # NaN lets the gradient through; torch does so in ReLU, but not here.
    np.testing.assert_array_equal(mask, (x.grad.numpy() > 0) | np.isnan(decode(fmt, codes)))


def close(fmt, what, codes, reference, error):
    """``codes`` within the bound of ``reference``, with the rounding to operands; NaN, infinities
    and what overflows are the same."""
    values = decode(fmt, codes)
    with np.errstate(invalid="ignore"):
        special = ~np.isfinite(values) | ~np.isfinite(reference)
        expected = decode(fmt, encode(fmt, reference))
    np.testing.assert_array_equal(values[special], expected[special], err_msg=what)
    bound = Estimate(reference, np.broadcast_to(error, reference.shape)).round(fmt).error
    ratio, place = worst_excess(values[~special], reference[~special], bound[~special])
    assert ratio <= 1, f"{what}: {values[~special][place]}, torch {reference[~special][place]}"


#: Kind -> forward, backward from (dy, x, y), torch, options.
BENT = {
    "leaky_relu": (
        leaky_relu,
        lambda fmt, dy, x, y, **options: leaky_relu_backward(fmt, dy, y, **options),
        lambda x, slope: functional.leaky_relu(x, slope),
        {"slope": 0.1},
    ),
    # Torch's own derivatives have constants in float32.
    "hardsigmoid": (
        hardsigmoid,
        lambda fmt, dy, x, y: hardsigmoid_backward(fmt, dy, x),
        lambda x: functional.relu6(x + 3) / 6,
        {},
    ),
    "hardswish": (
        hardswish,
        lambda fmt, dy, x, y: hardswish_backward(fmt, dy, x),
        lambda x: x * functional.relu6(x + 3) / 6,
        {},
    ),
    "affine": (
        affine,
        lambda fmt, dy, x, y, factor, offset: affine(fmt, dy, factor=factor),
        lambda x, factor, offset: x * factor + offset,
        {"factor": -0.3, "offset": 0.7},
    ),
}


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("kind", BENT)
def test_bent(kind, fmt, rng):
    """Every finite operand; the bounds are those of running error analysis, see ``map_bounds``."""
    forward, backward, torch_function, options = BENT[kind]
    codes = every_code(fmt)
    codes = codes[np.abs(decode(fmt, codes)) < 2.0**60]  # torch's products stay finite
    dy = encode(fmt, rng.standard_normal(codes.shape))
    x = torch.from_numpy(decode(fmt, codes)).requires_grad_()
    y = torch_function(x, **options)
    y.backward(torch.from_numpy(decode(fmt, dy)))
    exact = [Estimate.bits(fmt, part) for part in (codes, dy)]
    error, (gradient_error,) = map_bounds(kind, exact[:1], exact[1], options)
    result, _ = forward(fmt, codes, **options)
    close(fmt, kind, result, y.detach().numpy(), error)
    dx, _ = backward(fmt, dy, codes, result, **options)
    close(fmt, f"{kind} backward", dx, x.grad.numpy(), gradient_error)


def test_special_values():
    """NaN stays NaN; infinities are numbers like others; the sign of zero."""
    codes = encode(BF16, np.array([np.nan, np.inf, -np.inf, -0.0, 0.0]))
    for function, expected in (
        (lambda x: leaky_relu(BF16, x, slope=0.5), [np.nan, np.inf, -np.inf, -0.0, 0.0]),
        (lambda x: hardsigmoid(BF16, x), [np.nan, 1.0, 0.0, 0.5, 0.5]),
        (lambda x: hardswish(BF16, x), [np.nan, np.inf, np.nan, -0.0, 0.0]),
        (lambda x: affine(BF16, x, factor=2.0), [np.nan, np.inf, -np.inf, -0.0, 0.0]),
    ):
        values = decode(BF16, function(codes)[0])
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(np.signbit(values[3:]), np.signbit(expected[3:]))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_two_maps(fmt, rng):
    """Products and scaled sums; each operation rounds once."""
    a, b = (encode(fmt, rng.standard_normal((2, 3, 5)) * 3) for _ in range(2))
    x, y = (Estimate.bits(fmt, codes) for codes in (a, b))
    product, total = x * y, x + y * Estimate.constant(0.3)
    close(fmt, "product", multiply(fmt, a, b)[0], x.value * y.value, product.error)
    scaled = add_scaled(fmt, a, b, scale=0.3)[0]
    close(fmt, "sum", scaled, x.value + 0.3 * y.value, total.error)
    difference = add_scaled(fmt, a, b, scale=-1.0)[0]
    np.testing.assert_array_equal(decode(fmt, difference),
                                  decode(fmt, encode(fmt, x.value - y.value)))  # fmt: skip
