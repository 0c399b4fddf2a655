"""Who takes the statistics of the map that a batch normalisation reads.

Covers: compiler/training/steps.py, compiler/kernels/normalization/batch_norm.py.
"""

import pytest
from torch import nn

from compiler.errors import CompileError
from compiler.training.compile import compile_training, training_layers
from compiler.training.steps import TrainingSteps
from hw.config import make_config

#: Layers in front of a batch normalisation, and whether they take statistics of its map.
BEFORE = {
    "a convolution": ([nn.Conv2d(4, 64, 1)], True),
    "a depthwise convolution": ([nn.Conv2d(4, 4, 3, groups=4)], False),
    "a convolution with a ReLU": ([nn.Conv2d(4, 64, 1), nn.ReLU()], False),
}


@pytest.mark.parametrize("name", BEFORE)
def test_statistics(name):
    before, wanted = BEFORE[name]
    config, channels = make_config(variant="baseline"), before[0].out_channels
    norm = nn.BatchNorm2d(channels)
    model = nn.Sequential(*before, norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    layers = training_layers(model, config, (4, 32, 32), 16)
    steps = TrainingSteps(layers, config, images=16, loss="cross_entropy", optimizer="sgd")
    (statistics,) = (tensor for tensor in steps.tensors if tensor.endswith("statistics"))
    assert steps.tensors[statistics].shape == (2, 16, 5 if "depthwise" in name else 4, channels)
    writers = [step.layer for step in steps.steps if statistics in step.writes]
    readers = [step.layer for step in steps.steps if statistics in step.reads]
    here = str(len(before))
    assert writers == ["0" if wanted else here]
    assert readers == ([here] if wanted else [])


def test_two_that_read_one_map():
    """The first one takes the statistics, if no product does."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu, self.a, self.b = nn.ReLU(), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x):
            x = self.relu(x)
            return (self.a(x) + self.b(x)).mean((2, 3))

    config = make_config(variant="baseline")
    layers = training_layers(Net(), config, (4, 8, 8), 2)
    steps = TrainingSteps(layers, config, images=2, loss="cross_entropy", optimizer="sgd")
    (statistics,) = (tensor for tensor in steps.tensors if tensor.endswith("statistics"))
    assert [step.layer for step in steps.steps if statistics in step.writes] == ["a"]
    assert [step.layer for step in steps.steps if statistics in step.reads] == ["b"]


@pytest.mark.parametrize("behind", [[], [nn.ReLU()]])
def test_one_pixel_has_no_variance(behind):
    """The normalisation is named, though its map has the name of a ReLU behind it."""
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *behind, nn.Flatten())
    message = r"layer 1 \(batch normalisation\): it needs more than one pixel per channel, but the "
    with pytest.raises(CompileError, match=message):
        compile_training(model, config, (3, 3, 3), images=1)
    compile_training(model, config, (3, 3, 3), images=2)
