"""Reorganisation, predictor and gate against plain definitions.

Covers: golden/prediction/config.py, algorithms/adagp/gate.py, algorithms/adagp/reorganize.py.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.adagp.gate import Gate
from algorithms.adagp.reorganize import reorganize
from golden.prediction.arithmetic import pool_windows
from golden.prediction.config import PredictorConfig
from golden.prediction.float_predictor import Predictor

SIZES = (9, 20, 20, 33)


def tensor(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def state_of(predictor):
    """Weights and the optimizer's momentum, flat, by parameter."""
    slots = [predictor.optimizer.state[p].get("momentum_buffer") for p in predictor.parameters()]
    return [p.detach().clone() for p in predictor.parameters()], [
        None if slot is None else slot.clone() for slot in slots
    ]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (8, [(0, 2), (2, 4), (4, 6), (6, 8)]),
        (7, [(0, 2), (1, 4), (3, 6), (5, 7)]),
        (2, [(0, 1), (0, 1), (1, 2), (1, 2)]),
        (1, [(0, 1)] * 4),
    ],
)
def test_pool_windows(size, expected):
    assert pool_windows(size, 4) == expected


@pytest.mark.parametrize("shape", [(3, 5, 8, 8), (2, 4, 7, 11), (4, 3, 2, 3), (6, 2, 1, 1)])
@pytest.mark.parametrize("map_size", [1, 3, 4])
def test_reorganize(rng, shape, map_size):
    """Float64 sums, one after the other. Bound: B + 2 + window roundings of at most max |y - b|."""
    outputs, bias = tensor(rng, *shape), tensor(rng, shape[1])
    outputs.requires_grad_()
    result = reorganize(outputs, bias=bias, map_size=map_size)
    assert result.shape == (shape[1], 1, map_size, map_size) and not result.requires_grad
    values = outputs.detach().double().numpy() - bias.double().numpy()[:, None, None]
    largest = np.abs(outputs.detach().numpy()).max() + np.abs(bias.numpy()).max()
    bound = 2**-24 * largest * (shape[0] + 2 + shape[2] * shape[3] + 2)
    for o in range(shape[1]):
        for i, rows in enumerate(pool_windows(shape[2], map_size)):
            for j, columns in enumerate(pool_windows(shape[3], map_size)):
                expected = values[:, o, slice(*rows), slice(*columns)].mean()
                got = result[o, 0, i, j].item()
                assert abs(got - expected) <= bound, (o, i, j, got, expected)


def test_reorganize_without_bias(rng):
    outputs = tensor(rng, 2, 3, 4, 4)
    zero = reorganize(outputs, bias=torch.zeros(3), map_size=4)
    assert torch.equal(reorganize(outputs, bias=None, map_size=4), zero)


@pytest.mark.parametrize("size", sorted(set(SIZES)))
def test_predictor_is_two_torch_layers_masked(rng, size, seed):
    config = PredictorConfig(channels=3, map_size=5, zero_start=False, seed=seed)
    predictor = Predictor(SIZES, config)
    assert [len(part) for part in predictor.weights] == [9, 11, 13]
    torch.manual_seed(seed)
    convolution, full = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(3 * 25, 33)
    maps = tensor(rng, 7, 1, 5, 5)
    expected = full(torch.relu(convolution(maps)).flatten(1))[:, :size]
    result = predictor(maps, size)
    assert result.shape == (7, size)
    # Two float32 sums of 9 and 75 products in any order, of numbers below 8.
    assert torch.allclose(result, expected, rtol=0, atol=2**-24 * 8 * (9 + 75) * 2)


def test_zero_start_predicts_nothing(rng):
    maps = tensor(rng, 4, 1, 4, 4)
    assert not Predictor(SIZES, PredictorConfig())(maps, 20).any()
    assert Predictor(SIZES, PredictorConfig(zero_start=False))(maps, 20).all()


def test_initial_weights_leave_no_trace(seed):
    state = torch.get_rng_state()
    Predictor(SIZES, PredictorConfig(seed=seed))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_only_rows_in_use_learn(rng, optimizer):
    """A step on a small layer moves neither the other rows nor their momentum."""
    predictor = Predictor(SIZES, PredictorConfig(optimizer=optimizer))
    maps = tensor(rng, 6, 1, 4, 4)
    for _ in range(2):
        predictor.learn(maps, tensor(rng, 6, 33))
    parts = (*predictor.weights, *predictor.biases)
    before = [part.detach().clone() for part in parts]
    slots = [
        {key: value.clone() for key, value in predictor.optimizer.state[part].items()}
        for part in parts
    ]
    predictor.learn(maps, tensor(rng, 6, 9))
    for number, part in enumerate(parts):
        moved = number % 3 == 0
        assert torch.equal(part, before[number]) != moved, number
        for key, value in slots[number].items():
            assert torch.equal(predictor.optimizer.state[part][key], value) != moved, (number, key)


