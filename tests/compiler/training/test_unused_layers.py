"""Layers that no output depends on run forward; their parameters stay as they are, as in torch.

Covers: compiler/tensors/parameters.py, compiler/training/compile.py.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.training.compile import compile_training
from golden.layers.optimizer import SGD, Adam
from hw.config import make_config
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

SHAPE = (4, 5, 5)
CONFIG = make_config(variant="baseline", preset="tiny")
UNUSED = {
    "convolution": lambda: nn.Conv2d(4, 6, 3),
    "groups": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "normalisation": lambda: nn.BatchNorm2d(4),
    "groups of channels": lambda: nn.GroupNorm(2, 4),
    "transposed": lambda: nn.ConvTranspose2d(4, 3, 2, 2),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(4 * 25, 3)),
    "several": lambda: nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.GELU()),
}


class Net(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.unused, self.used, self.head = unused, nn.Conv2d(4, 5, 3), nn.Linear(5, 3)

    def forward(self, x):
        self.unused(x)
        return self.head(self.used(x).mean((2, 3)))


def batches(rng, optimizer):
    """Two batches with weight decay, which would change what is updated without a gradient."""
    return [
        Batch(
            images=rng.standard_normal((2, *SHAPE[1:], SHAPE[0])).astype(np.float32),
            targets=rng.integers(0, 3, 2),
            optimizer=optimizer,
        )
        for _ in range(2)
    ]


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("name", UNUSED)
def test_the_same_as_golden(name, reuse, rng, seed):
    torch.manual_seed(seed)
    model = Net(UNUSED[name]())
    optimizer = SGD(learning_rate=0.1, momentum=0.9, weight_decay=0.1)
    run = TrainingRun(model, CONFIG, SHAPE, batches(rng, optimizer), reuse=reuse)
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    after = run.program.state(result.final)
    for name, values in model.named_parameters():
        same = np.array_equal(after[name], values.detach().numpy())
        assert same == name.startswith("unused."), name
    velocities = run.program.state(result.final, "velocity")
    assert not any(values.any() for name, values in velocities.items() if "unused" in name)


def test_the_same_as_torch(rng, seed):
    """Torch has no gradient for them, so no optimizer changes them; statistics follow."""
    torch.manual_seed(seed)
    model = Net(UNUSED["several"]())
    optimizer = Adam(learning_rate=0.1, weight_decay=0.1)
    run = TrainingRun(model, CONFIG, SHAPE, batches(rng, optimizer))
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    after, before = run.program.state(result.final), model.state_dict()
    before = {name: values.clone() for name, values in before.items()}
    theirs = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    for batch in run.batches:
        images = torch.from_numpy(np.ascontiguousarray(np.moveaxis(batch.images, 3, 1)))
        theirs.zero_grad()
        functional.cross_entropy(model(images), torch.from_numpy(batch.targets)).backward()
        theirs.step()
    for name, values in model.state_dict().items():
        if name in after:
            ours = np.array_equal(after[name], before[name].numpy())
            assert ours == torch.equal(values, before[name]), name


def test_they_have_no_gradient_in_memory():
    program = compile_training(Net(nn.Conv2d(4, 6, 3)), CONFIG, SHAPE, images=2)
    roles = {name: set(stored.tensors) for name, stored in program.parameters.items()}
    assert roles["used.weight"] - roles["unused.weight"] == {"gradient"}
    assert not [step for step in program.steps
                if step.layer.startswith("unused") and step.direction != "forward"]  # fmt: skip
