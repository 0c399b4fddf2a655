"""Training with VCAS: it learns, samples more as it learns, and counts what it does."""

import pytest
import torch
from torch import nn

from algorithms.vcas.controller import VCASConfig
from algorithms.vcas.trainer import VCASTrainer
from tests.algorithms.vcas.problem import problem


def test_it_learns_and_leaves_out_more_and_more(seed):
    model, inputs, labels = problem(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = VCASTrainer(model, optimizer, config=VCASConfig(every=5))
    shares, measured = [], 0
    for number in range(120):
        chosen = slice(number % 10 * 24, number % 10 * 24 + 24)
        result = trainer.step(inputs[chosen], labels[chosen])
        shares.append(result.backward_passes[0]["3"].weight_gradient)
        measured += result.forward_passes - 1
        expected = 1 + (2 + 4) * (number % 5 == 4)  # two exact passes, two samples of each
        assert len(result.backward_passes) == expected
    assert measured == 2 * 24
    assert result.loss < 0.3
    # 24 measurements: ν is 0.95^24 = 0.29 at most times, and s has come down.
    assert sum(shares[:5]) / 5 == 1.0
    assert sum(shares[-20:]) / 20 < 0.6
    assert trainer.controller.norm < 0.95
    assert trainer.layers[0].ratio <= trainer.layers[1].ratio
    assert result.backward_passes[0]["0"].input_gradient == 0


def test_a_measurement_changes_neither_weights_nor_statistics(seed):
    """Steps with measurements whose outcome is ignored are steps of backpropagation."""
    states = []
    for every in (1, 1000):
        model, inputs, labels = problem(seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = VCASTrainer(model, optimizer, config=VCASConfig(every=every))
        trainer.step(inputs[:24], labels[:24])
        trainer.controller.adjust = lambda *_: None
        for first in range(24, 120, 24):
            trainer.step(inputs[first : first + 24], labels[first : first + 24])
        states.append(model.state_dict())
    for name, values in states[0].items():
        if "num_batches" not in name:
            assert torch.equal(values, states[1][name]), name


def test_ratios_to_begin_with(seed):
    model, inputs, labels = problem(seed)
    config = VCASConfig(every=100, ratio=0.5, weights_ratio=0.25)
    trainer = VCASTrainer(model, torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    kept = []
    for first in range(0, 240, 24):
        shares = trainer.step(inputs[first : first + 24], labels[first : first + 24])
        kept.append(shares.backward_passes[0]["3"])
    assert sum(share.input_gradient for share in kept) / 10 == pytest.approx(0.5, abs=0.1)
    assert sum(share.weight_gradient for share in kept) / 10 == pytest.approx(0.125, abs=0.05)


def test_a_layer_that_runs_twice_is_refused(seed):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.layer(x))

    model = Twice()
    trainer = VCASTrainer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="each layer must be executed once, not layer, unused"):
        trainer.step(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
