"""Where a product adds up the images of its map for the batch normalisation behind it.

Covers: compiler/training/steps.py.
"""

import pytest
from torch import nn

from compiler.training.compile import training_layers
from compiler.training.steps import TrainingSteps
from hw.config import make_config

#: Channels and size of a map, images in a batch, and whether they are added up.
MAPS = {
    "a map that does not fit": ((64, 32, 128), True),
    "whole images": ((128, 16, 16), True),
    "images of few pixels": ((512, 7, 128), False),
    "a map that is soon passed through": ((16, 8, 2), False),
    "parts of images, not too many": ((64, 45, 16), True),
    "parts of images, too many": ((64, 46, 16), False),
}


@pytest.mark.parametrize("name", MAPS)
def test_which_images_are_added_up(name):
    (channels, size, images), wanted = MAPS[name]
    config = make_config(variant="baseline")
    model = nn.Sequential(
        nn.Conv2d(4, channels, 1), nn.BatchNorm2d(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    layers = training_layers(model, config, (4, size, size), images)
    steps = TrainingSteps(layers, config, images=images, loss="cross_entropy", optimizer="sgd")
    assert ("0.image sums" in steps.tensors) == wanted
    product, norm = (
        step for step in steps.steps if step.direction == "forward" and step.layer in "01"
    )
    assert ("0.image sums" in product.writes) == ("0.image sums" in norm.reads) == wanted


def test_a_map_that_no_normalisation_reads():
    config = make_config(variant="baseline")
    model = nn.Sequential(
        nn.Conv2d(4, 64, 1), nn.ReLU(), nn.BatchNorm2d(64), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    layers = training_layers(model, config, (4, 32, 32), 128)
    steps = TrainingSteps(layers, config, images=128, loss="cross_entropy", optimizer="sgd")
    assert not any("image sums" in name for name in steps.tensors)
