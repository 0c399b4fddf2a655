"""Layer normalisation against torch.autograd in float64, within running error analysis.

The bound (:mod:`golden.training.norm_bounds`) follows the operations one by one; what is summed
over channels is split in two operands first.

Covers: golden/training/norm_bounds.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.layer_norm import layer_norm, layer_norm_backward, split
from golden.training.norm_bounds import layer_norm_bounds

EPSILON = 1e-5


def random_case(rng, fmt, shape):
    """x and dy with pixels of different mean and spread, gamma and beta."""
    spread = 2.0 ** rng.integers(-2, 3, (*shape[:3], 1))
    middle = rng.standard_normal((*shape[:3], 1)) * 2
    x = encode(fmt, rng.standard_normal(shape) * spread + middle)
    dy = encode(fmt, rng.standard_normal(shape))
    gamma, beta = (encode(FLOAT32, rng.standard_normal(shape[3])) for _ in range(2))
    return x, dy, gamma, beta


def golden(fmt, x, dy, gamma, beta, rows):
    """Real output and gradients of the input, gamma and beta."""
    forward = layer_norm(fmt, x, gamma, beta, epsilon=EPSILON, rows=rows)
    backward = layer_norm_backward(
        fmt, x, dy, gamma, mean=forward.mean, inverse=forward.inverse, rows=rows
    )
    wide = (decode(FLOAT32, part) for part in (backward.scale, backward.shift))
    return decode(fmt, forward.output), decode(fmt, backward.input), *wide


def reference(fmt, x, dy, gamma, beta):
    """The same in float64 by torch."""
    leaves = [torch.from_numpy(decode(fmt, x))]
    leaves += [torch.from_numpy(decode(FLOAT32, part)) for part in (gamma, beta)]
    for leaf in leaves:
        leaf.requires_grad_()
    y = functional.layer_norm(leaves[0], leaves[0].shape[-1:], *leaves[1:], eps=EPSILON)
    found = torch.autograd.grad(y, leaves, torch.from_numpy(decode(fmt, dy)))
    return [part.detach().numpy() for part in (y, *found)]


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=str)
@pytest.mark.parametrize(
    ("shape", "rows"),
    [((1, 2, 1, 1), 4), ((2, 7, 1, 5), 4), ((3, 4, 1, 12), 4), ((2, 3, 2, 33), 5)],
)
def test_every_result_within_its_bound(fmt, shape, rows, rng):
    case = random_case(rng, fmt, shape)
    x, dy, gamma, beta = case
    exact = (Estimate.bits(fmt, x), Estimate.bits(fmt, dy))
    exact += tuple(Estimate.bits(FLOAT32, part) for part in (gamma, beta))
    errors = layer_norm_bounds(fmt, *exact, epsilon=EPSILON, rows=rows)
    found, expected = golden(fmt, *case, rows), reference(fmt, *case)
    for index, (actual, wanted, error) in enumerate(zip(found, expected, errors, strict=True)):
        estimate = Estimate(wanted, np.broadcast_to(error, wanted.shape))
        bound = estimate.round(fmt).error if index < 2 else error
        ratio, place = worst_excess(actual, wanted, bound)
        assert ratio <= 1, f"result {index} at {place}: {actual[place]}, not {wanted[place]}"


def test_the_bounds_notice_a_mutation(rng):
    """A mean that leaves out a channel is out of bound."""
    case = random_case(rng, BF16, (2, 3, 1, 8))
    x, dy, gamma, beta = case
    exact = (Estimate.bits(BF16, x), Estimate.bits(BF16, dy))
    exact += tuple(Estimate.bits(FLOAT32, part) for part in (gamma, beta))
    error = layer_norm_bounds(BF16, *exact, epsilon=EPSILON, rows=4)[0]
    wrong = x.copy()
    wrong[..., -1] = 0
    found = golden(BF16, wrong, dy, gamma, beta, 4)[0][..., :-1]
    wanted = reference(BF16, *case)[0]
    bound = Estimate(wanted, error).round(BF16).error[..., :-1]
    assert worst_excess(found, wanted[..., :-1], bound)[0] > 1


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=str)
def test_two_parts(fmt, rng):
    """They are as good as twice the digits."""
    values = rng.uniform(1, 2, 1000).astype(np.float32)
    high, low = split(fmt, values.view(np.uint32), VectorUnit())
    error = np.abs(decode(fmt, high) + decode(fmt, low) - values)
    # The first is off by at most 2**-p, the second by 2**-p of that, or it is flushed to zero.
    assert 0 < error.max() <= max(2.0 ** -(2 * fmt.significand_bits), fmt.min_normal)
