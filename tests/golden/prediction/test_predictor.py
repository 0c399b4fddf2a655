"""The predictor to the last bit: its matrix of taps, K tiles of every product, its update."""

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FP16
from golden.layers.optimizer import SGD
from golden.prediction.check import float32_sgd
from golden.prediction.config import PredictorConfig
from golden.prediction.predictor import PredictorNetwork
from tests.golden.conftest import PlainFloat32, assert_same, bits_of, values_of

OPTIMIZER = SGD(learning_rate=0.1, momentum=0.9)


def make(rng, *, size=4, channels=3, largest=23, rows=5, fmt=BF16, seed=1):
    """A predictor whose fully connected layer is not zero."""
    config = PredictorConfig(map_size=size, channels=channels, seed=seed)
    network = PredictorNetwork(fmt, largest=largest, config=config, rows=rows)
    state = network.state()
    state["weights"] = bits_of(0.2 * rng.standard_normal(state["weights"].shape))
    state["velocity"] = bits_of(0.1 * rng.standard_normal(state["weights"].shape))
    state["taps_velocity"] = bits_of(0.1 * rng.standard_normal(state["taps"].shape))
    network.restore(state)
    return network


def standardized(rng, fmt, size, outputs):
    cells = encode(fmt, rng.standard_normal((size**2 + 1, outputs)))
    cells[-1] = encode(fmt, 1.0)
    return cells


def test_it_starts_as_torch_does(seed):
    config = PredictorConfig(map_size=5, channels=2, seed=seed)
    network = PredictorNetwork(BF16, largest=7, config=config, rows=4)
    torch.manual_seed(seed)
    kernel, bias = (p.detach().numpy() for p in nn.Conv2d(1, 2, 3, padding=1).parameters())
    for line in range(3):
        for column in range(3):
            expected = bits_of(kernel[:, 0, line, column])
            assert_same(network.taps[3 * line + column], expected, "taps")
    assert_same(network.taps[9], bits_of(bias), "bias")
    assert network.weights.shape == (7, 51) and not network.weights.any()
    assert not network.velocity.any() and not network.taps_velocity.any()


def expected_toeplitz(taps, size):
    """Cell by cell, from the definition of a 3 x 3 convolution with padding 1."""
    toeplitz = np.zeros((size**2 + 1, size**2, taps.shape[1]), np.float32)
    for i in range(size):
        for j in range(size):
            for tap in range(9):
                y, x = i + tap // 3 - 1, j + tap % 3 - 1
                if 0 <= y < size and 0 <= x < size:
                    toeplitz[y * size + x, i * size + j] = taps[tap]
    toeplitz[size**2] = taps[9]
    return toeplitz.reshape(size**2 + 1, -1)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_toeplitz(rng, size):
    network = make(rng, size=size)
    plain = PlainFloat32(BF16, 5)
    expected = expected_toeplitz(plain.operands(values_of(network.taps)), size)
    assert_same(network.toeplitz, encode(BF16, expected), "T")


#: size, channels, outputs, largest n, n, rows, format
CASES = [
    (4, 3, 6, 23, 23, 5, BF16),
    (4, 4, 1, 23, 9, 12, BF16),
    (1, 2, 7, 12, 5, 4, BF16),
    (2, 1, 5, 40, 1, 3, BF16),
    (3, 2, 9, 40, 40, 1, FP16),
]


@pytest.mark.parametrize(("size", "channels", "outputs", "largest", "n", "rows", "fmt"), CASES)
def test_forward(rng, size, channels, outputs, largest, n, rows, fmt):
    network = make(rng, size=size, channels=channels, largest=largest, rows=rows, fmt=fmt)
    cells, plain = standardized(rng, fmt, size, outputs), PlainFloat32(fmt, rows)
    done = network.forward(cells, n)
    sums = plain.product(decode(fmt, network.toeplitz).T, decode(fmt, cells))
    assert_same(done.hidden_sums, bits_of(sums), "Hw")
    hidden = np.append(plain.operands(np.where(sums > 0, sums, 0)), np.ones((1, outputs)), axis=0)
    assert_same(done.hidden, encode(fmt, hidden), "H")
    output = plain.product(plain.operands(values_of(network.weights))[:n], hidden)
    assert_same(done.output, bits_of(output), "out")


