"""Updates against torch.optim in float64 within running error analysis; the guard."""

import numpy as np
import pytest
import torch

from algorithms.braking import optimizer as algorithms
from golden.arithmetic.dot_product import Flags, decode, encode
from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.optimizer import SGD, Adam, AdamW, BrakedSGD, update

STEPS = 4
SHAPE = (5, 3, 2)
CASES = {
    "plain": SGD(learning_rate=0.1),
    "momentum": SGD(learning_rate=0.05, momentum=0.9),
    "momentum and weight decay": SGD(learning_rate=0.3, momentum=0.9, weight_decay=5e-4),
    "nesterov": SGD(learning_rate=0.1, momentum=0.8, weight_decay=1e-3, nesterov=True),
    "braked": BrakedSGD(learning_rate=0.1, momentum=0.8, weight_decay=1e-3, braking=1.5),
    "adam": Adam(learning_rate=0.01),
    "adam with weight decay": Adam(betas=(0.8, 0.99), weight_decay=0.01, epsilon=1e-5),
    "adamw": AdamW(learning_rate=0.02, weight_decay=0.1),
}


def random_bits(rng, shape=SHAPE):
    """Of mixed magnitude, none near zero."""
    sign = rng.choice([-1.0, 1.0], shape)
    return encode(FLOAT32, sign * (0.1 + rng.random(shape)) * 2.0 ** rng.integers(-3, 3, shape))


def torch_optimizer(optimizer, weights):
    if isinstance(optimizer, BrakedSGD):
        return algorithms.BrakedSGD(
            [weights],
            rho=optimizer.braking,
            lr=optimizer.learning_rate,
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
        )
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            [weights],
            lr=optimizer.learning_rate,
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
            nesterov=optimizer.nesterov,
        )
    decoupled = isinstance(optimizer, AdamW)
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(
        [weights],
        lr=optimizer.learning_rate,
        betas=optimizer.betas,
        eps=optimizer.epsilon,
        weight_decay=optimizer.weight_decay,
    )


def estimated_braking(optimizer, velocity, gradient):
    """The braked gradient; as it is before the first step, when there is no velocity."""
    if not velocity.value.any():
        return gradient
    g, v = (
        Estimate(*(part.reshape(len(part), -1).T for part in (own.value, own.error)))
        for own in (gradient, velocity)
    )
    product, own, other = ((a * b).sum() for a, b in ((g, v), (g, g), (v, v)))
    cosine = product / (own.root() * other.root())
    factor = Estimate.exact(1.0) - cosine * Estimate.constant(optimizer.braking)
    shape = (-1, *[1] * (gradient.value.ndim - 1))
    return gradient * Estimate(factor.value.reshape(shape), factor.error.reshape(shape))


def estimated_step(optimizer, weights, slots, gradient):
    """The operations of the update on estimates."""
    constant = Estimate.constant
    rate, decay = constant(optimizer.learning_rate), constant(optimizer.weight_decay)
    if isinstance(optimizer, BrakedSGD):
        gradient = estimated_braking(optimizer, slots[0], gradient)
    if isinstance(optimizer, AdamW):
        weights = weights - weights * (rate * decay)
    else:
        gradient = gradient + decay * weights
    if isinstance(optimizer, SGD):
        momentum = constant(optimizer.momentum)
        velocity = momentum * slots[0] + gradient
        change = momentum * velocity + gradient if optimizer.nesterov else velocity
        return weights - rate * change, (velocity,)
    q1, q2 = (
        old * constant(beta) + constant(1 - beta)
        for old, beta in zip(slots[2:], optimizer.betas, strict=True)
    )
    root = q2.root()
    factor, epsilon = (root * rate) / q1, root * constant(optimizer.epsilon)
    first, second = (
        old + (new - old) * constant(1 - beta)
        for old, new, beta in zip(
            slots, (gradient, gradient * gradient), optimizer.betas, strict=False
        )
    )
    share = first / (second.root() + epsilon)
    return weights - share * factor, (first, second, q1, q2)


def worst_ratio(optimizer, rng, mutate=lambda gradient, weights: gradient):
    """Largest error over bound in a few updates, from the same gradients as torch."""
    bits = random_bits(rng)
    slots = optimizer.start(bits)
    estimate = Estimate.bits(FLOAT32, bits)
    # The corrections are two numbers.
    estimates = (Estimate.exact(np.zeros(SHAPE)),) * 2 + (Estimate.exact(0.0),) * 2
    weights = torch.from_numpy(decode(FLOAT32, bits)).requires_grad_()
    reference = torch_optimizer(optimizer, weights)
    worst = 0.0
    for _ in range(STEPS):
        gradient = random_bits(rng)
        weights.grad = torch.from_numpy(decode(FLOAT32, gradient))
        reference.step()
        result = update(optimizer, BF16, bits, slots, mutate(gradient, bits))
        bits, slots = result.weights, result.slots
        estimate, estimates = estimated_step(
            optimizer, estimate, estimates, Estimate.bits(FLOAT32, gradient)
        )
        assert np.isfinite(estimate.error).all()
        ratio, _ = worst_excess(decode(FLOAT32, bits), weights.detach().numpy(), estimate.error)
        worst = max(worst, ratio)
        assert (result.operands == encode(BF16, decode(FLOAT32, bits))).all()
        assert result.skipped == 0
    return worst


