"""Networks of all layers running forward, beside golden, bit for bit; what is refused.

Covers: compiler/inference/folding.py, compiler/inference/graph.py, compiler/tensors/host_input.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.codegen.program import CompiledProgram
from compiler.errors import CompileError
from compiler.inference.compile import compile_network
from emulator.interpreter import interpret
from hw.config import make_config
from verif.networks.train_blocks import BLOCKS, INPUT_SHAPE, random_model
from verif.networks.train_sequences import LENGTH, TOKENS, WIDTH
from verif.networks.train_sequences import NETWORKS as SEQUENCES
from verif.networks.workload import golden_network

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
    "uneven": ["norm"],
    "groups": [],
    "shuffled": [],
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
    program = compile_network(model, config, (2, *INPUT_SHAPE), reuse=False)
    network = golden_network(model, config, INPUT_SHAPE)
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
    program = compile_network(model, config, (2, *shape))
    network = golden_network(model, config, shape)
    values = rng.standard_normal((2, *shape)).astype(np.float32)
    expected = network.stored(values)[network.nodes[-1].name]
    images = network.encode_input(values).reshape(program.input.shape)
    found = results(program, images.astype(program.input.dtype), seed)[-1]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def _embedded():
    return nn.Sequential(nn.Embedding(TOKENS, 8), nn.Linear(8, 5))


@pytest.mark.parametrize("name", [_embedded, "two sentences", "transformer"])
def test_tokens(name, rng, seed, tmp_path):
    """Integers, and two inputs; a saved program takes the same."""
    config = make_config(variant="baseline", preset="tiny")
    model = random_model(SEQUENCES.get(name, name), rng)
    lengths = [LENGTH, LENGTH - 2] if name in SEQUENCES else [LENGTH]
    program = compile_network(model, config, [(2, length) for length in lengths])
    network = golden_network(model, config, [(length,) for length in lengths])
    tokens = [
        rng.integers(0, layer.tokens, (2, length))
        for layer, length in zip(program.inputs, lengths, strict=True)
    ]
    given = tokens[0] if len(tokens) == 1 else tokens
    expected = network.stored(given)[network.nodes[-1].name]
    program.save(tmp_path / "program.bin")
    for each in (program, CompiledProgram.load(tmp_path / "program.bin", config)):
        found = results(each, given, seed)[-1]
        np.testing.assert_array_equal(found, expected.reshape(found.shape))
    if len(tokens) == 2:
        with pytest.raises(ValueError, match="images must be a list of 2 arrays, one for each"):
            program.memory(tokens[0])
    tokens[-1][1, 2] = most = program.inputs[-1].tokens
    with pytest.raises(ValueError, match=rf"\[1, 2\] is {most}; it must be from 0 to {most - 1}"):
        program.memory(given)
    with pytest.raises(CompileError, match="all inputs must have as many images, not 2, 3"):
        compile_network(model, config, [(2, LENGTH), (3, LENGTH)])


class Residual(nn.Module):
    """A product behind another, a sum with ReLU behind it, a pooling layer that no product does."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        y = torch.relu(self.one(x))
        y = torch.relu(y + self.two(y))
        return self.last(nn.functional.max_pool2d(y, 3).flatten(1))


def test_what_is_computed_together(rng, seed):
    """A ReLU behind a sum costs no step; with the maps of several images on one core."""
    config = make_config(variant="max", preset="tiny")
    model = random_model(Residual, rng)
    program = compile_network(model, config, (2, 2, 6, 6), reuse=False)
    assert [stage.layers for stage in program.stages] == [
        ["one convolution", "relu relu"], ["two convolution"], ["add add"],
        ["max_pool2d max_pool"], ["last linear"],
    ]  # fmt: skip
    assert program.stages[2].output == "relu_1"
    images = rng.standard_normal((2, 6, 6, 2)).astype(np.float32)
    expected = golden_network(model, config, (2, 6, 6)).stored(images)
    for stage, codes in zip(program.stages, results(program, images, seed), strict=True):
        np.testing.assert_array_equal(codes, expected[stage.output], err_msg=stage.name)
    assert model.training
    with pytest.raises(compiler.CompileError, match="placement 'pipeline' is for networks of"):
        compile_network(model, config, (2, 2, 6, 6), placement="pipeline")


