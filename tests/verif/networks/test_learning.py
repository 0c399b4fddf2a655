"""A network that learns, on a device, in golden and in torch: losses, rates, messages."""

import numpy as np
import pytest
import torch
from torch import nn

from golden.layers.optimizer import SGD, Adam
from hw.config import make_config
from verif.networks.learning import learn, losses_table, one_cycle
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

CONFIG = make_config(variant="baseline", preset="tiny")
LOSSES = [nn.CrossEntropyLoss(ignore_index=-100), "mean_squared_error"]


class Two(nn.Module):
    """Two maps, of a map."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(2, 3, 2), nn.Conv2d(2, 2, 2)

    def forward(self, x):
        return self.one(x), self.other(x)


def batches_of(rng, count):
    """Of maps 2 × 3 × 2."""
    return [
        Batch(
            images=rng.standard_normal((2, 2, 3, 2)).astype(np.float32),
            targets=[
                np.array([[[1, 0]], [[2, -100]]]),
                rng.standard_normal((2, 1, 2, 2)).astype(np.float32),
            ],
            optimizer=SGD(learning_rate=0.1, momentum=0.9),
        )
        for _ in range(count)
    ]


def test_losses(rng, seed):
    """One batch in the functional model, four in golden and torch: a map for each loss."""
    torch.manual_seed(seed)
    lines = []
    own = batches_of(rng, 1) * 22
    learned = learn(Two(), CONFIG, (2, 2, 3), own, loss=LOSSES, on_device=1, report=lines.append)
    assert learned.result.passed and len(learned.result.losses) == 1
    assert len(learned.losses) == len(learned.torch_losses) == 22
    assert np.allclose(learned.losses, learned.torch_losses, rtol=0.05, atol=0.02)
    assert learned.losses[-1] < learned.losses[0]
    assert lines == [f"golden: 20 of 22 batches, loss {learned.losses[19]:.4f}"]
    table = losses_table(learned, 11)
    assert list(table.columns[0].cells) == ["11", "22"]
    assert list(table.columns[1].cells)[1] == f"{np.mean(learned.losses[11:]):.4f}"
    # What was learned is in both.
    with torch.no_grad():
        expected = learned.model(torch.from_numpy(np.moveaxis(own[0].images, 3, 1)))
    for part, other in zip(learned.golden.predict(own[0].images), expected, strict=True):
        assert np.allclose(part, other, atol=0.1)


def test_a_difference_is_found(rng, seed, monkeypatch):
    """A memory in which nothing has been done."""
    torch.manual_seed(seed)

    def wrong(run, seed):
        return run.result([bytes(run.memory())], [None])

    monkeypatch.setattr(TrainingRun, "interpret", wrong)
    learned = learn(Two(), CONFIG, (2, 2, 3), batches_of(rng, 1), loss=LOSSES, on_device=1)
    assert not learned.result.passed


def test_rates():
    rates = [own.learning_rate for own in one_cycle(Adam(learning_rate=0.5), 10)]
    assert rates[:3] == [0.25, 0.5, 0.5]
    assert np.allclose(np.diff(rates[2:]), -0.0625) and rates[-1] == pytest.approx(0.0625)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "board"}, "device must be one of none, emulator, rtl, not 'board'"),
        ({"on_device": 3}, "batches on the device must be from 1 to 2, not 3"),
    ],
)
def test_messages(options, message, rng):
    with pytest.raises(ValueError, match=message):
        learn(Two(), CONFIG, (2, 2, 3), batches_of(rng, 2), **options)
