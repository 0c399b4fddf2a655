"""Sigmoid, tanh, SiLU, GELU and softplus: every operand of a format, against torch in float64.

Covers: golden/training/smooth_bounds.py.
"""

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import power_of_two
from golden.arithmetic.formats import BF16, FLOAT32, FP8_E4M3, FP8_E5M2, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers import smooth
from golden.layers.loss import binary_cross_entropy
from golden.training.smooth_bounds import GELU_ERRORS, binary_cross_entropy_bounds, smooth_bounds

FORMATS = [BF16, FP16, FP8_E5M2, FP8_E4M3]

#: Name -> function, what torch has, kind, options.
LAYERS = {
    "sigmoid": (smooth.sigmoid, torch.sigmoid, "sigmoid", {}),
    "tanh": (smooth.tanh, torch.tanh, "tanh", {}),
    "silu": (smooth.silu, functional.silu, "silu", {}),
    "gelu": (smooth.gelu, functional.gelu, "gelu", {"tanh": False}),
    "gelu with tanh": (
        smooth.gelu,
        lambda x: functional.gelu(x, approximate="tanh"),
        "gelu",
        {"tanh": True},
    ),
    "softplus": (smooth.softplus, functional.softplus, "softplus", {}),
}


def every_number(fmt):
    """All operands that are neither NaN nor an infinity; of 16 bits those below 2**60."""
    codes = np.arange(1 << fmt.width, dtype=np.uint32).astype(encode(fmt, 0.0).dtype)
    return codes[np.abs(decode(fmt, codes)) < 2.0**60]


def within(what, fmt, codes, reference, error):
    bound = Estimate(reference, error).round(fmt).error
    ratio, place = worst_excess(decode(fmt, codes), reference, bound)
    assert ratio <= 1, f"{what}: {decode(fmt, codes)[place]}, torch {reference[place]}, {ratio}"


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", LAYERS)
def test_every_operand(name, fmt, rng):
    function, torch_function, kind, options = LAYERS[name]
    codes = every_number(fmt)
    dy = encode(fmt, rng.standard_normal(codes.shape))
    x = torch.from_numpy(decode(fmt, codes)).requires_grad_()
    y = torch_function(x)
    y.backward(torch.from_numpy(decode(fmt, dy)))
    exact = [Estimate.bits(fmt, part) for part in (codes, dy)]
    error, gradient_error = smooth_bounds(fmt, kind, *exact, **options)
    within(name, fmt, function(fmt, codes, **options)[0], y.detach().numpy(), error)
    dx, _ = smooth.derivative(function, fmt, dy, codes, **options)
    within(f"{name} backward", fmt, dx, x.grad.numpy(), gradient_error)


@pytest.mark.parametrize("shape", [(3, 1, 1, 5), (2, 4, 3, 7)])
def test_binary_cross_entropy(shape, rng):
    """Value and gradient against torch in float64; large logits on the right side cost nothing."""
    x = encode(FLOAT32, rng.standard_normal(shape) * 5)
    target = encode(FLOAT32, rng.choice([0.0, 1.0, 1.0, 0.3], shape))
    result = binary_cross_entropy(BF16, x, target)
    exact, goal = decode(FLOAT32, x), decode(FLOAT32, target)
    logits = torch.from_numpy(exact).requires_grad_()
    loss = functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(goal))
    loss.backward()
    error, gradient_error = binary_cross_entropy_bounds(exact, goal)
    value = float(decode(FLOAT32, result.value))
    assert abs(value - loss.item()) <= error, (value, loss.item(), error)
    within("gradient", BF16, result.gradient, logits.grad.numpy(), gradient_error)
    right = encode(FLOAT32, np.where(goal > 0.5, 200.0, -200.0))
    sure = binary_cross_entropy(BF16, right, encode(FLOAT32, goal.round()))
    assert not sure.value and not (sure.gradient & ~np.uint16(BF16.sign_bit)).any()


def test_targets_of_binary_cross_entropy_are_shares():
    number = encode(FLOAT32, np.array([1.5]))
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        binary_cross_entropy(BF16, number, number)


def test_the_bound_notices_a_wrong_constant(monkeypatch, rng):
    """A coefficient that is off by a thousandth."""
    monkeypatch.setattr(smooth, "_LEAD", smooth._LEAD * 1.001)
    with pytest.raises(AssertionError, match="sigmoid: .* torch"):
        test_every_operand("sigmoid", FP16, rng)


