"""Backward passes of a sample of images beside whole ones.

Covers: golden/training/step.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FLOAT32
from golden.layers import row_sampling
from golden.layers.optimizer import SGD
from golden.layers.row_sampling import RowSampling
from golden.training import sampled_backward
from golden.training.step import Training

IMAGES, DRAWS = 8, 20
RATIOS = {"0": 0.5, "3": 0.6}


def network():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 5, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


@pytest.fixture
def batch(rng):
    torch.manual_seed(1)
    return network(), rng.normal(size=(IMAGES, 5, 5, 2)), rng.integers(0, 3, IMAGES)


def training(model, **options):
    return Training(model, input_shape=(2, 5, 5), rows=4, columns=4,
                    optimizer=SGD(learning_rate=0.1, momentum=0.9), **options)  # fmt: skip


def gradients(own, images, labels, seed=0):
    start = own.state()
    own.sample_seed = seed
    result = own.step(images, labels)
    own.restore(start)
    found = {name: decode(FLOAT32, bits) for name, bits in result.parameter_gradients.items()}
    return found, result


def errors(batch):
    """By parameter the square of the distance of the mean of many draws from the whole gradient,
    as a multiple of what it is on the average for an unbiased one."""
    model, images, labels = batch
    whole, _ = gradients(training(model), images, labels)
    own = training(model, sampling=RowSampling(ratios=RATIOS))
    draws = [gradients(own, images, labels, seed)[0] for seed in range(DRAWS)]
    found = {}
    for name, exact in whole.items():
        each = np.array([draw[name] for draw in draws])
        variance = each.var(0, ddof=1).sum() / DRAWS
        distance = np.square(each.mean(0) - exact).sum()
        found[name] = distance / variance if variance else float(distance > 0)
    return found


def test_the_mean_is_the_whole_gradient(batch, monkeypatch):
    """Roundings add a hundredth of the deviation of a mean; without 1 / p there is no doubt."""
    found = errors(batch)
    assert found.pop("6.weight") == found.pop("6.bias") == 0.0  # the head is exact
    assert set(found) == {"0.weight", "1.weight", "1.bias", "3.weight", "3.bias"}
    assert max(found.values()) < 2.5, found
    one = encode(BF16, 1.0)

    def unscaled(fmt, codes, chosen):
        factors = np.where(chosen.factors != 0, one, chosen.factors.dtype.type(0))
        return row_sampling.gather_rows(fmt, codes, replace(chosen, factors=factors))

    monkeypatch.setattr(sampled_backward, "gather_rows", unscaled)
    found = errors(batch)
    assert min(found[name] for name in ("0.weight", "1.weight", "3.weight")) > 5, found


def test_all_images(batch):
    """From a ratio of 1 on it is the plain backward pass, bit for bit."""
    model, images, labels = batch
    whole, plain = gradients(training(model), images, labels)
    own = training(model, sampling=RowSampling(ratios={"0": 1, "3": 1.5}))
    found, result = gradients(own, images, labels)
    for name, exact in whole.items():
        np.testing.assert_array_equal(found[name], exact)
    for name, codes in plain.gradients.items():
        np.testing.assert_array_equal(result.gradients[name], codes)
    assert {name: chosen.kept for name, chosen in result.forward.samples.items()} == {
        "0": IMAGES, "3": IMAGES}  # fmt: skip


def test_images_that_are_left_out(batch):
    """Their gradient below the layer is zero; counts are filled up; another batch has others."""
    model, images, labels = batch
    own = training(model, sampling=RowSampling(ratios={"3": 0.4}, counts=(3, 8)))
    seen = set()
    for seed in range(6):
        _, result = gradients(own, images, labels, seed)
        chosen = result.forward.samples["3"]
        assert len(chosen.rows) in (3, 8)
        below = result.gradients["2"]  # of the ReLU, that is of the convolution's input
        kept = chosen.rows[: chosen.kept]
        assert below[kept].any() or not chosen.kept
        assert not np.delete(below, kept, 0).any()
        seen.add(tuple(kept))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("ratios", "message"),
    [({"6": 0.5}, "layer 6 cannot be sampled; convolutions that can: 0, 3"),
     ({"0": 0.0}, "layer 0: the ratio must be above 0, not 0.0")],
)  # fmt: skip
def test_messages(batch, ratios, message):
    with pytest.raises(ValueError, match=message):
        training(batch[0], sampling=RowSampling(ratios=ratios))


def test_counts_that_do_not_fit(batch):
    model, images, labels = batch
    own = training(model, sampling=RowSampling(ratios=RATIOS, counts=(4, 6)))
    with pytest.raises(ValueError, match=r"up to the batch of 8, not \(4, 6\)"):
        own.step(images, labels)
    with pytest.raises(ValueError, match="8 bits of exponent, not fp16"):
        training(model, sampling=RowSampling(ratios=RATIOS), operand_format="fp16")
