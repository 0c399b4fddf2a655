"""Gradient sources, layer by layer: what they guess, learn and remember."""

import math

import numpy as np
import pytest
import torch

from algorithms.adagp.sources import EPSILON, Coast, Predicted, Remembered, make_source
from golden.prediction.config import PredictorConfig

SHAPES = ((5, 9), (3, 20), (4, 9))


def maps(rng, layer):
    return torch.from_numpy(rng.standard_normal((SHAPES[layer][0], 1, 4, 4)).astype(np.float32))


def gradient(rng, layer):
    return torch.from_numpy(rng.standard_normal(SHAPES[layer]).astype(np.float32))


@pytest.mark.parametrize(
    ("source", "kind"),
    [("predictor", Predicted), ("mean", Remembered), ("last", Remembered), ("coast", Coast)],
)
def test_make_source(source, kind):
    made = make_source(SHAPES, PredictorConfig(source=source, running=0.75))
    assert type(made) is kind
    if kind is Remembered:
        assert made.factor == (0.75 if source == "mean" else 0)


def test_statistics(rng):
    """Of each layer alone: set by its first batch, then nine tenths old and one tenth new."""
    source = make_source(SHAPES, PredictorConfig())
    expected = [None] * len(SHAPES)
    for layer in (0, 2, 0, 2, 2, 0):
        x, g = maps(rng, layer), gradient(rng, layer)
        source.learn(layer, x, g)
        new = np.array([x.double().mean(), x.double().var(correction=0), (g.double() ** 2).mean()])
        old = expected[layer]
        expected[layer] = new if old is None else 0.9 * old + 0.1 * new
        values = source.statistics[layer]
        # Float32 sums of at most 80 numbers.
        got = [values["mean"], values["variance"], values["square"]]
        assert got == pytest.approx(list(expected[layer]), rel=2**-16, abs=2**-18), layer
    assert source.statistics[1]["square"] is None


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_guess(rng, standardize, scale):
    """s · o of standardised maps, and the predictor learns from g / s with the same numbers."""
    config = PredictorConfig(standardize=standardize, scale=scale, zero_start=False)
    source, taught = make_source(SHAPES, config), []
    source.learn(1, maps(rng, 1), gradient(rng, 1))
    values = dict(source.statistics[1])
    x, g = maps(rng, 1), 3 * gradient(rng, 1)
    inputs, factor = x, 1.0
    if standardize:
        inputs = (x - values["mean"]) / math.sqrt(values["variance"] + EPSILON)
    if scale:
        factor = math.sqrt(values["square"])
    with torch.no_grad():
        assert torch.equal(source.guess(1, x), source.predictor(inputs, 20) * factor)
    source.predictor.learn = lambda *arguments: taught.append(arguments)
    source.learn(1, x, g)
    assert torch.equal(taught[0][0], inputs) and torch.equal(taught[0][1], g / factor)


def test_no_guess_before_a_gradient_that_is_not_zero(rng):
    source = make_source(SHAPES, PredictorConfig())
    x, g = maps(rng, 0), gradient(rng, 0)
    assert source.guess(0, x) is None
    source.predictor.learn = lambda *_: pytest.fail("there is no scale to learn with")
    source.learn(0, x, 0 * g)
    source.learn(0, x, g)  # the scale is still that of the batch before
    del source.predictor.learn
    assert source.guess(0, x).shape == (5, 9)
    source.learn(0, x, g)
    assert source.guess(0, x).any()


def test_constant_maps_are_no_fault(rng):
    source = make_source(SHAPES, PredictorConfig())
    for _ in range(2):
        source.learn(0, torch.ones(5, 1, 4, 4), gradient(rng, 0))
    assert source.statistics[0]["variance"] == 0
    assert torch.isfinite(source.guess(0, torch.ones(5, 1, 4, 4))).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["maps", "gradient"])
def test_what_is_not_finite_is_not_learnt(rng, bad, place):
    source = make_source(SHAPES, PredictorConfig())
    values = {"maps": maps(rng, 0), "gradient": gradient(rng, 0)}
    source.learn(0, **values)
    before = dict(source.statistics[0])
    guess = source.guess(0, values["maps"])
    x = values["maps"].clone()
    values[place].view(-1)[3] = bad
    source.learn(0, **values)
    assert source.statistics[0] == before and torch.equal(source.guess(0, x), guess)


def test_remembered(rng):
    last, mean = Remembered(SHAPES, 0.0), Remembered(SHAPES, 0.75)
    x, expected = maps(rng, 0), None
    assert mean.guess(0, x) is None
    for _ in range(3):
        g = gradient(rng, 0)
        kept = g.clone()
        for source in (last, mean):
            source.learn(0, x, g)
        expected = kept if expected is None else 0.75 * expected + 0.25 * kept
        g.zero_()  # torch may use its memory for the next gradient
        assert torch.equal(last.guess(0, x), kept) and torch.equal(mean.guess(0, x), expected)
    mean.learn(0, x, torch.full((5, 9), math.inf))
    assert torch.equal(mean.guess(0, x), expected)
    assert mean.guess(1, maps(rng, 1)) is None


def test_coast(rng):
    source = make_source(SHAPES, PredictorConfig(source="coast"))
    assert torch.equal(source.guess(1, maps(rng, 1)), torch.zeros(3, 20))


def test_milestones():
    source = make_source(SHAPES, PredictorConfig.paper(milestones=(1, 3)))
    rates = []
    for epoch in range(4):
        source.begin_epoch(epoch)
        rates.append(source.predictor.optimizer.param_groups[0]["lr"])
    assert rates == [1e-4, 1e-5, 1e-5, 1e-6]
