"""Batch normalisation against torch.autograd in float64, within running error analysis.

The bound (:mod:`golden.training.bounds`) follows the operations one by one: every float32
operation adds 2**-24 of the largest result it may have, a term of a sum of n goes through
ceil(n / 8) + 3 additions (over a map: in its image, then among the images), and the result is
rounded to operands.

Covers: golden/arithmetic/float32_unit.py, golden/arithmetic/running_error.py,
golden/training/bounds.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, rounding_error, worst_excess
from golden.layers.batch_norm import (
    batch_statistics,
    normalize,
    normalize_backward,
    scale_and_shift,
    update_running,
)
from golden.training import bounds as training_bounds

#: The last one has two parts in each image.
SHAPES = [(1, 1, 2, 1), (2, 3, 5, 3), (3, 1, 1, 4), (2, 7, 4, 5), (4, 5, 5, 2), (2, 18, 17, 2)]
EPSILON = 1e-5
MOMENTUM = 0.1


def random_case(rng, fmt, shape):
    """x with channels of different mean and spread, dy, gamma, beta, running statistics."""
    channels = shape[3]
    spread = 2.0 ** rng.integers(-2, 3, channels)
    x = encode(fmt, rng.standard_normal(shape) * spread + rng.standard_normal(channels) * 2)
    dy = encode(fmt, rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 2, shape))
    draws = [rng.standard_normal(channels) for _ in range(3)] + [rng.random(channels) + 0.1]
    return x, dy, *(encode(FLOAT32, values) for values in draws)


def run(fmt, x, dy, gamma, beta, running_mean, running_variance):
    """Golden's results by name: (bits, format)."""
    statistics = batch_statistics(fmt, x)
    (inverse, a, b), _ = scale_and_shift(
        statistics.mean, statistics.variance, gamma, beta, epsilon=EPSILON
    )
    gradients = normalize_backward(fmt, x, dy, mean=statistics.mean, inverse=inverse, a=a)
    new, _ = update_running(running_mean, running_variance, statistics, momentum=MOMENTUM)
    (_, a_eval, b_eval), _ = scale_and_shift(
        running_mean, running_variance, gamma, beta, epsilon=EPSILON
    )
    return {
        "y": (normalize(fmt, x, a, b)[0], fmt),
        "evaluation": (normalize(fmt, x, a_eval, b_eval)[0], fmt),
        "dx": (gradients.input, fmt),
        "dgamma": (gradients.scale, FLOAT32),
        "dbeta": (gradients.shift, FLOAT32),
        "c1": (gradients.input_scale, FLOAT32),
        "c0": (gradients.input_shift, FLOAT32),
        "running mean": (new[0], FLOAT32),
        "running variance": (new[1], FLOAT32),
    }


def reference(fmt, x, dy, *parameters):
    """Torch's results by name."""
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(decode(fmt, x), 3, 1)))
    dy = torch.from_numpy(np.ascontiguousarray(np.moveaxis(decode(fmt, dy), 3, 1)))
    gamma, beta, mean, variance = (torch.from_numpy(decode(FLOAT32, p)) for p in parameters)
    evaluation = functional.batch_norm(x, mean, variance, gamma, beta, False, 0.0, EPSILON)
    for tensor in (x, gamma, beta):
        tensor.requires_grad_()
    y = functional.batch_norm(x, mean, variance, gamma, beta, True, MOMENTUM, EPSILON)
    dx, dgamma, dbeta = torch.autograd.grad(y, (x, gamma, beta), dy)
    result = {
        "y": np.moveaxis(y.detach().numpy(), 1, 3),
        "evaluation": np.moveaxis(evaluation.numpy(), 1, 3),
        "dx": np.moveaxis(dx.numpy(), 1, 3),
        "dgamma": dgamma.numpy(),
        "dbeta": dbeta.numpy(),
        "running mean": mean.numpy(),
        "running variance": variance.numpy(),
    }
    return result


def bounds(fmt, x, dy, *parameters):
    """Estimates by name, maps rounded to operands."""
    shape, channels = x.shape, x.shape[3]
    x, dy = (Estimate.bits(fmt, codes.reshape(len(x), -1, channels)) for codes in (x, dy))
    gamma, beta, running_mean, running_variance = (
        Estimate.bits(FLOAT32, codes) for codes in parameters
    )
    mean, variance = training_bounds.statistics(x, *shape[1:3])
    y, inverse, a = training_bounds.normalize(x, mean, variance, gamma, beta, epsilon=EPSILON)
    dx, dgamma, dbeta = training_bounds.normalize_backward(x, dy, mean, inverse, a)
    evaluation, _, _ = training_bounds.normalize(
        x, running_mean, running_variance, gamma, beta, epsilon=EPSILON
    )
    count = x.value.shape[0] * x.value.shape[1]
    unbiased = variance * Estimate.constant(count / (count - 1))
    maps = {"y": y, "evaluation": evaluation, "dx": dx}
    maps = {key: value.round(fmt) for key, value in maps.items()}
    maps = {
        key: Estimate(value.value.reshape(shape), value.error.reshape(shape))
        for key, value in maps.items()
    }
    return maps | {
        "dgamma": dgamma,
        "dbeta": dbeta,
        "running mean": training_bounds.update_running(running_mean, mean, MOMENTUM),
        "running variance": training_bounds.update_running(running_variance, unbiased, MOMENTUM),
    }


