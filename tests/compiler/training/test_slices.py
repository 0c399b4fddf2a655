"""Slices of channels: what moves them, and networks whose outputs are slices."""

import numpy as np
import pytest
import torch
from torch import nn

from compiler import compile as compile_network
from compiler.training.compile import compile_training
from emulator.interpreter import interpret
from hw.config import make_config
from verif.networks.train_blocks import INPUT_SHAPE, block_run, random_model
from verif.networks.workload import golden_network

CONFIG = make_config(variant="baseline", preset="tiny")


def test_slices_that_divide_a_map_move_nothing():
    """They are read where they are, and their gradients are written to their place."""
    model = nn.Sequential(nn.Conv2d(3, 12, 1), Exchanged(4), nn.Flatten(), nn.Linear(360, 4))
    program = compile_training(model, CONFIG, INPUT_SHAPE, images=2)
    names = [step.name for step in program.steps]
    assert "relu forward" in names and not [name for name in names if "getitem" in name]
    for tensors in (program.maps, program.gradients):
        whole, *parts = (program.tensors[tensors[n]] for n in ("0", "getitem", "getitem_1"))
        assert [part.offset - whole.offset for part in parts] == [0, 4 * whole.dtype.itemsize]
        assert {part.distance for part in parts} == {whole.pitch}


def test_other_slices_are_products_with_ones():
    """Five channels are no whole granules, so what is left of the other seven is none either."""
    model = nn.Sequential(nn.Conv2d(3, 12, 1), Exchanged(5), nn.Flatten(), nn.Linear(360, 4))
    program = compile_training(model, CONFIG, INPUT_SHAPE, images=2)
    names = [step.name for step in program.steps]
    assert {"getitem forward", "getitem backward", "getitem_1 forward"} <= set(names)
    selection = program.tensors["channels 5 to 12 of 12"]
    assert selection.shape == (1, 1, 12, 7)


class Exchanged(nn.Module):
    """The first channels of a map, twice as large, behind what a ReLU makes of the others."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def forward(self, x):
        a, b = x.split([self.first, x.size(1) - self.first], dim=1)
        return torch.cat([b.relu(), a * 2], 1)


class SlicedVector(nn.Module):
    """Some of twelve numbers."""

    def __init__(self, begin, end):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 12, 3), nn.Linear(12, 12)
        self.channels = slice(begin, end)

    def forward(self, x):
        return self.linear(self.conv(x).mean((2, 3)))[:, self.channels]


#: Whole granules of 4 channels in front, in the middle and behind; others.
OUTPUTS = [(0, 4), (4, 8), (4, 12), (1, 5), (9, 12)]


@pytest.mark.parametrize(("begin", "end"), OUTPUTS)
def test_an_output_that_is_a_slice_is_trained(begin, end, rng, seed):
    run = block_run(
        lambda: SlicedVector(begin, end), CONFIG, rng, batches=2, images=2, classes=end - begin
    )
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


@pytest.mark.parametrize(("begin", "end"), OUTPUTS)
def test_an_output_that_is_a_slice_forward(begin, end, rng, seed):
    model = random_model(lambda: SlicedVector(begin, end), rng)
    program = compile_network(model, CONFIG, (2, *INPUT_SHAPE))
    images = rng.standard_normal((2, *INPUT_SHAPE[1:], INPUT_SHAPE[0])).astype(np.float32)
    memory = bytearray(program.memory(images, fill=0xA5))
    assert not interpret(CONFIG, program.commands, memory, seed=seed).semaphores
    network = golden_network(model, CONFIG, INPUT_SHAPE)
    expected = network.stored(images)[network.nodes[-1].name]
    (result,) = program.results
    np.testing.assert_array_equal(program.tensors[result.name].unpack(memory), expected)