def test_learning_is_sgd_with_momentum_on_the_mean_squared_error(rng):
    """The weights of the fully connected layer by the formula, twice."""
    predictor = Predictor((5,), PredictorConfig(learning_rate=0.2, momentum=0.5))
    maps, target = tensor(rng, 3, 1, 4, 4), tensor(rng, 3, 5)
    velocity = torch.zeros(5, 64)
    for _ in range(2):
        old = predictor.weights[0].detach().clone()
        hidden = torch.relu(predictor.convolution(maps)).flatten(1).detach()
        error = predictor(maps, 5).detach() - target
        velocity = 0.5 * velocity + (2 / 15) * error.T @ hidden
        assert predictor.learn(maps, target) == pytest.approx(torch.mean(error**2).item())
        # A dozen roundings of numbers below 4.
        assert torch.allclose(predictor.weights[0], old - 0.2 * velocity, rtol=0, atol=2**-18)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["maps", "target"])
def test_non_finite_numbers_teach_nothing(rng, bad, place):
    predictor = Predictor((5,), PredictorConfig())
    values = {"maps": tensor(rng, 3, 1, 4, 4), "target": tensor(rng, 3, 5)}
    predictor.learn(values["maps"], values["target"])
    before = state_of(predictor)
    values[place].view(-1)[7] = bad
    predictor.learn(values["maps"], values["target"])
    for old, new in zip(before, state_of(predictor)):
        assert all(torch.equal(a, b) for a, b in zip(old, new))


def test_gate_of_perfect_predictions(rng):
    gate = Gate(0.9)
    assert gate.value == 0
    for factor, expected in ((1.0, 1.0), (1.0, 1.0)):
        gradient = tensor(rng, 4, 9)
        gate.observe(factor * gradient, gradient)
        assert gate.value == expected


@pytest.mark.parametrize(("factor", "expected"), [(2.0, 0.5), (0.5, 1.0), (-1.0, 0.0), (0.0, 0.0)])
def test_gate_scales(rng, factor, expected):
    """Twice too large: halved. Twice too small: not enlarged. Turned round: shut. Zero: shut."""
    gate, gradient = Gate(0.9), tensor(rng, 4, 9)
    gate.observe(factor * gradient, gradient)
    assert gate.value == expected


def test_gate_of_noise_is_small(rng):
    """⟨p, g⟩ / ⟨p, p⟩ has a standard deviation of about 1/√m; eight of them are never reached."""
    gate = Gate(0.9)
    for _ in range(50):
        gate.observe(tensor(rng, 100, 100), tensor(rng, 100, 100))
    assert gate.value <= 8 / 100


def test_gate_forgets():
    gate, ones = Gate(0.5), torch.ones(2, 3)
    gate.observe(ones, ones)
    gate.observe(ones, -ones / 2)
    # Products 6 and -3, squares 6 and 6: 0.25 * 6 - 0.5 * 3 = 0 over 4.5.
    assert (gate.product, gate.square, gate.value) == (0.0, 4.5, 0.0)
    gate.observe(ones, ones)
    assert (gate.product, gate.square) == (3.0, 5.25) and gate.value == 3 / 5.25


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_gate_ignores_gradients_that_are_not_finite(bad):
    gate = Gate(0.9)
    gate.observe(torch.ones(3), torch.ones(3) / 2)
    before = gate.product, gate.square
    gate.observe(torch.ones(3), torch.tensor([1, bad, 1]))
    assert (gate.product, gate.square) == before and gate.value == 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e25])
def test_gate_shuts_on_predictions_that_are_not_finite(bad):
    """Also on those whose square is not: a predictor on its way to infinity does no harm."""
    gate, ones = Gate(0.9), torch.ones(3)
    gate.observe(ones, ones)
    gate.observe(torch.tensor([1, bad, 1]), ones)
    assert (gate.product, gate.square, gate.value) == (0, 0, 0)
    gate.observe(ones, ones)
    assert gate.value == 1


def test_messages():
    with pytest.raises(ValueError) as error:
        PredictorConfig(source="x", head="y", optimizer="z", channels=0, map_size=1.5, running=1)
    assert str(error.value) == (
        "PredictorConfig: source must be one of predictor, mean, last, coast, history, not 'x'; "
        "head must be one of exact, predicted, held, not 'y'; optimizer must be one of sgd, adam, "
        "not 'z'; "
        "channels must be an integer of at least 1, not 0; map_size must be an integer of at least "
        "1, not 1.5; running must be at least 0 and below 1, not 1"
    )
    with pytest.raises(ValueError, match="learning_rate must be above 0, not 0"):
        PredictorConfig(learning_rate=0)
    with pytest.raises(ValueError, match="sizes must be positive and not empty, not \\[\\]"):
        Predictor((), PredictorConfig())
    with pytest.raises(ValueError, match="size must be one of \\(9, 20, 33\\), not 10"):
        Predictor(SIZES, PredictorConfig())(torch.zeros(1, 1, 4, 4), 10)
