"""ADA-GP training bit for bit: whole batches against float64, and what each phase leaves alone.

:mod:`golden.prediction.check` derives the bounds; the order of operations, to the last bit, is in
the tests of :mod:`golden.prediction.arithmetic` and :mod:`golden.prediction.predictor`.
"""

import numpy as np
import pytest
import torch

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import constant
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD, Adam
from golden.prediction.check import PredictionCheck, float32_sgd
from golden.prediction.config import PredictorConfig
from golden.prediction.float_predictor import Predictor
from golden.prediction.schedule import Phase
from golden.training.check import complaints
from golden.training.step import Training
from tests.golden.conftest import (
    DECAY,
    MOMENTUM,
    PREDICTED_NETWORKS,
    RATE,
    assert_same,
    make_predicted,
)

pytestmark = pytest.mark.usefixtures("one_thread")
NAN = FLOAT32.nan


@pytest.mark.parametrize(
    ("name", "operand_format"),
    [*((name, "bf16") for name in PREDICTED_NETWORKS), ("residual", "fp16")],
)
def test_every_number_within_its_bound(name, operand_format, seed):
    training, batches, layers = make_predicted(name, seed, operand_format=operand_format)
    found = {key: (x.outputs, x.size, x.source) for key, x in training.layers.items()}
    assert found == layers
    for phase in (Phase.WARM_UP, Phase.BP, Phase.GP, Phase.BP, Phase.GP):
        before = training.state()
        result = training.step(*next(batches), phase)
        assert result.phase is phase and sorted(result.layers) == sorted(layers)
        assert not PredictionCheck(training, before, result).complaints
        assert not complaints(training, before, result)
        assert (result.loss is None) == (phase is Phase.GP and name == "no head")
    assert training.predictor_weights.any() and training.predictor_velocity.any()


@pytest.mark.parametrize("name", PREDICTED_NETWORKS)
def test_backpropagation_is_that_of_training(name, seed):
    training, batches, _ = make_predicted(name, seed)
    model, (shape, _, rows, _, loss), *_ = PREDICTED_NETWORKS[name]()
    plain = Training(
        model,
        input_shape=shape,
        optimizer=training.optimizer,
        rows=rows,
        columns=6,
        loss=loss,
    )
    plain.restore(training.state())
    for phase in (Phase.WARM_UP, Phase.BP):
        images, targets = next(batches)
        result, expected = training.step(images, targets, phase), plain.step(images, targets)
        state = training.state()
        for key, value in plain.state().items():
            assert_same(state[key], value, key)
        assert_same(result.gradients, expected.gradients, "gradients")
        assert_same(result.loss.value, expected.loss.value, "loss")


@pytest.mark.parametrize("name", PREDICTED_NETWORKS)
def test_phase_gp_moves_what_it_may(name, seed):
    """Weights of predicted layers by g, the head by its true gradient; others and V rest."""
    training, batches, layers = make_predicted(name, seed)
    training.step(*next(batches), Phase.BP)
    for statistics in training.gradient_statistics.values():
        statistics[7] = constant(0.5)  # so that no gate is shut
    images, targets = next(batches)
    before = training.state()
    forward = training.forward(training.encode_input(images))
    result = training.step(images, targets, Phase.GP)
    after = training.state()
    assert_same(result.forward.outputs, forward.outputs, "outputs")
    for key in ("predictor", "input_statistics", "gradient_statistics"):
        assert_same(after[key], before[key], key)
    training.restore(before)
    true = training.step(images, targets, Phase.BP)
    assert_same(after["running"], training.state()["running"], "running statistics")
    assert after["count"] == before["count"] + 1
    moved = {f"{layer}.weight" for layer in layers}
    if training.head is not None:
        head = training.head.name
        moved |= {f"{head}.weight", f"{head}.bias"}
        assert_same(result.loss.value, true.loss.value, "loss")
    assert set(result.parameter_gradients) == set(result.skipped) == moved
    for key, weights in before["weights"].items():
        velocity = before["slots"][key][0]
        if key in moved:
            gradient = result.parameter_gradients[key]
            if key.rpartition(".")[0] in layers:
                part = result.layers[key.rpartition(".")[0]]
                assert part.gradient.any()
                shape = training.layers[key.rpartition(".")[0]].kernel
                rows = part.gradient.reshape(*shape[2:], shape[1], shape[0])
                expected = np.moveaxis(rows, (0, 1), (2, 3)).swapaxes(0, 1)
                assert_same(gradient, expected.reshape(gradient.shape), f"gradient of {key}")
            else:
                assert_same(gradient, true.parameter_gradients[key], f"gradient of {key}")
            numbers = (decode(FLOAT32, x).astype(np.float32) for x in (weights, velocity, gradient))
            weights, velocity = (
                encode(FLOAT32, x) for x in float32_sgd(*numbers, RATE, MOMENTUM, DECAY)
            )
        assert_same(after["weights"][key], weights, key)
        assert_same(after["slots"][key][0], velocity, f"velocity of {key}")