@pytest.mark.parametrize("name", CASES)
def test_within_the_bound_of_torch(name, rng):
    assert worst_ratio(CASES[name], rng) <= 1


def test_the_bound_notices_mutations(rng):
    """Weight decay twice; a gradient that was rounded to operands."""
    decayed = CASES["momentum and weight decay"]

    def twice(gradient, weights):
        return add_f32(gradient, mul_f32(encode(FLOAT32, 5e-4), weights)[0])[0]

    def rounded(gradient, _):
        return encode(FLOAT32, decode(BF16, encode(BF16, decode(FLOAT32, gradient))))

    assert worst_ratio(decayed, rng, twice) > 1
    assert worst_ratio(CASES["plain"], rng, rounded) > 1
    braked = CASES["braked"]
    assert worst_ratio(braked, rng, rounded) > 1
    # Adam's first update hardly depends on the gradient's magnitude, later ones do.
    assert worst_ratio(CASES["adam"], rng, rounded) > 1


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_sgd_operation_by_operation(fmt, rng):
    weights, velocity, gradient = (random_bits(rng) for _ in range(3))
    optimizer = SGD(learning_rate=0.3, momentum=0.9, weight_decay=5e-4)
    rate, momentum, decay = (encode(FLOAT32, value) for value in (0.3, 0.9, 5e-4))
    change, _ = add_f32(gradient, mul_f32(decay, weights)[0])
    new_velocity, _ = add_f32(mul_f32(momentum, velocity)[0], change)
    step = mul_f32(rate, new_velocity)[0] ^ np.uint32(1 << 31)
    expected, _ = add_f32(weights, step)
    result = update(optimizer, fmt, weights, [velocity], gradient)
    assert (result.weights == expected).all()
    assert (result.slots[0] == new_velocity).all()
    assert (result.operands == encode(fmt, decode(FLOAT32, expected))).all()
    assert result.flags == int(Flags.INEXACT)


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize("bad", [FLOAT32.infinity, FLOAT32.infinity | 1 << 31, FLOAT32.nan])
def test_guard(name, bad, rng):
    """A tile of two entries with one bad number stays; the others are as without it."""
    optimizer = CASES[name]
    weights, gradient = random_bits(rng), random_bits(rng)
    slots = [encode(FLOAT32, rng.random(slot.shape)) for slot in optimizer.start(weights)]
    clean = update(optimizer, BF16, weights, slots, gradient)
    gradient[2, 1, 1] = bad
    result = update(optimizer, BF16, weights, slots, gradient, tile=2)
    assert result.skipped == 1 and not result.flags & Flags.INVALID
    pairs = [(result.weights, weights, clean.weights)]
    pairs += zip(result.slots[:2], slots[:2], clean.slots[:2], strict=True)
    for new, old, other in pairs:
        assert (new[2:4] == old[2:4]).all()
        assert (new[:2] == other[:2]).all() and (new[4:] == other[4:]).all()
    assert (result.operands[2:4] == encode(BF16, decode(FLOAT32, weights[2:4]))).all()
    assert all((a == b).all() for a, b in zip(result.slots[2:], clean.slots[2:], strict=True))
    whole = update(optimizer, BF16, weights, slots, gradient)
    assert whole.skipped == 1 and (whole.weights == weights).all()
    assert all((a == b).all() for a, b in zip(whole.slots, slots, strict=True))
    through = update(optimizer, BF16, weights, slots, gradient, guard=False, tile=2)
    assert through.skipped == 0
    assert not np.isfinite(decode(FLOAT32, through.weights[2, 1, 1]))
    through.weights[2, 1, 1] = clean.weights[2, 1, 1]
    assert (through.weights == clean.weights).all()


@pytest.mark.parametrize("name", CASES)
def test_zeros_stay(name, rng):
    """Entries of dense weights between groups: +0 with a gradient of +0, update after update."""
    weights = random_bits(rng)
    slots = CASES[name].start(weights)
    weights[1] = 0
    for _ in range(STEPS):
        gradient = random_bits(rng)
        gradient[1] = 0
        result = update(CASES[name], BF16, weights, slots, gradient)
        weights, slots = result.weights, result.slots
        assert not any(values[1].any() for values in (weights, *slots[:2], result.operands))
        assert weights[0].all()


def test_messages(rng):
    weights = random_bits(rng)
    with pytest.raises(ValueError, match=r"a gradient of one shape and slots \[\(5, 3, 2\)\], not"):
        update(CASES["plain"], BF16, weights, [weights], weights[:1])
    with pytest.raises(
        ValueError, match="Slots must be first_moment, second_moment, corrections, not 1"
    ):
        update(CASES["adam"], BF16, weights, [weights], weights)