@pytest.mark.parametrize("options", [{"training": False}, {"operand_format": "int8"}])
def test_without_a_vector_engine(options, rng):
    """Pooling and ReLU go through the array; a layer for which there is nothing is refused."""
    config = make_config(variant="baseline", preset="tiny", **options)
    plain = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 3, 1), nn.AvgPool2d(2), nn.ReLU())
    images = rng.standard_normal((1, 8, 8, 2)).astype(np.float32)
    parameters = list(golden_network(plain, config, (2, 8, 8), images).parameters.values())
    program = compile_network(plain, config, (1, 2, 8, 8), parameters=parameters)
    assert [stage.layers[0] for stage in program.stages] == [
        "identity", "1 convolution", "identity",
    ]  # fmt: skip
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Sigmoid())
    with pytest.raises(compiler.CompileError, match=r"layer 1 \(sigmoid\): it needs the vector"):
        compile_network(model, config, (1, 2, 6, 6))


def test_grouped_layers_without_a_vector_engine(rng, seed):
    config = make_config(variant="baseline", preset="tiny", training=False)
    model = random_model(lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU()), rng)
    program = compile_network(model, config, (1, 4, 6, 6))
    images = rng.standard_normal((1, 6, 6, 4)).astype(np.float32)
    expected = golden_network(model, config, (4, 6, 6)).stored(images)
    np.testing.assert_array_equal(results(program, images, seed)[-1], expected["1"])


def test_output_tiles_are_written_once(rng, seed):
    """In loops: fewer commands, about as many cycles, the same results."""
    config = make_config(variant="baseline", preset="tiny", accumulator_depth=16)
    model = random_model(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2)), rng)
    images = rng.standard_normal((64, 4, 4, 3)).astype(np.float32)
    programs = [
        compile_network(model, config, (64, 3, 4, 4), loops=loops) for loops in (False, True)
    ]
    written = [len(program.command_list) for program in programs]
    assert written[1] < 0.3 * written[0]
    assert programs[1].estimated_cycles == pytest.approx(programs[0].estimated_cycles, rel=0.03)
    expected = golden_network(model, config, (3, 4, 4)).stored(images)["1"]
    for program in programs:
        np.testing.assert_array_equal(results(program, images, seed)[-1], expected)


def test_few_semaphores_are_enough(rng, seed):
    """The least that a configuration may have, on two cores in both directions."""
    config = make_config(variant="max", preset="tiny", semaphores=10)
    model = random_model(
        lambda: nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 6, 1), nn.Conv2d(6, 3, 2)
        ),
        rng,
    )
    program = compile_network(model, config, (5, 3, 6, 6), placement=[1, 0, 1])
    assert len({name for names in program.semaphores for name in names.names}) > 10
    images = rng.standard_normal((5, 6, 6, 3)).astype(np.float32)
    network = golden_network(model, config, (3, 6, 6))
    rows = {stage.output: stage.rows for stage in program.stages}
    expected = network.forward(network.encode_input(images), rows=rows).outputs["3"]
    np.testing.assert_array_equal(results(program, images, seed)[-1], expected)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Conv2d(4, 6, 3)], r"layer 0 \(Conv2d\): it takes 4 channels but gets 3"),
        ([nn.Conv2d(3, 6, 3, padding_mode="circular", padding=1)], "padding_mode must be 'zeros'"),
        ([nn.Conv2d(3, 6, 9)], "layer 0 .*Kernel size can't be greater than actual input size"),
        ([nn.Linear(8, 2)], "layer 0 .*a Flatten layer must come before it"),
        ([nn.Flatten(), nn.Linear(8, 2)], "it takes 8 features but gets 192"),
        ([nn.Flatten(), nn.Conv2d(3, 1, 1)], "layer 1 .*has been flattened to vectors"),
        ([nn.Flatten(2)], "layer 0 .* not start_dim=2 and end_dim=-1"),
        ([nn.MaxPool2d(2, return_indices=True)], "return_indices must be False"),
        ([nn.Conv2d(3, 1, 1, stride=300)], r"must be at most 255, not \(300, 300\) and \(1, 1\)"),
        ([nn.Conv2d(3, 1, 1), nn.Conv2d(1, 1, 1, dilation=256)], "layer 1 .*at most 255"),
    ],
)
def test_refused_layers(layers, message):
    config = make_config(variant="baseline", preset="tiny")
    with pytest.raises(compiler.CompileError, match=message):
        compiler.compile(nn.Sequential(*layers), config, (2, 3, 8, 8))