def test_before_the_first_backpropagation_nothing_is_predicted(seed):
    training, batches, layers = make_predicted("residual", seed)
    result = training.step(*next(batches), Phase.GP)
    assert all(not result.layers[name].gradient.any() for name in layers)
    assert not any(result.skipped.values())


def test_a_broken_predictor_does_no_harm(seed):
    """NaN in V: the guard leaves all predicted weights as they are, phase after phase."""
    training, batches, layers = make_predicted("residual", seed)
    training.step(*next(batches), Phase.BP)
    state = training.state()
    state["predictor"]["weights"][:] = NAN
    training.restore(state)
    result = training.step(*next(batches), Phase.GP)
    for name in layers:
        key = f"{name}.weight"
        assert result.skipped[key] == 1
        assert_same(training.weights[key], state["weights"][key], key)
        assert_same(training.slots[key][0], state["slots"][key][0], key)
    assert result.skipped["head.weight"] == 0
    assert (training.weights["head.weight"] != state["weights"]["head.weight"]).any()
    twin = training.state()
    images, targets = next(batches)
    result = training.step(images, targets, Phase.BP)
    expected = {
        "input_statistics": 0,
        "gradient_statistics": 1,
        "predictor_weights": 1,
        "taps": 1,
    }
    assert all(part.rejected == expected for part in result.layers.values())
    assert_same(training.gradient_statistics, twin["gradient_statistics"], "statistics")
    assert_same(training.taps, twin["predictor"]["taps"], "taps")
    assert not any(result.skipped.values())
    assert all(np.isfinite(decode(FLOAT32, bits)).all() for bits in training.weights.values())


def test_without_the_guard_a_broken_predictor_breaks_the_model(seed):
    training, batches, _ = make_predicted("vectors", seed, guard=False)
    training.step(*next(batches), Phase.BP)
    state = training.state()
    state["predictor"]["weights"][:] = NAN
    training.restore(state)
    training.step(*next(batches), Phase.GP)
    assert np.isnan(decode(FLOAT32, training.weights["0.weight"])).all()
    training.step(*next(batches), Phase.BP)
    assert np.isnan(decode(FLOAT32, training.gradient_statistics["0"][4:])).any()
    assert np.isnan(decode(FLOAT32, training.taps)).any()


@pytest.mark.parametrize("phases", [(), (Phase.BP,)], ids=["first batch", "later"])
def test_a_batch_that_is_not_finite_teaches_nothing(phases, seed):
    """Statistics and what is derived from them stay, zeros before the first batch too."""
    training, batches, _ = make_predicted("depthwise", seed)
    for phase in phases:
        training.step(*next(batches), phase)
    before = training.state()
    images, targets = next(batches)
    images[0, 0, 0, 0] = np.inf
    result = training.step(images, targets, Phase.BP)
    assert all(set(part.rejected.values()) == {1} for part in result.layers.values())
    for key in ("predictor", "input_statistics", "gradient_statistics"):
        assert_same(training.state()[key], before[key], key)


@pytest.mark.parametrize("optimizer", [SGD(learning_rate=0.1, momentum=0.9), Adam()], ids=str)
def test_resumed_training_is_the_same(optimizer, seed):
    training, batches, _ = make_predicted("depthwise", seed, optimizer=optimizer)
    data = [next(batches) for _ in range(4)]
    training.step(*data[0], Phase.BP)
    training.step(*data[1], Phase.BP)
    state = training.state()
    other, _, _ = make_predicted("depthwise", seed + 1, optimizer=optimizer)
    other.restore(state)
    for batch, phase in zip(data[2:], (Phase.BP, Phase.GP), strict=True):
        training.step(*batch, phase)
        other.step(*batch, phase)
    assert (training.predictor_weights != state["predictor"]["weights"]).any()
    for key, value in training.state().items():
        if key != "count":
            assert_same(other.state()[key], value, key)
    assert_same(other.predictor_operands, training.predictor_operands, "operands")
    assert_same(other.toeplitz, training.toeplitz, "T")


