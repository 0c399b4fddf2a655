"""Late gradients: each update is that of some steps before."""

import pytest
import torch

from algorithms.braking.delay import AccumulatedGradients, DelayedGradients, pipeline_delays


def updates(delay, steps=8):
    """What SGD with a rate of 1 subtracts in each step where step n's gradient is n + 1."""
    weight = torch.nn.Parameter(torch.zeros(()))
    late = DelayedGradients([weight], delay)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    found = []
    for number in range(steps):
        weight.grad = torch.tensor(float(number + 1))
        before = weight.item()
        late.exchange()
        optimizer.step()
        found.append(before - weight.item())
    return found


def test_every_gradient_comes_late():
    assert updates(0) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert updates(3) == [0, 0, 0, 1, 2, 3, 4, 5]


def test_stages_of_a_pipeline():
    parameters = [torch.nn.Parameter(torch.zeros(())) for _ in range(4)]
    delays = pipeline_delays([parameters[:2], parameters[2:3], parameters[3:]])
    assert [delays[parameter] for parameter in parameters] == [4, 4, 2, 0]
    late = DelayedGradients(parameters, delays)
    seen = []
    for number in range(6):
        for parameter in parameters:
            parameter.grad = torch.tensor(float(number))
        late.exchange()
        seen.append([None if p.grad is None else float(p.grad) for p in parameters])
    assert seen[1] == [None, None, None, 1.0]
    assert seen[5] == [1.0, 1.0, 3.0, 5.0]


def test_delay_below_zero():
    with pytest.raises(ValueError, match="delay must be at least 0, not -1"):
        DelayedGradients([torch.nn.Parameter(torch.zeros(1))], -1)


def test_accumulated_gradients():
    """The mean of each three; what has none in a batch counts as zero there."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    accumulated = AccumulatedGradients(parameters, 3)
    for start in (0.0, 30.0):
        for number in range(3):
            for parameter in parameters:
                parameter.grad = torch.full((2,), start + number)
            parameters[2].grad = None
            if number == 1:
                parameters[1].grad = None
            assert accumulated.add() == (number == 2)
        assert torch.allclose(parameters[0].grad, torch.full((2,), start + 1))
        assert torch.allclose(parameters[1].grad, torch.full((2,), (2 * start + 2) / 3))
        assert parameters[2].grad is None
    assert AccumulatedGradients(parameters, 1).add()