def polynomial(terms, x, first=None):
    """What a chain of ``(total + term) * x`` gives, in float64."""
    total = x if first is None else first
    for term in terms:
        total = (total + np.float64(np.float32(term))) * x
    return total


def test_polynomials():
    """How far they are from what they stand for: the numbers in ``smooth_bounds``."""
    scale = smooth._SCALE
    assert scale * 2**7 == float(decode(FLOAT32, smooth._ONE_SCALED))
    f = np.linspace(-0.5, 0.5, 20001)[np.arange(20001) != 10000]
    power, exact = polynomial(smooth._POWER, f) / (scale * 2**7), np.expm1(f * np.log(2.0))
    assert np.abs(power / exact - 1).max() <= 2.0**-16
    assert np.abs((power + 1) / (exact + 1) - 1).max() <= 2.0**-17
    z = np.linspace(0, 1, 20001)[1:]
    w = scale * z
    for terms, lead, variable in (
        (smooth._RECIPROCAL, smooth._LEAD, w),
        (smooth._SHIFTED, smooth._SHIFTED_LEAD, w - scale),
    ):
        *others, last = terms
        value = (polynomial(others, variable) + last) * lead
        assert np.abs(value * (1 + z) - 1).max() <= 2.0**-16.5
        if variable is w:
            assert (np.abs(value * (1 + z) - 1) <= z * 2.0**-10 + 2.0**-24).all()
    logarithm = polynomial(smooth._LOGARITHM, w) * smooth._LOG_LEAD
    assert np.abs(logarithm / np.log1p(z) - 1).max() <= 2.0**-16


@pytest.mark.parametrize("tanh", [False, True])
def test_polynomials_of_gelu(tanh):
    """GELU and its derivative with an exact sigmoid of the polynomial."""
    factor, terms = smooth.GELU_TANH if tanh else smooth.GELU_ERF
    x = np.linspace(-40, 40, 80001)
    square = np.minimum(x * x, 36.0)
    value = square + terms[0] if tanh else (square + terms[0]) * square + terms[1]
    # d(x p(x * x)) = p + 2 x * x p'; beyond 6 the sigmoid is 0 or 1.
    more = 2 * square * (1 if tanh else 2 * square + terms[0])
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-factor * x * value))
    slope = s + x * factor * (value + more) * s * (1 - s)
    reference = torch.from_numpy(x).requires_grad_()
    y = functional.gelu(reference, approximate="tanh" if tanh else "none")
    y.sum().backward()
    if not tanh:
        np.testing.assert_allclose(y.detach().numpy(), x * ndtr(x), atol=1e-12)
    own, slope_own = GELU_ERRORS[tanh]
    assert np.abs(x * s - y.detach().numpy()).max() <= own
    assert np.abs(slope - reference.grad.numpy()).max() <= slope_own


def test_special_values():
    """NaN stays; where a function is constant, or the operand itself, it is so exactly."""
    large = [-3e38, -1000.0, 1000.0, 3e38]
    codes = encode(BF16, np.array([np.nan, *large]))
    large = decode(BF16, codes)[1:]
    steps = np.array([0.0, 0.0, 1.0, 1.0])
    expected = {
        "sigmoid": (steps, 0.0),
        "tanh": (2 * steps - 1, 0.0),
        "silu": (steps * large, steps),
        "gelu": (steps * large, steps),
        "gelu with tanh": (steps * large, steps),
        "softplus": (steps * large, steps),
    }
    for name, (function, _, _, options) in LAYERS.items():
        values = decode(BF16, function(BF16, codes, **options)[0])
        slopes = decode(BF16, function(BF16, codes, derivative=True, **options)[0])
        assert np.isnan(values[0]) and np.isnan(slopes[0]), name
        np.testing.assert_array_equal(values[1:], expected[name][0], err_msg=name)
        np.testing.assert_array_equal(slopes[1:] + 0.0, expected[name][1] + 0 * steps, name)


def test_power_of_two():
    """Of the lowest 8 bits as a signed number, whatever the others are."""
    exponents = np.arange(-128, 128)
    bits = (exponents & 0xFF).astype(np.uint32) | np.uint32(0x4B400000)
    values = decode(FLOAT32, power_of_two(bits))
    assert values[0] == np.inf and values[1] == 0
    np.testing.assert_array_equal(values[2:], 2.0 ** exponents[2:])
