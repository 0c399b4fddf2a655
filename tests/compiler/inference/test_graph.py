"""Inference of networks that are no list of stages, beside golden, bit for bit.

Covers: compiler/inference/folding.py, golden/inference/folding.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.codegen.program import CompiledProgram
from compiler.inference.graph import compile_graph
from emulator.interpreter import interpret
from golden.inference.graph import GraphNetwork
from hw.config import make_config
from verif.networks.train_blocks import BLOCKS, INPUT_SHAPE, random_model
from verif.networks.train_sequences import LENGTH, WIDTH
from verif.networks.train_sequences import NETWORKS as SEQUENCES

#: Blocks by name, and what is left of their normalisations: those that are not folded.
KEPT = {
    "residual": [],
    "depthwise": [],
    "strided": [],
    "inception": [],
    "dense": ["norm"],
    "growing": [],
    "smooth": [],
    "norms": ["second", "third", "fourth"],
    "transposed": ["norm"],
    "shares": [],
    "groups": [],
}
ARRAYS = [{}, {"rows": 5, "columns": 3}]


def with_statistics(model, rng):
    """The model with running statistics as after some training."""
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            size = module.num_features
            module.running_mean.copy_(torch.from_numpy(rng.normal(0.0, 0.3, size)))
            module.running_var.copy_(torch.from_numpy(rng.uniform(0.5, 2.0, size)))
            if module.affine:
                module.weight.data.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, size)))
                module.bias.data.copy_(torch.from_numpy(rng.uniform(-0.5, 0.5, size)))
    return model


def results(program, images, seed):
    """The outputs of all steps of a program that has run in the functional model."""
    memory = bytearray(program.memory(images, fill=0xA5))
    result = interpret(program.config, program.commands, memory, seed=seed)
    assert not result.semaphores
    return [tensor.unpack(memory) for tensor in program.outputs]


@pytest.mark.parametrize("name", KEPT)
def test_blocks(name, rng, seed, tmp_path):
    """Every stored map; a saved program gives the same."""
    array = ARRAYS[list(KEPT).index(name) % len(ARRAYS)]
    config = make_config(variant="baseline", preset="tiny", **array)
    model = with_statistics(random_model(BLOCKS[name], rng), rng)
    images = rng.standard_normal((2, *INPUT_SHAPE[1:], INPUT_SHAPE[0])).astype(np.float32)
    program = compile_graph(model, config, (2, *INPUT_SHAPE), reuse=False)
    network = GraphNetwork(model, input_shape=INPUT_SHAPE, rows=config.rows, columns=config.columns)
    expected = network.stored(images)
    norms = [n.name for n in network.nodes if n.kind in ("batch_norm", "fixed_norm")]
    assert norms == KEPT[name]
    found = results(program, images, seed)
    checked = 0
    for stage, codes in zip(program.stages, found, strict=True):
        if stage.output in expected:
            np.testing.assert_array_equal(codes, expected[stage.output], err_msg=stage.name)
            checked += 1
    assert checked >= 4
    program.save(tmp_path / "program.bin")
    again = CompiledProgram.load(tmp_path / "program.bin", config)
    np.testing.assert_array_equal(results(again, images, seed)[-1], found[-1])
    assert model.training


@pytest.mark.parametrize("name", ["normalized mlp", "attention"])
def test_sequences(name, rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    model, shape = random_model(SEQUENCES[name], rng), (LENGTH, WIDTH)
    program = compile_graph(model, config, (2, *shape))
    network = GraphNetwork(model, input_shape=shape, rows=config.rows, columns=config.columns)
    values = rng.standard_normal((2, *shape)).astype(np.float32)
    expected = network.stored(values)[network.nodes[-1].name]
    images = network.encode_input(values).reshape(program.input.shape)
    found = results(program, images.astype(program.input.dtype), seed)[-1]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def test_what_is_compiled_as_what(rng):
    """A list of stages where it is one, the graph otherwise; the model stays as it is."""
    config = make_config(variant="baseline", preset="tiny")
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2))
    assert len(compiler.compile(plain, config, (1, 2, 6, 6)).stages) == 1
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4), nn.ReLU())
    program = compiler.compile(model, config, (1, 2, 6, 6))
    assert [stage.layers for stage in program.stages] == [["0 convolution"]]
    assert model.training
    with pytest.raises(compiler.CompileError, match="groups must be 1, not 2"):
        compiler.compile(model, config, (1, 2, 6, 6), placement="main")
    small = make_config(variant="baseline", preset="tiny", training=False)
    with pytest.raises(compiler.CompileError, match="groups must be 1, not 2"):
        compiler.compile(model, small, (1, 2, 6, 6))
    with pytest.raises(compiler.CompileError, match="needs the vector engine"):
        compile_graph(model, small, (1, 2, 6, 6))
    with pytest.raises(
        compiler.CompileError, match=r"input_shape must be \(N, C, H, W\), \(N, F\)"
    ):
        compile_graph(model, config, (2,))
    named = nn.Sequential()
    named.add_module("stem", nn.Conv2d(2, 4, 3))
    named.add_module("input", nn.ReLU())
    with pytest.raises(compiler.CompileError, match="layer input: the images of a program have"):
        compile_graph(named, config, (1, 2, 6, 6))


def test_a_normalisation_is_folded_once(rng, seed):
    """Two of them in a row; one whose product others read as well."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.one, self.two = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
            self.other, self.three = nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.two(self.one(self.conv(x)))
            z = self.other(y)
            return z + self.three(z)

    model = with_statistics(random_model(Rows, rng), rng)
    network = GraphNetwork(model, input_shape=(3, 2, 2), rows=4, columns=4)
    assert [node.name for node in network.nodes[1:]] == ["conv", "two", "other", "three", "add"]
    config = make_config(variant="baseline", preset="tiny")
    program = compile_graph(model, config, (2, 3, 2, 2))
    images = rng.standard_normal((2, 2, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(results(program, images, seed)[-1], network.stored(images)["add"])