def out_of_bound(case, golden, fmt):
    """{name: text} of what is not within its bound of torch."""
    expected, estimates, wrong = reference(fmt, *case), bounds(fmt, *case), {}
    for key, (bits, bits_format) in golden.items():
        if key not in expected:
            continue  # torch has no such number
        actual = decode(bits_format, bits)
        ratio, place = worst_excess(actual, expected[key], estimates[key].error)
        if not ratio <= 1:
            wrong[key] = (
                f"{key}{list(place)} is {int(bits[place]):#x} = {actual[place]}, torch "
                f"{expected[key][place]}, {ratio:.3g} bounds away"
            )
    return wrong


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_within_the_bound_of_torch(shape, fmt, rng):
    case = random_case(rng, fmt, shape)
    wrong = out_of_bound(case, run(fmt, *case), fmt)
    assert not wrong, (shape, wrong)


def test_random_shapes(rng):
    for _ in range(6):
        shape = tuple(int(size) for size in rng.integers(1, 6, 4))
        shape = (shape[0] + 1, *shape[1:])
        case = random_case(rng, BF16, shape)
        wrong = out_of_bound(case, run(BF16, *case), BF16)
        assert not wrong, (shape, wrong)


def test_bound_is_worth_something(rng):
    """What float32 may lose is below a thousandth of a result of usual size, also in maps."""
    case = random_case(rng, BF16, (2, 7, 4, 5))
    for key, estimate in bounds(BF16, *case).items():
        largest = np.abs(estimate.value).max()
        stored = rounding_error(BF16, largest) if key in ("y", "dx", "evaluation") else 0.0
        assert estimate.error.max() < 1e-3 * largest + 1.01 * stored, key


def test_the_bound_notices_mutations(rng):
    """Without the correction of the variance, with a term of the gradient missing, and with the
    mean and the shift taken from each other's channel."""
    case = random_case(rng, BF16, (2, 3, 5, 3))
    x, dy, gamma, beta, _, running_variance = case
    statistics = batch_statistics(BF16, x)
    (_, a, b), _ = scale_and_shift(
        statistics.mean, statistics.variance, gamma, beta, epsilon=EPSILON
    )
    rate = encode(FLOAT32, MOMENTUM)
    step = add_f32(statistics.variance, running_variance ^ np.uint32(1 << 31))[0]
    biased = add_f32(running_variance, mul_f32(step, rate)[0])[0]
    mutants = {
        "running variance": (biased, FLOAT32),
        "dx": (normalize(BF16, dy, a, np.uint32(0))[0], BF16),
        "y": (normalize(BF16, x, a, np.roll(b, 1))[0], BF16),
    }
    assert set(out_of_bound(case, mutants, BF16)) == set(mutants)


@pytest.mark.parametrize(("fmt", "offset"), [(BF16, 0.0), (BF16, -3000.0), (FP16, 1500.0)])
def test_order_of_operations(fmt, offset, rng):
    """Written out for one channel, pixel by pixel; an image is one part.

    With a mean far from zero terms cancel, so that another order gives other operands.
    """
    x, dy, gamma, beta, running_mean, running_variance = random_case(rng, fmt, (3, 2, 3, 1))
    x = encode(fmt, decode(fmt, x) + offset)
    unit = VectorUnit()
    add, sub, mul = unit.add, unit.subtract, unit.multiply
    widened = [widen(fmt, values.ravel()) for values in (x, dy)]

    def total(values):
        return interleaved([interleaved(values[n : n + 6]) for n in (0, 6, 12)])

    def interleaved(values):
        p = [np.uint32(0)] * 8
        for index, value in enumerate(values):
            p[index % 8] = add(p[index % 8], value)
        low = add(add(p[0], p[1]), add(p[2], p[3]))
        return add(low, add(add(p[4], p[5]), add(p[6], p[7])))

    reciprocal, third = encode(FLOAT32, 1 / 18), encode(FLOAT32, 1 / 3)
    images = [widened[0][n : n + 6] for n in (0, 6, 12)]
    means = [mul(interleaved(image), encode(FLOAT32, 1 / 6)) for image in images]
    squares = [
        interleaved([mul(d, d) for d in (sub(value, own) for value in image)])
        for image, own in zip(images, means, strict=True)
    ]
    mean = mul(interleaved(means), third)
    between = interleaved([mul(d, d) for d in (sub(own, mean) for own in means)])
    variance = add(mul(between, third), mul(interleaved(squares), reciprocal))
    deviation = [sub(value, mean) for value in widened[0]]
    root = unit.square_root(add(variance, encode(FLOAT32, EPSILON)))
    inverse = unit.divide(encode(FLOAT32, 1.0), root)
    a = mul(gamma[0], inverse)
    b = sub(beta[0], mul(mean, a))
    y = [unit.round(fmt, add(mul(value, a), b)) for value in widened[0]]
    s1 = total(widened[1])
    s2 = mul(total([mul(g, d) for g, d in zip(widened[1], deviation, strict=True)]), inverse)
    sign = np.uint32(1 << 31)
    c1 = mul(mul(a, inverse), mul(s2, reciprocal)) ^ sign
    c0 = add(mul(a, mul(s1, reciprocal)), mul(mean, c1)) ^ sign
    dx = [
        unit.round(fmt, add(mul(g, a), add(mul(value, c1), c0)))
        for value, g in zip(*widened, strict=True)
    ]
    unbiased = mul(variance, encode(FLOAT32, 18 / 17))
    rate = encode(FLOAT32, MOMENTUM)
    running = [
        add(old[0], mul(rate, sub(new, old[0])))
        for old, new in ((running_mean, mean), (running_variance, unbiased))
    ]
    golden = run(fmt, x, dy, gamma, beta, running_mean, running_variance)
    expected = {
        "c1": [c1],
        "c0": [c0],
        "y": y,
        "dx": dx,
        "dgamma": [s2],
        "dbeta": [s1],
        "running mean": running[:1],
        "running variance": running[1:],
    }
    for key, values in expected.items():
        actual = [hex(int(value)) for value in golden[key][0].ravel()]
        assert actual == [hex(int(value)) for value in values], key


