"""Normalisation over groups against torch.autograd in float64, within the bounds that its operands
give.

Covers: golden/training/norm_bounds.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.group_norm import group_norm, group_norm_backward
from golden.training.norm_bounds import group_norm_bounds

#: (N, H, W, C), groups.
CASES = [((2, 3, 5, 6), 3), ((1, 4, 3, 10), 1), ((3, 2, 2, 4), 4), ((2, 7, 1, 12), 2)]


def random_case(rng, fmt, shape):
    """x with another mean and spread in every channel, dy, and gamma and beta."""
    spread, mean = 2.0 ** rng.integers(-2, 3, shape[3]), rng.standard_normal(shape[3])
    x = encode(fmt, rng.standard_normal(shape) * spread + 3 * mean)
    gamma, beta = (encode(FLOAT32, rng.uniform(-2, 2, shape[3])) for _ in range(2))
    return x, encode(fmt, rng.standard_normal(shape)), gamma, beta


def golden(fmt, x, dy, gamma, beta, *, groups, epsilon, rows):
    """Real output and gradients of x, gamma and beta."""
    done = group_norm(fmt, x, gamma, beta, groups=groups, epsilon=epsilon, rows=rows)
    saved = {"mean": done.mean, "inverse": done.inverse, "a": done.a}
    found = group_norm_backward(fmt, x, dy, gamma, groups=groups, rows=rows, **saved)
    maps = [decode(fmt, part) for part in (done.output, found.input)]
    return [*maps, *(decode(FLOAT32, part) for part in (found.scale, found.shift))]


def reference(fmt, x, dy, gamma, beta, *, groups, epsilon, **_):
    """The same in float64 by torch."""
    x, dy = (torch.from_numpy(np.moveaxis(decode(fmt, part), 3, 1).copy()) for part in (x, dy))
    leaves = [x, *(torch.from_numpy(decode(FLOAT32, part)) for part in (gamma, beta))]
    for leaf in leaves:
        leaf.requires_grad_()
    y = functional.group_norm(x, groups, *leaves[1:], eps=epsilon)
    maps = [y, *torch.autograd.grad(y, leaves, dy)]
    maps = [part.detach().numpy() for part in maps]
    return [np.moveaxis(part, 1, 3) if part.ndim == 4 else part for part in maps]


def excess(fmt, found, expected, errors):
    """How many bounds each result is off at its worst place."""
    ratios = []
    for actual, wanted, error in zip(found, expected, errors, strict=True):
        bound = Estimate(wanted, error)
        bound = bound.round(fmt) if wanted.ndim == 4 else bound
        ratios.append(worst_excess(actual, wanted, bound.error)[0])
    return ratios


def bounds(fmt, x, dy, gamma, beta, **options):
    maps = (Estimate.bits(fmt, part) for part in (x, dy))
    return group_norm_bounds(
        fmt, *maps, Estimate.bits(FLOAT32, gamma), Estimate.bits(FLOAT32, beta), **options
    )


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize(("shape", "groups"), CASES)
def test_every_result_within_its_bound(shape, groups, fmt, rng):
    case = random_case(rng, fmt, shape)
    options = {"groups": groups, "epsilon": 1e-3, "rows": 5}
    found, expected = golden(fmt, *case, **options), reference(fmt, *case, **options)
    errors = bounds(fmt, *case, **options)
    assert max(excess(fmt, found, expected, errors)) <= 1
    # They say something: the output is known to about twice its rounding.
    assert (errors[0] < 2.0**-7 * (1 + np.abs(expected[0]))).all()


def test_the_bounds_notice_other_groups(rng):
    case = random_case(rng, BF16, (2, 3, 5, 6))
    options = {"groups": 3, "epsilon": 1e-3, "rows": 5}
    found, expected = golden(BF16, *case, **options), reference(BF16, *case, **options)
    wrong = golden(BF16, *case, **options | {"groups": 2})
    errors = bounds(BF16, *case, **options)
    assert max(excess(BF16, found, expected, errors)) <= 1
    assert min(excess(BF16, wrong, expected, errors)[:3]) > 1


def test_images_are_normalised_by_themselves(rng):
    x, _, gamma, beta = random_case(rng, BF16, (3, 2, 4, 6))
    options = {"groups": 2, "epsilon": 1e-5, "rows": 4}
    whole = group_norm(BF16, x, gamma, beta, **options)
    for number in range(3):
        own = group_norm(BF16, x[number : number + 1], gamma, beta, **options)
        assert np.array_equal(whole.output[number], own.output[0])
