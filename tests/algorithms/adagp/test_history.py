"""Gradients guessed from their history."""

import copy

import pytest
import torch

from algorithms.adagp.history import History
from golden.prediction.config import PredictorConfig

SHAPES = ((4, 6), (3, 8))
CONFIG = PredictorConfig(source="history", learning_rate=0.05)


def taught(seed, steps, factor):
    """Of layer 0 each gradient is ``factor`` times the one before and noise, of layer 1 noise."""
    random = torch.Generator().manual_seed(seed)
    source = History(SHAPES, CONFIG)
    gradients = [torch.randn(shape, generator=random) for shape in SHAPES]
    for _ in range(steps):
        for layer, shape in enumerate(SHAPES):
            source.learn(layer, None, gradients[layer])
            noise = torch.randn(shape, generator=random)
            gradients[layer] = factor * gradients[layer] + 0.2 * noise if layer == 0 else noise
    return source, gradients


def test_it_begins_with_nothing(seed):
    source, (gradient, _) = taught(seed, 0, 1.0)
    assert source.guess(0, None) is None
    source.learn(0, None, 0 * gradient)
    assert source.guess(0, None) is None
    source.learn(0, None, gradient)
    source.learn(0, None, gradient)
    assert source.guess(1, None) is None
    assert source.guess(0, None).shape == SHAPES[0]


@pytest.mark.parametrize("factor", [0.95, -0.95])
def test_it_learns_how_gradients_follow_each_other(seed, factor):
    """Of one layer, by its embedding; of the other there is nothing to learn."""
    source, gradients = taught(seed, 300, factor)
    cosines = [
        float(torch.cosine_similarity(source.guess(n, None).flatten(), own.flatten(), dim=0))
        for n, own in enumerate(gradients)
    ]
    assert cosines[0] > 0.8
    assert source.guess(1, None).norm() < 0.6 * gradients[1].norm()


def test_what_is_not_finite_is_not_learnt(seed):
    source, gradients = taught(seed, 3, 0.9)
    before = source.guess(0, None)
    source.learn(0, None, gradients[0] * float("nan"))
    assert torch.equal(source.guess(0, None), before)


def test_state(seed):
    """It goes on with the same bits."""
    source, gradients = taught(seed, 5, 0.9)
    other = History(SHAPES, CONFIG)
    other.load_state_dict(copy.deepcopy(source.state_dict()))
    for each in (source, other):
        each.learn(0, None, gradients[0])
    assert torch.equal(source.guess(0, None), other.guess(0, None))