def test_other_errors():
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    scripted = torch.jit.script(model)
    named = nn.Sequential()
    named.add_module("stem", nn.Conv2d(3, 4, 3))
    named.add_module("input", nn.ReLU())
    integer = make_config(variant="baseline", preset="tiny", operand_format="int8")
    for network, own, shape, options, message in (
        (model, config, (3, 8, 8), {}, "its input is a sequence; it takes maps"),
        (model, config, 3, {}, r"input_shape must be \(N, C, H, W\), .* not 3"),
        (model, config, (2,), {}, r"input_shape must be \(N, C, H, W\), .* not \(2,\)"),
        (model, None, (2, 3, 8, 8), {}, "config must be an AdaGPConfig, .*, not None"),
        (named, config, (2, 3, 8, 8), {}, "layer input: the images of a program have this name"),
        (scripted, config, (2, 3, 8, 8), {}, "the model is scripted or traced"),
        (model, config, (2, 3, 8, 8), {"placement": "split"}, "'split' needs two cores"),
        (model, config, (2, 3, 8, 8), {"placement": [1]}, "placement must list a core from 0 to 0"),
        (model, config, (2, 3, 8, 8), {"predictor_memory": [0]}, "reach a predictor memory"),
        (model, integer, (2, 3, 8, 8), {}, "int8 needs parameters, one entry for each product: 0"),
    ):
        with pytest.raises(compiler.CompileError, match=message):
            compiler.compile(network, own, shape, **options)
    efficient = make_config(variant="efficient", preset="tiny")
    with pytest.raises(compiler.CompileError, match=r"list products from 0 to 0, not \[1\]"):
        compiler.compile(model, efficient, (2, 3, 8, 8), predictor_memory=[1])
    small = {"buffer_banks": 1, "buffer_bank_depth": 16}
    tight = make_config(variant="baseline", preset="tiny", **small)
    with pytest.raises(compiler.CompileError, match="layer 0 convolution: not even one output"):
        compiler.compile(nn.Sequential(nn.Conv2d(3, 64, 1)), tight, (2, 3, 8, 8))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"weights_bits": np.zeros((4, 3, 1, 1))}, "weights_bits or scale_field is missing"),
        ({"scale_field": 1}, "weights_bits or scale_field is missing"),
        (
            {"weights_bits": np.zeros((4, 3)), "scale_field": 1 << 32},
            "scale_field must have 32 bits",
        ),
        ({"weights_bits": np.zeros((4, 2)), "scale_field": 1}, "weights_bits must have shape"),
        (
            {"weights_bits": np.zeros((4, 3)), "scale_field": 1, "bias_bits": np.zeros(3)},
            "bias_bits must have shape",
        ),
        (None, "parameters must have one entry for each of the 1 products"),
    ],
)
def test_refused_parameters(entry, message):
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.raises(compiler.CompileError, match=message):
        compiler.compile(model, config, (2, 3, 8, 8), parameters=[entry] if entry else [])


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
    config = make_config(variant="baseline", preset="tiny")
    network = golden_network(model, config, (3, 2, 2))
    assert [node.name for node in network.nodes[1:]] == ["conv", "two", "other", "three", "add"]
    program = compile_network(model, config, (2, 3, 2, 2))
    images = rng.standard_normal((2, 2, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(results(program, images, seed)[-1], network.stored(images)["add"])