@pytest.mark.parametrize(("size", "channels", "outputs", "largest", "n", "rows", "fmt"), CASES)
def test_learn(rng, size, channels, outputs, largest, n, rows, fmt):
    """Gradients with the weights of before; rows from n on rest."""
    network = make(rng, size=size, channels=channels, largest=largest, rows=rows, fmt=fmt)
    cells, plain = standardized(rng, fmt, size, outputs), PlainFloat32(fmt, rows)
    error = encode(fmt, rng.standard_normal((n, outputs)))
    old, operands = network.state(), decode(fmt, network.operands)
    done = network.forward(cells, n)
    learned = network.learn(cells, done, error, OPTIMIZER, guard=True)
    hidden, features = decode(fmt, done.hidden), channels * size**2
    factor = np.float32(-2 / (n * outputs))
    e = decode(fmt, error)
    weights = plain.multiply(plain.product(e, hidden.T), factor)
    assert_same(learned.weights, bits_of(weights), "dV")
    sums = plain.product(operands[:n, :features].T, e)
    assert_same(learned.hidden_sums, bits_of(sums), "dHw")
    backward = plain.operands(np.where(hidden[:features] > 0, sums, 0))
    assert_same(learned.hidden, encode(fmt, backward), "dH")
    toeplitz = plain.multiply(plain.product(decode(fmt, cells), backward.T), factor)
    toeplitz = plain.operands(toeplitz)
    assert_same(learned.toeplitz, encode(fmt, toeplitz), "dT")
    grid = toeplitz.reshape(size**2 + 1, size, size, channels)
    taps = []
    for tap in range(9):
        down, right = tap // 3 - 1, tap % 3 - 1
        values = [
            grid[(i + down) * size + j + right, i, j]
            for i in range(size)
            for j in range(size)
            if 0 <= i + down < size and 0 <= j + right < size
        ]
        taps.append(plain.sum(np.array(values, np.float32).reshape(-1, channels)))
    taps.append(plain.sum(grid[size**2].reshape(-1, channels)))
    assert_same(learned.taps, bits_of(np.array(taps)), "dtaps")
    assert learned.rejected == {"predictor_weights": 0, "taps": 0}
    for name, speed, gradient, count in (
        ("weights", "velocity", weights, n),
        ("taps", "taps_velocity", np.array(taps), 10),
    ):
        values = (values_of(old[key][:count]) for key in (name, speed))
        new = float32_sgd(*values, gradient, 0.1, 0.9)
        for key, expected in zip((name, speed), new, strict=True):
            assert_same(getattr(network, key)[:count], bits_of(expected), key)
            assert_same(getattr(network, key)[count:], old[key][count:], f"rest of {key}")
    assert_same(network.operands, encode(fmt, values_of(network.weights)), "operands")
    expected = expected_toeplitz(plain.operands(values_of(network.taps)), size)
    assert_same(network.toeplitz, encode(fmt, expected), "T")


def test_nan_passes_relu(rng):
    network = make(rng)
    cells = standardized(rng, BF16, 4, 6)
    cells[:, 2] = BF16.nan
    done = network.forward(cells, 23)
    assert np.isnan(decode(BF16, done.hidden[:-1, 2])).all()
    assert np.isfinite(decode(BF16, np.delete(done.hidden, 2, axis=1))).all()
    learned = network.learn(cells, done, encode(BF16, np.ones((23, 6))), OPTIMIZER, guard=True)
    assert learned.hidden[:, 2].any()
    assert learned.rejected == {"predictor_weights": 1, "taps": 1}
    network.learn(cells, done, encode(BF16, np.ones((23, 6))), OPTIMIZER, guard=False)
    assert np.isnan(values_of(network.taps)).any() and np.isnan(values_of(network.weights)).any()


def test_guards_are_separate(rng):
    """Errors so large that only sums over output channels overflow; V is zero, so dtaps is."""
    network = make(rng)
    state = network.state()
    state["weights"][:] = 0
    network.restore(state)
    cells = standardized(rng, BF16, 4, 6)
    error = encode(BF16, np.full((23, 6), 3e38))
    learned = network.learn(cells, network.forward(cells, 23), error, OPTIMIZER, guard=True)
    assert learned.rejected == {"predictor_weights": 1, "taps": 0}
    assert_same(network.weights, state["weights"], "V")
    assert_same(network.velocity, state["velocity"], "velocity")
    assert (network.taps != state["taps"]).any()
    learned = network.learn(cells, network.forward(cells, 23), error, OPTIMIZER, guard=False)
    assert learned.rejected == {"predictor_weights": 0, "taps": 0}
    assert not np.isfinite(decode(BF16, network.operands)).all()


def test_it_learns(rng):
    """Forty steps bring the error of one target to less than half; one the wrong way adds to it."""
    network = make(rng)
    cells, target = standardized(rng, BF16, 4, 6), rng.standard_normal((23, 6))
    errors = []
    for _ in range(40):
        done = network.forward(cells, 23)
        error = target - values_of(done.output)
        errors.append(np.square(error).mean())
        network.learn(cells, done, encode(BF16, error), OPTIMIZER, guard=True)
    assert errors[-1] < 0.5 * errors[0], errors