def test_the_predictors_optimizer_may_change(seed):
    training, batches, _ = make_predicted("vectors", seed)
    training.step(*next(batches), Phase.BP)
    before = training.state()
    training.predictor_rate, training.predictor_momentum = 0.25, 0.5
    result = training.step(*next(batches), Phase.BP)
    assert not PredictionCheck(training, before, result).complaints
    training.predictor_rate = 0.125
    assert PredictionCheck(training, before, result).complaints


def test_only_named_layers_are_predicted(seed):
    training, batches, _ = make_predicted("residual", seed, predict=["second", "shortcut"])
    assert list(training.layers) == ["shortcut", "second"]
    training.step(*next(batches), Phase.BP)
    before = training.state()
    result = training.step(*next(batches), Phase.GP)
    assert set(result.parameter_gradients) == {
        *("shortcut.weight", "second.weight", "head.weight", "head.bias")
    }
    assert_same(training.weights["first.weight"], before["weights"]["first.weight"], "first")


def test_it_is_the_algorithm(seed):
    """Twelve batches of the same maps and gradients through the float predictor, in float64.

    :class:`golden.prediction.float_predictor.Predictor` with torch's autograd and SGD, and
    statistics by their formulas. Both learn from what the model did in golden, so they differ by
    bf16 only: each operand by up to 2 ** -9 of itself. No bound is derived for twelve steps; over
    seeds 1 to 12 the cosine between the outputs stays above 0.9999. At a rate of 0.1 the layer with
    n = 5 is unstable, and what bf16 leaves grows.
    """
    config = PredictorConfig(learning_rate=0.02)
    training, batches, layers = make_predicted("residual", seed, predictor=config)
    sizes = [n for _, n, _ in layers.values()]
    predictor = Predictor(sizes, config).double()
    moments = {name: np.zeros(3) for name in layers}
    squares = dict.fromkeys(layers, (0.0, 0.0))
    cosines = []
    for _ in range(12):
        result = training.step(*next(batches), Phase.BP)
        for name in reversed(layers):
            part = result.layers[name]
            a, g = (torch.tensor(decode(FLOAT32, x).T.copy()) for x in (part.cells, part.gradient))
            new = np.array([1.0, a.mean(), a.var(correction=0)])
            moments[name] = 0.9 * moments[name] + 0.1 * new
            _, mean, variance = moments[name] / moments[name][0]
            weight, square = squares[name]
            squares[name] = 0.9 * weight + 0.1, 0.9 * square + 0.1 * g.square().mean().item()
            scale = (squares[name][1] / squares[name][0]) ** 0.5
            maps = ((a - mean) / (variance + 1e-8) ** 0.5).reshape(len(a), 1, 4, 4)
            with torch.no_grad():
                out = predictor(maps, g.shape[1])
            predictor.learn(maps, g / scale)
            actual = torch.tensor(decode(FLOAT32, part.predictor.output).T.copy())
            if out.norm() > 1e-3:
                cosines.append(cosine(out, actual))
    assert len(cosines) > 40 and min(cosines) > 0.999, cosines
    for name in layers:
        values = decode(FLOAT32, training.gradient_statistics[name])
        assert values[4] == pytest.approx((squares[name][1] / squares[name][0]) ** 0.5, rel=0.01)


def cosine(a, b):
    return (torch.sum(a * b) / (a.norm() * b.norm())).item()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"predictor": PredictorConfig(head="held", gate=False)},
            "gate must be True, not False; head must be 'exact', not 'held'",
        ),
        ({"predict": ["7", "0", "5"]}, "predict: 5, 7 cannot .* the model has 0, 2, 8"),
        ({"predict": ["10"]}, "predict: 10 cannot be predicted"),
        ({"predict": []}, "no layer to predict"),
    ],
    ids=["configuration", "names", "head", "none"],
)
def test_messages(options, message, seed):
    with pytest.raises(ValueError, match=message):
        make_predicted("depthwise", seed, **options)
