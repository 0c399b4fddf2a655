"""Losses against torch in float64 within running error analysis, and the logarithm.

Covers: golden/commands/loss.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import Flags, decode, encode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.commands.loss import Loss, LossMachine
from golden.layers.loss import cross_entropy, logarithm, mean_squared_error
from golden.training import bounds as training_bounds

NAN, INF = FLOAT32.nan, FLOAT32.infinity
SHAPES = [(1, 1), (1, 2), (3, 10), (7, 5), (32, 10), (5, 33)]


def random_logits(rng, shape):
    return encode(FLOAT32, rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, (shape[0], 1)))


def out_of_bound(fmt, result, logits, labels):
    """Names of what is not within its bound of torch."""
    values = torch.from_numpy(decode(FLOAT32, logits)).requires_grad_()
    loss = functional.cross_entropy(values, torch.from_numpy(labels))
    loss.backward()
    value, gradient = training_bounds.cross_entropy(Estimate.bits(FLOAT32, logits), labels)
    pairs = {
        "value": (decode(FLOAT32, result.value), loss.item(), value),
        "gradient": (decode(fmt, result.gradient), values.grad.numpy(), gradient.round(fmt)),
    }
    return {
        name: (actual, expected)
        for name, (actual, expected, estimate) in pairs.items()
        if not worst_excess(actual, expected, estimate.error)[0] <= 1
    }


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_entropy_within_the_bound_of_torch(shape, fmt, rng):
    logits, labels = random_logits(rng, shape), rng.integers(0, shape[1], shape[0])
    wrong = out_of_bound(fmt, cross_entropy(fmt, logits, labels), logits, labels)
    assert not wrong, wrong


@pytest.mark.parametrize("shape", [(1,), (3, 1, 1, 7), (2, 3, 5, 2)], ids=str)
def test_mean_squared_error_within_the_bound_of_torch(shape, rng):
    y, target = (encode(FLOAT32, rng.standard_normal(shape)) for _ in range(2))
    result = mean_squared_error(BF16, y, target)
    values = torch.from_numpy(decode(FLOAT32, y)).requires_grad_()
    loss = functional.mse_loss(values, torch.from_numpy(decode(FLOAT32, target)))
    loss.backward()
    value, gradient = training_bounds.mean_squared_error(
        Estimate.bits(FLOAT32, y), Estimate.bits(FLOAT32, target)
    )
    ratio, _ = worst_excess(decode(FLOAT32, result.value), loss.item(), value.error)
    assert ratio <= 1, (decode(FLOAT32, result.value), loss.item())
    ratio, place = worst_excess(
        decode(BF16, result.gradient), values.grad.numpy(), gradient.round(BF16).error
    )
    assert ratio <= 1, f"gradient{list(place)}: {ratio:.3g} bounds away"


def test_the_bound_notices_mutations(rng):
    """The sum over the batch instead of the mean; the logarithm of the sum, but of another image;
    probabilities without the label's one."""
    logits, labels = random_logits(rng, (6, 10)), rng.integers(0, 10, 6)
    right = cross_entropy(BF16, logits, labels)
    assert not out_of_bound(BF16, right, logits, labels)
    half = cross_entropy(BF16, logits[:5], labels[:5])
    mutant = type(right)(value=half.value, gradient=right.gradient + 1, flags=0)
    assert set(out_of_bound(BF16, mutant, logits, labels)) == {"value", "gradient"}
    other = cross_entropy(BF16, logits, (labels + 1) % 10)
    assert set(out_of_bound(BF16, other, logits, labels)) == {"value", "gradient"}


def test_order_of_operations(rng):
    """Written out for one image, whose label is nearly certain, so that its gradient cancels."""
    classes, label = 11, 4
    values = rng.standard_normal((1, classes))
    values[0, label] += 14
    logits = encode(FLOAT32, values)
    result = cross_entropy(BF16, np.repeat(logits, 3, axis=0), np.array([label, 0, 1]))
    unit = VectorUnit()
    largest = logits[0, 0]
    for value in logits[0, 1:]:
        largest = max_f32(largest, value)
    d = [unit.subtract(value, largest) for value in logits[0]]
    e = [unit.exponential(value) for value in d]
    p = [np.uint32(0)] * 8
    for index, value in enumerate(e):
        p[index % 8] = unit.add(p[index % 8], value)
    pairs = [unit.add(p[index], p[index + 1]) for index in range(0, 8, 2)]
    total = unit.add(unit.add(pairs[0], pairs[1]), unit.add(pairs[2], pairs[3]))
    third = encode(FLOAT32, 1 / 3)
    for index in range(classes):
        share = unit.divide(e[index], total)
        assert result.probabilities[0, index] == share
        hot = encode(FLOAT32, float(index == label))
        gradient = unit.round(BF16, unit.multiply(unit.subtract(share, hot), third))
        assert result.gradient[0, index] == gradient