def test_sum_over_a_map():
    """The images' sums are added up in order; the only one keeps its sign."""
    unit, tiny = VectorUnit(), encode(FLOAT32, [2.0**-126 * 1.5, 2.0**-126 * -1.75])
    # Eight partial sums that underflow, from below, to -0.
    lost = np.repeat(tiny, 8)[:, np.newaxis]
    assert unit.sum_map(lost[np.newaxis]) == 1 << 31
    assert unit.sum_map(np.stack([lost, lost])) == 0
    values = encode(FLOAT32, [[1.0, 2.0**-24, 2.0**-24], [-1.0, 0.0, 0.0]])[..., np.newaxis]
    assert decode(FLOAT32, unit.sum_map(values))[0] == 0.0
    assert decode(FLOAT32, unit.sum(values.reshape(-1, 1)))[0] == 2.0**-24


def test_special_values():
    """A constant channel, one with an infinity, one with NaN; the others are not touched."""
    x = encode(BF16, np.array([[3.0, 1.0, 1.0, 1.0]] * 4 + [[3.0, 2.0, 5.0, 2.0]]))
    x[1, 1], x[2, 2] = BF16.infinity, BF16.nan
    x = x.reshape(5, 1, 1, 4)
    statistics = batch_statistics(BF16, x)
    assert decode(FLOAT32, statistics.mean)[0] == 3.0
    assert decode(FLOAT32, statistics.variance)[0] == 0.0
    assert decode(FLOAT32, statistics.mean)[1] == np.inf
    assert np.isnan(decode(FLOAT32, statistics.variance)[1:3]).all()
    one, zero = encode(FLOAT32, np.ones(4)), encode(FLOAT32, np.zeros(4))
    (inverse, a, b), _ = scale_and_shift(
        statistics.mean, statistics.variance, one, zero, epsilon=EPSILON
    )
    y = decode(BF16, normalize(BF16, x, a, b)[0]).reshape(5, 4)
    assert (np.abs(y[:, 0]) < 1e-3).all()
    assert np.isnan(y[:, 1:3]).all()
    assert np.isfinite(y[:, 3]).all()
    gradients = normalize_backward(BF16, x, x, mean=statistics.mean, inverse=inverse, a=a)
    assert decode(FLOAT32, gradients.shift)[0] == 15.0
    assert np.isnan(decode(FLOAT32, gradients.shift)[2])
    with pytest.raises(ValueError, match="more than one pixel"):
        update_running(zero, one, batch_statistics(BF16, x[:1]), momentum=MOMENTUM)
    with pytest.raises(ValueError, match="must have one shape"):
        normalize_backward(BF16, x, x[:1], mean=zero, inverse=one, a=one)


def test_a_gradient_of_a_sample(rng):
    """Sums in the order of the rows, and of other images what is left without dy: rows of zeros
    make no difference but for the sign of a zero and the order of the sums."""
    x, dy = (encode(BF16, rng.normal(size=(5, 3, 2, 4))) for _ in range(2))
    numbers = {name: encode(FLOAT32, rng.normal(size=4)) for name in ("mean", "inverse", "a")}
    dy[[0, 2, 4]] = 0
    whole = normalize_backward(BF16, x, dy, **numbers)
    found = normalize_backward(BF16, x, dy, **numbers, rows=[1, 3, 4])
    for name in ("scale", "shift"):
        np.testing.assert_allclose(
            decode(FLOAT32, getattr(found, name)),
            decode(FLOAT32, getattr(whole, name)),
            rtol=1e-5,
            atol=1e-5,
        )
    np.testing.assert_allclose(
        decode(BF16, found.input), decode(BF16, whole.input), rtol=2**-7, atol=1e-5
    )
