"""Measurements of VCAS on the accelerator, between batches of a training."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.vcas.controller import VCASConfig
from golden.layers.optimizer import SGD
from golden.training.step import Training
from hw.config import make_config
from verif.networks.methods.controlled_run import ControlledRun
from verif.networks.training_result import Batch

IMAGES, SHAPE = 4, (2, 4, 4)


@pytest.fixture
def run(rng):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 2),
        nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    optimizer = SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-3)
    batches = [
        Batch(images=rng.normal(size=(IMAGES, 4, 4, 2)), targets=rng.integers(3, size=IMAGES),
              optimizer=optimizer)
        for _ in range(3)
    ]  # fmt: skip
    config = make_config(variant="baseline", preset="tiny", row_list_depth=IMAGES)
    vcas = VCASConfig(every=2, norm_step=0.5, smoothing=0.0)
    return ControlledRun(model, config, SHAPE, batches, sampled=("0", "3"), vcas=vcas,
                         counts=(2, IMAGES), sample_seed=5)  # fmt: skip


def test_everything_equals_golden(run, seed):
    """Two batches, six runs of a measurement, and a batch with what it has brought."""
    assert list(run.trained) == [0, 1, 8]
    result = run.interpret(seed=seed)
    assert not result.differences, "\n".join(map(str, result.differences[:5]))
    assert run.ratios[0] == {"0": 1.0, "3": 1.0} and run.ratios[8]["3"] < 1
    assert run.host.controller.norm == pytest.approx(0.5)


def test_a_measurement_leaves_gradients_and_changes_nothing(run):
    before, whole, after = run.expected[1], run.expected[2], run.golden
    plain = Training(
        run.model, input_shape=SHAPE, optimizer=run.batches[0].optimizer, rows=run.config.rows,
        columns=run.config.columns,
    )  # fmt: skip
    state = copy.deepcopy(run.start)
    state["weights"] = {name: before[f"weights {name}"] for name in state["weights"]}
    plain.restore(state)
    result = plain.step(run.batches[0].images, run.batches[0].targets)
    for name, gradient in result.parameter_gradients.items():
        assert np.array_equal(whole[f"velocity {name}"], gradient), name
    for number in range(2, 8):
        for name in after.weights:
            assert np.array_equal(run.expected[number][f"weights {name}"],
                                  before[f"weights {name}"])  # fmt: skip
    # What the host writes back: velocities and running statistics, as they were.
    assert len(run._returned[8]) == len(after.slots) + len(after.running)
    assert not any(run._returned[:8])
