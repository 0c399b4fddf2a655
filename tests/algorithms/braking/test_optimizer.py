"""Braked gradients against the formula, number by number."""

import math

import pytest
import torch

from algorithms.braking.optimizer import BrakedSGD, brake


def test_brake_by_hand():
    gradient = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    velocity = torch.tensor([[6.0, 8.0], [-2.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    found = brake(gradient, velocity, 0.5)
    # The same direction halves a filter, the opposite one makes it half as large again.
    assert found.tolist() == [[1.5, 2.0], [1.5, 0.0], [1.0, 1.0], [0.0, 0.0]]


def test_filters_are_output_channels(rng):
    gradient, velocity = (torch.from_numpy(rng.normal(size=(5, 3, 2, 2))) for _ in range(2))
    found = brake(gradient, velocity, 0.7)
    for g, v, braked in zip(gradient, velocity, found, strict=True):
        cosine = float((g * v).sum()) / math.sqrt(float((g * g).sum()) * float((v * v).sum()))
        torch.testing.assert_close(braked, (1 - 0.7 * cosine) * g)


def test_optimizer(rng):
    """Two steps by hand; a bias is not braked."""
    weight, bias = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(2))
    optimizer = BrakedSGD([weight, bias], rho=1.0, lr=0.1, momentum=0.9)
    first, second = (torch.from_numpy(rng.normal(size=(2, 3))).float() for _ in range(2))
    weight.grad, bias.grad = first.clone(), torch.ones(2)
    optimizer.step()
    weight.grad, bias.grad = second.clone(), torch.ones(2)
    optimizer.step()
    velocity = 0.9 * first + brake(second, first, 1.0)
    torch.testing.assert_close(weight.data, -0.1 * (first + velocity))
    torch.testing.assert_close(bias.data, torch.full((2,), -0.1 * (1 + 1.9)))


def test_without_rho_it_is_sgd(seed):
    results = []
    for make in (torch.optim.SGD, lambda p, **o: BrakedSGD(p, rho=0.0, **o)):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 2)
        optimizer = make(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        results.append(model.weight.data)
    assert torch.equal(*results)


def test_wrong_arguments():
    parameters = [torch.nn.Parameter(torch.zeros(2, 2))]
    with pytest.raises(ValueError, match="rho must be at least 0, not -1"):
        BrakedSGD(parameters, rho=-1, lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="momentum must be above 0"):
        BrakedSGD(parameters, rho=1, lr=0.1)