def test_logarithm(rng):
    """Within its bound of float64 over all exponents and around 1, where it loses most."""
    bits = np.concatenate(
        [
            rng.integers(0x00800000, INF, 50_000),
            rng.integers(0x3F000000, 0x40000000, 50_000),
            0x3F800000 + np.arange(-3000, 3000),
            0x3F3504F3 + np.arange(-5, 5),
        ]
    ).astype(np.uint32)
    exact = np.log(decode(FLOAT32, bits))
    ratio, place = worst_excess(
        decode(FLOAT32, logarithm(bits)), exact, 6 * 2.0**-24 * np.abs(exact)
    )
    assert ratio <= 1, f"ln({bits[place]:#x})"
    assert ratio > 0.25, "the bound is far too large"


def test_special_values():
    unit = VectorUnit()
    operands = np.array([0, 1 << 31, 1, INF, INF | 1 << 31, NAN, 0xBF800000], np.uint32)
    expected = [0xFF800000, 0xFF800000, 0xFF800000, INF, NAN, NAN, NAN]
    assert logarithm(operands, unit).tolist() == expected
    assert unit.flags & Flags.INVALID
    assert logarithm(encode(FLOAT32, 1.0)).tolist() == 0

    one = int(encode(FLOAT32, 1.0))
    logits = np.array([[one, NAN, 0], [INF, one, 0], [INF | 1 << 31, one, 0]], np.uint32)
    result = cross_entropy(BF16, logits, np.array([0, 0, 1]))
    shares = decode(FLOAT32, result.probabilities)
    assert np.isnan(shares[:2]).all()
    assert shares[2, 0] == 0 and abs(shares[2, 1] - 1 / (1 + np.exp(-1))) < 1e-6
    assert np.isnan(decode(BF16, result.gradient[:2])).all()
    assert np.isfinite(decode(BF16, result.gradient[2])).all()
    assert np.isnan(decode(FLOAT32, result.value))
    # Far apart: the loss is the distance, the gradient 1 and -1.
    far = encode(FLOAT32, np.array([[0.0, 200.0]]))
    result = cross_entropy(BF16, far, np.array([0]))
    assert decode(FLOAT32, result.value) == 200.0
    assert decode(BF16, result.gradient).tolist() == [[-1.0, 1.0]]


def test_correct_answers(rng):
    """As torch counts them; ties and zeros of both signs go to the first, NaN to the last."""
    logits, labels = random_logits(rng, (64, 3)), rng.integers(0, 3, 64)
    expected = torch.from_numpy(decode(FLOAT32, logits)).argmax(1).numpy() == labels
    assert 0 < expected.sum() < 64
    assert cross_entropy(BF16, logits, labels).correct == expected.sum()
    one, minus, none = 0x3F800000, 0xBF800000, 0x80000000
    rows = [
        ([one, one, 0], 0),
        ([minus, none, 0], 1),
        ([none, 0, minus], 0),
        ([0, 1, 2], 0),  # subnormal numbers are zeros
        ([INF, NAN, one], 1),
        ([NAN, INF, NAN], 2),
        ([INF | 1 << 31] * 3, 0),
    ]
    for logits, place in rows:
        for label in range(3):
            result = cross_entropy(BF16, np.array([logits], np.uint32), np.array([label]))
            assert result.correct == (label == place), (logits, label)


@pytest.mark.parametrize("loss", Loss)
def test_commands_of_a_batch(rng, loss):
    """A batch that is cut into commands, with the scales of the whole, is the whole batch."""
    x, y = random_logits(rng, (11, 5)), random_logits(rng, (11, 5))
    labels = rng.integers(0, 5, 11)
    if loss == Loss.CROSS_ENTROPY:
        targets, whole, scales = labels, cross_entropy(BF16, x, labels), (1 / 11, 1 / 11)
    else:
        targets, whole, scales = y, mean_squared_error(BF16, x, y), (2 / 55, 1 / 55)
    names = ("gradient_scale", "value_scale")
    command = {"loss": loss} | dict(zip(names, map(constant, scales), strict=True))
    machine = LossMachine(fmt=BF16)
    with pytest.raises(ValueError, match="begins with a command with first"):
        machine.run(command | {"first": 0, "last": 1}, x, targets)
    for _batch in range(2):
        gradients = []
        for begin, end in ((0, 4), (4, 5), (5, 11)):
            fields = command | {"first": begin == 0, "last": end == 11}
            gradient, value = machine.run(fields, x[begin:end], targets[begin:end])
            gradients.append(gradient)
            assert (value is None) == (end != 11)
        assert np.array_equal(np.concatenate(gradients), whole.gradient)
        assert value[0] == whole.value
        assert decode(FLOAT32, value[1]) == whole.correct
        assert machine.flags == whole.flags


def test_messages():
    logits = np.zeros((2, 3), np.uint32)
    with pytest.raises(ValueError, match="Labels must be from 0 to 2"):
        cross_entropy(BF16, logits, np.array([0, 3]))
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(3,\)"):
        cross_entropy(BF16, logits, np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="must be equal"):
        mean_squared_error(BF16, logits, logits[:1])
