"""Batches with an echo of the head against golden, bit for bit: in the functional model and on the
RTL. Covers: compiler/training/echo_steps.py, golden/training/head_echo.py."""

import pytest
import torch
from torch import nn

from golden.layers.optimizer import SGD, Adam, BrakedSGD
from hw.config import make_config
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

SGD_ = SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-3)


def run_of(rng, seed, *, optimizer=SGD_, echo=3, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.25), nn.Linear(64, 3),
    )  # fmt: skip
    batches = [
        Batch(images=rng.normal(size=(5, 4, 4, 2)), targets=rng.integers(3, size=5),
              optimizer=optimizer)
        for _ in range(2)
    ]  # fmt: skip
    config = make_config(variant="baseline", preset="tiny")
    return TrainingRun(model, config, (2, 4, 4), batches, echo=echo, **options)


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (SGD_, {"reuse": False}),
        (Adam(learning_rate=0.01), {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}),
        (BrakedSGD(learning_rate=0.1, momentum=0.9), {"loops": True, "echo": 5}),
    ],
    ids=["sgd", "adam", "braked"],
)
def test_in_the_functional_model(optimizer, options, rng, seed):
    run = run_of(rng, seed, optimizer=optimizer, **options)
    result = run.interpret(seed)
    check(result)
    assert {"loss", "loss.echo", "correct.echo"} <= set(run.actual(result.final))


def test_a_difference_is_found(rng, seed):
    """Golden that echoes once more."""
    run = run_of(rng, seed)
    one_more = run_of(rng, seed, echo=4)
    run.expected = one_more.expected
    assert {difference.tensor for difference in run.interpret(seed).differences} >= {
        "weights 5.weight", "velocity 5.bias", "loss.echo",
    }  # fmt: skip


def test_on_the_accelerator(rng, seed):
    """Two batches on a memory that stalls."""
    run = run_of(rng, seed)
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))
