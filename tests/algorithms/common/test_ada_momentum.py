"""AdaMomentum against its definition, in float64 by hand."""

import math

import pytest
import torch

from algorithms.common.ada_momentum import AdaMomentum


def test_steps(rng):
    values = torch.nn.Parameter(torch.from_numpy(rng.normal(size=3)))
    optimizer = AdaMomentum([values], lr=0.1, betas=(0.8, 0.9), epsilon=1e-6)
    expected, m, v = values.tolist(), [0.0] * 3, [0.0] * 3
    for step in range(1, 5):
        gradient = rng.normal(size=3)
        values.grad = torch.from_numpy(gradient)
        optimizer.step()
        for i, g in enumerate(gradient):
            m[i] = 0.8 * m[i] + 0.2 * g
            v[i] = 0.9 * v[i] + 0.1 * m[i] ** 2 + 1e-6
            expected[i] -= 0.1 * (m[i] / (1 - 0.8**step)) / math.sqrt(v[i] / (1 - 0.9**step))
        assert values.tolist() == pytest.approx(expected, rel=1e-12)


def test_no_gradient():
    values = torch.nn.Parameter(torch.ones(2))
    assert AdaMomentum([values], lr=0.1).step(lambda: 3.0) == 3.0
    assert values.tolist() == [1, 1]
