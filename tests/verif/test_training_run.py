"""Whole training steps against golden, bit for bit: in the functional model and on the RTL."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from compiler.example import ResidualCNN
from golden.optimizer import SGD
from hw.config import make_config
from verif.training_run import Batch, TrainingRun

ARRAYS = {"4x4": {}, "5x3": {"rows": 5, "columns": 3}, "3x7": {"rows": 3, "columns": 7}}


class ResidualBlock(nn.Module):
    """One addition whose operands are both learned."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.conv2 = nn.Conv2d(5, 5, 3, padding=1, bias=False)
        self.linear = nn.Linear(5 * 6 * 5, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        x = torch.relu(x + self.conv2(x))
        return self.linear(torch.flatten(x, 1))


def depthwise_block():
    """What MobileNet is made of."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
    )  # fmt: skip


def strided():
    """Strides, groups, both kinds of pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(6, 4, 2, groups=2), nn.ReLU(), nn.AvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
    )  # fmt: skip


NETWORKS = {"residual": ResidualBlock, "depthwise": depthwise_block, "strided": strided}


def make_run(network, config, rng, *, batches=3, shape=(3, 6, 5), images=5, classes=4, **options):
    torch.manual_seed(int(rng.integers(1 << 30)))
    stream = [
        Batch(
            images=rng.standard_normal((images, *shape[1:], shape[0])).astype(np.float32),
            targets=rng.integers(0, classes, images),
            optimizer=SGD(learning_rate=0.1 / (i + 1), momentum=0.9, weight_decay=1e-3),
        )
        for i in range(batches)
    ]
    return TrainingRun(NETWORKS.get(network, network)(), config, shape, stream, **options)


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("network", NETWORKS)
def test_blocks_in_the_functional_model(network, array, rng, seed):
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    check(make_run(network, config, rng).interpret(seed))


def test_every_map_and_gradient(rng, seed):
    """Nothing shares memory, so everything that was stored can be looked at."""
    config = make_config(variant="baseline", preset="tiny")
    run = make_run("residual", config, rng, reuse=False)
    result = run.interpret(seed)
    check(result)
    names = set(run.actual(result.final))
    assert {"map linear", "gradient of conv1", "gradient of conv2.weight"} <= names


@pytest.mark.parametrize(("network", "array"), [("residual", "4x4"), ("depthwise", "5x3"),
                                            ("strided", "4x4")])  # fmt: skip
def test_blocks_on_the_accelerator(network, array, rng, seed):
    """Three batches on a memory that stalls."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    run = make_run(network, config, rng)
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


def test_resume_in_a_fresh_simulation(rng, seed):
    """Training goes on from what was read out, as if nothing had happened."""
    config = make_config(variant="baseline", preset="tiny")
    run = make_run("strided", config, rng, batches=4)
    whole = run.simulate(seed=seed, timeout_cycles=3_000_000)
    check(whole)
    first, rest = run.part(0, 2), run.part(2, 4)
    stopped = first.simulate(seed=seed, timeout_cycles=3_000_000)
    state, velocities = (run.program.state(stopped.final, role) for role in ("master", "velocity"))
    resumed = rest.simulate(
        seed=seed, state=state, slots={"velocity": velocities}, timeout_cycles=3_000_000
    )
    check(resumed)
    assert resumed.losses == whole.losses[2:]
    tensors = [t for p in run.program.parameters.values() for r, t in p.tensors.items()
               if r != "gradient"]  # fmt: skip
    for tensor in tensors:
        np.testing.assert_array_equal(
            tensor.unpack(resumed.final), tensor.unpack(whole.final), err_msg=tensor.name
        )


def test_guard(rng, seed):
    """A gradient that is not finite changes nothing but running statistics."""
    config = make_config(variant="baseline", preset="tiny")
    run = make_run("strided", config, rng, batches=1, guard=True)
    batch = run.batches[0]
    images = batch.images.copy()
    images[0] = np.inf
    run = TrainingRun(
        run.model, config, (3, 6, 5), [dataclasses.replace(batch, images=images)], guard=True
    )
    result = run.interpret(seed)
    check(result)
    before = run.model.state_dict()
    after = run.program.state(result.final)
    assert any(np.array_equal(after[name], before[name].numpy()) for name in run.golden.weights)


def test_squared_error(rng, seed):
    """Real targets instead of labels."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS["5x3"])
    run = make_run("strided", config, rng, batches=1)
    batch = dataclasses.replace(
        run.batches[0], targets=rng.standard_normal((5, 4)).astype(np.float32)
    )
    run = TrainingRun(run.model, config, (3, 6, 5), [batch] * 2, loss="mean_squared_error")
    result = run.interpret(seed)
    check(result)
    assert result.losses[1] < result.losses[0]


def test_example_network(rng, seed):
    config = make_config(variant="efficient", preset="tiny")
    shape = ResidualCNN.INPUT_SHAPE
    check(make_run(ResidualCNN, config, rng, batches=1, shape=shape, classes=10).interpret(seed))


def test_the_comparison_can_fail(rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    run = make_run("strided", config, rng, batches=1)
    memory = bytearray(run.interpret(seed).final)
    memory[run.program.parameters["0.weight"].tensors["velocity"].offset] ^= 1
    differences, _ = run.compare(0, bytes(memory))
    assert [str(d).partition(" is ")[0] for d in differences] == [
        "batch 0: velocities 0.weight[0, 0, 0, 0]"
    ]
