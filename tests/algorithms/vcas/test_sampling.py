"""Probabilities of rows: their sum, their bound, and what a sample is worth on average."""

import numpy as np
import pytest
import torch

from algorithms.vcas.sampling import (
    keep_probabilities,
    sample,
    share_of_norm,
    weights_variance,
)


@pytest.mark.parametrize("kept", [0.3, 1.5, 5, 12.25, 19])
def test_probabilities_sum_to_the_rows_that_are_kept(kept, rng):
    norms = torch.from_numpy(rng.random(20) ** 4)
    found = keep_probabilities(norms, kept)
    assert float(found.sum()) == pytest.approx(kept, rel=1e-12)
    assert float(found.max()) <= 1
    # In proportion to the norms wherever it is not 1, which only the largest ones are.
    below = found < 1
    ratios = found[below] / norms[below]
    assert torch.allclose(ratios, ratios[0].expand_as(ratios), rtol=1e-12)
    if (~below).any():
        assert norms[~below].min() * ratios[0] >= 1 - 1e-12


def test_rows_of_zeros_are_never_kept():
    norms = torch.tensor([0.0, 2.0, 0.0, 1.0, 1.0])
    assert keep_probabilities(norms, 2.0).tolist() == [0, 1, 0, 0.5, 0.5]
    assert keep_probabilities(norms, 4.0).tolist() == [0, 1, 0, 1, 1]
    assert keep_probabilities(torch.zeros(3), 1.0).tolist() == [0, 0, 0]


def test_the_mean_of_samples_is_the_whole(rng, seed):
    """Within five standard errors, which the closed form of the variance gives."""
    torch.manual_seed(seed)
    rows = torch.from_numpy(rng.normal(size=(12, 3)) * rng.random((12, 1)) ** 2)
    norms = rows.norm(dim=1)
    probabilities = keep_probabilities(norms, 4.0)
    draws = 4000
    samples = torch.stack([sample(rows, probabilities)[0].sum(0) for _ in range(draws)])
    distance = float((samples.mean(0) - rows.sum(0)).square().sum())
    expected = weights_variance(norms, probabilities)
    assert distance < 5**2 * expected / draws
    measured = float(samples.var(0).sum())
    assert measured == pytest.approx(expected, rel=0.1)


def test_share_of_norm():
    norms = torch.tensor([1.0, 4.0, 3.0, 2.0])
    assert [share_of_norm(norms, s) for s in (0.0, 0.4, 0.41, 0.7, 0.91, 1.0)] == [
        0.25, 0.25, 0.5, 0.5, 1.0, 1.0,
    ]  # fmt: skip
    assert share_of_norm(torch.zeros(4), 0.5) == 1.0
    assert share_of_norm(torch.from_numpy(np.ones(8)), 0.5) == 0.5
