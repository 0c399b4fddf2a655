"""Tokens, several inputs and constants, as the compiler and golden see them.

Covers: golden/frontend/network_inputs.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from compiler.training import compile_training
from golden.frontend.torch_graph import trace as golden_trace
from golden.layers.optimizer import SGD
from golden.training.step import Training
from hw.config import make_config
from tests.compiler.frontend.forward import Forward


class Pair(nn.Module):
    """A sentence of tokens, and a map."""

    def __init__(self, **modules):
        super().__init__()
        self.embedding = nn.Embedding(6, 4, padding_idx=2)
        self.register_buffer("shift", torch.arange(8.0).view(2, 4))
        self.register_buffer("gain", torch.tensor([[[0.5]], [[2.0]]]))
        self.convolution = nn.Conv2d(2, 4, 1)
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, tokens, image):
        words = self.embedding(tokens) + self.shift.flip(0)[: tokens.shape[1]]
        words = words * torch.full((4,), 0.5)
        return words.mean(1) + self.convolution(image * self.gain).mean((2, 3))


SHAPES = [(2,), (2, 3, 3)]


def test_the_same_layers_in_compiler_and_golden():
    layers, nodes = (function(Pair(), SHAPES) for function in (trace, golden_trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "flat", "sequence"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    found = {layer.name: layer for layer in layers}
    assert found["tokens"].shape == (6, 2, 1)
    constants = {layer.name: layer.options["values"] for layer in layers
                 if layer.kind == "constant"}  # fmt: skip
    own = {node.name: node.options["values"] for node in nodes if node.kind == "constant"}
    assert sorted(constants) == sorted(own)
    for name, values in constants.items():
        assert np.array_equal(values, own[name]), name
    shift = next(values for values in constants.values() if values.shape == (1, 2, 1, 4))
    assert shift[0, :, 0, 0].tolist() == [4.0, 0.0]


def test_a_host_writes_tokens(rng):
    """The bytes are those of golden's operands; a program that was saved has its constants."""
    config = make_config(variant="baseline", preset="tiny")
    tokens, images = np.array([[0, 5], [2, 3]]), rng.standard_normal((2, 3, 3, 2))
    program = compile_training(Pair(), config, SHAPES, images=2)
    golden = Training(Pair(), input_shape=SHAPES, optimizer=SGD(learning_rate=0.1), rows=4,
                      columns=4)  # fmt: skip
    codes = golden.encode_input([tokens, images])
    assert codes[0][1, 0].any() == 0, "padding is no token"
    assert codes[0][0, 1, 0].nonzero()[0].tolist() == [5]
    labels = np.array([0, 3])
    assert program.batch([tokens, images], labels) == program.batch(codes, labels)
    assert program.constants


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (SHAPES[:1], "a network has one input, not image besides"),
        ([*SHAPES, (3,)], "input_shape has 3 shapes, the network reads tokens, image"),
        ([(2, 6), (2, 3, 3)], r"tokens are \(T,\) for a sentence"),
        ([(4,), (2, 3, 3)], "which does not go with|must match the size"),
    ],
)
def test_messages(shapes, message):
    with pytest.raises(CompileError, match=message):
        trace(Pair(), shapes)
    with pytest.raises(ValueError, match="input_shape|Layer"):
        golden_trace(Pair(), shapes)


class Changed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("own", torch.ones(3))
        self.learned = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.linear(x) + self.learned


def test_constants_that_are_none():
    with pytest.raises(
        CompileError, match="own tensor or constant, learned, cannot be used unless"
    ):
        trace(Changed(), (3,))
    with pytest.raises(ValueError, match="own tensor or constant, learned, must be a buffer"):
        golden_trace(Changed(), (3,))


@pytest.mark.parametrize("length", [lambda tokens: 2, lambda tokens: tokens.shape[1]])
def test_positions_that_are_learned(length):
    """The message says what to write for them."""
    model = Forward(
        lambda self, tokens: self.words(tokens) + self.places(torch.arange(length(tokens))),
        words=nn.Embedding(6, 4), places=nn.Embedding(2, 4),
    )  # fmt: skip
    message = r"layer places \(Embedding\): .* for positions add a buffer \(T, C\) in its place"
    with pytest.raises(CompileError, match=message):
        trace(model, (2,))
    with pytest.raises(ValueError, match="Layer places"):
        golden_trace(model, (2,))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 2), int), "images must be a list of 2 arrays"),
        ([np.zeros((2, 3), int), None], r"tokens must have shape \(sentences, tokens\) = \(2, 2\)"),
        ([np.zeros((2, 2)), None], "tokens must be integers, not float64"),
        ([np.full((2, 2), 6), None], r"tokens\[0, 0\] is 6; it must be from 0 to 5"),
    ],
)
def test_batches_are_checked(images, message):
    config = make_config(variant="baseline", preset="tiny")
    program = compile_training(Pair(), config, SHAPES, images=2)
    with pytest.raises(ValueError, match=message):
        program.batch(images, np.zeros(2, int))
