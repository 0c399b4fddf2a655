"""Which layers are predicted, their maps, the measures of a guess; layers that see sequences."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from algorithms.adagp.layers import LayerResult, find_layers, measure
from algorithms.adagp.trainer import AdaGPTrainer, PredictorConfig, ScheduleConfig
from golden.prediction.schedule import Stage


def network():
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 1)), nn.ConvTranspose2d(4, 4, 2), nn.Conv2d(4, 6, 1, groups=2),
        nn.Flatten(), nn.Linear(6, 5), nn.Linear(5, 3),
    )  # fmt: skip


def find(model, **options):
    options = {"names": None, "running": 0.9, "separate_head": True} | options
    layers, head = find_layers(model, **options)
    return {layer.name: layer.shape for layer in layers}, head and head[0]


def test_found_layers():
    """Output channels, and input channels of a group times the kernel's size."""
    model = network()
    shapes = {"0": (4, 6), "2": (6, 2), "4": (5, 6)}
    assert find(model) == (shapes, "5")
    assert find(model, separate_head=False) == (shapes | {"5": (3, 5)}, None)
    assert find(model, names=("2", "4")) == ({"2": (6, 2)}, "4")
    assert find(model[:3]) == ({"0": (4, 6), "2": (6, 2)}, None)
    model[0].weight.requires_grad_(False)
    assert find(model) == ({"2": (6, 2), "4": (5, 6)}, "5")
    # A head of which a parameter is frozen is a head; one that is frozen is nothing.
    model[5].weight.requires_grad_(False)
    assert find(model) == ({"2": (6, 2), "4": (5, 6)}, "5")
    model[5].bias.requires_grad_(False)
    assert find(model) == ({"2": (6, 2), "4": (5, 6)}, None)
    assert find(model, names=("4",), separate_head=False) == ({"4": (5, 6)}, None)


def test_maps():
    layers, _ = find_layers(network(), names=None, running=0.9, separate_head=True)
    convolution, linear = layers[0], layers[2]
    values = torch.arange(24.0)
    assert convolution.maps(values.reshape(1, 4, 3, 2)).shape == (1, 4, 3, 2)
    assert convolution.maps(values.reshape(4, 3, 2)).shape == (1, 4, 3, 2)
    assert linear.maps(values.reshape(2, 3, 4)).shape == (6, 4, 1, 1)
    assert linear.maps(values[:5]).shape == (1, 5, 1, 1)


def test_measure_by_hand():
    """Errors 1, 1, 0, -2; relative 1/2, none where g = 0, 0 and 1/2; product 6 + 8 = 14."""
    guess, gradient = torch.tensor([[3.0, 1], [0, 2]]), torch.tensor([[2.0, 0], [0, 4]])
    result = measure(guess, gradient, 0.25)
    assert (result.mse, result.gate) == (1.5, 0.25)
    assert result.mape == pytest.approx(50)
    assert result.cosine == pytest.approx(14 / math.sqrt(14 * 20))


def test_measure_of_nothing():
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    assert measure(zero, zero, 0.0) == LayerResult(mse=0, mape=0, cosine=0, gate=0)
    assert measure(zero, one, 0.0) == LayerResult(mse=1, mape=100, cosine=0, gate=0)


def test_sequences(seed):
    """Linear layers of (batch, time, features): the batch is both; the head's gradient is exact."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    trainer = AdaGPTrainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        predictor=PredictorConfig(standardize=False),
        schedule=ScheduleConfig(warm_up=1, ladder=(Stage(gp=1, epochs=None),)),
        loss=lambda logits, labels: functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten()
        ),
    )
    inputs, labels = torch.randn(5, 7, 4), torch.randint(0, 3, (5, 7))
    trainer.step(inputs, labels)
    trainer.end_epoch()
    seen = []
    guess = trainer.source.guess
    trainer.source.guess = lambda layer, maps: seen.append(maps) or guess(layer, maps)
    parameters = tuple(model[2].parameters())
    gradients = torch.autograd.grad(trainer.loss(model(inputs), labels), parameters)
    expected = (inputs @ model[0].weight.detach().T).mean((0, 1))
    trainer.step(inputs, labels)
    # Sums of at most 35 · 4 products of numbers below 8.
    assert seen[0].shape == (6, 1, 4, 4)
    assert torch.allclose(seen[0], expected[:, None, None, None].expand(6, 1, 4, 4), atol=2**-14)
    for parameter, gradient in zip(parameters, gradients):
        assert torch.allclose(parameter.grad, gradient, rtol=0, atol=2**-18)
