"""Multiplications of a batch, counted by hand for a small network."""

import pytest

from algorithms.comparison.costs import Costs
from algorithms.vcas.trainer import Shares
from golden.prediction.config import PredictorConfig


@pytest.fixture
def costs():
    return Costs.of("vgg", (1, 8, 8), 10)


#: Products of every layer for an image: pixels × inputs × window × outputs.
LAYERS = [
    64 * 1 * 9 * 16, 64 * 16 * 9 * 16, 16 * 16 * 9 * 32, 16 * 32 * 9 * 32, 128 * 32, 32 * 10,
]  # fmt: skip


def test_passes(costs):
    assert costs.forward(3) == 3 * sum(LAYERS)
    # Gradients of all weights, and of all inputs but the images.
    assert costs.backward(2) == 2 * (2 * sum(LAYERS) - LAYERS[0])
    assert costs.batch(2) == costs.forward(2) + costs.backward(2)
    assert costs.head(4, 3) == 4 * 3 * 2 * LAYERS[-1]
    assert costs.head_gradient(4) == 4 * LAYERS[-1]


def test_shares(costs):
    shares = {
        layer.name: Shares(input_gradient=0.5, weight_gradient=0.25) for layer in costs.layers
    }
    assert costs.backward(8, shares) == 8 * (0.75 * sum(LAYERS) - 0.5 * LAYERS[0])


def test_the_predictor_counts_only_where_it_predicts(costs):
    config = PredictorConfig()
    convolution = 9 * config.channels * config.map_size**2
    outputs = [(16, 9), (16, 144), (32, 144), (32, 288), (32, 128)]
    expected = sum(o * (convolution + config.features * n) for o, n in outputs)
    assert costs.predictor(config) == expected
    assert costs.predictor(PredictorConfig(source="mean", gate=False)) == 0
