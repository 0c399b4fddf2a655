"""Heads of sequences in a model's ``forward``, as the compiler and golden see them.

Covers: golden/frontend/heads.py.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend.torch_graph import trace as golden_trace

from .forward import Forward

attend = functional.scaled_dot_product_attention


def split(x):
    return x.view(x.size(0), x.size(1), 2, 4).transpose(1, 2)


def several_ways(self, x):
    """The same written in four ways, one after the other."""
    y = attend(split(x), split(x), split(x))
    y = y.permute(0, 2, 1, 3).contiguous().flatten(2)
    y = y.unflatten(2, (2, 4)).transpose(-3, -2)
    y = attend(y, y, y, is_causal=True).transpose(2, 1).reshape(x.shape)
    y = torch.relu(y)
    return attend(y, x, x, scale=0.25)


def test_the_same_layers_in_compiler_and_golden():
    layers, nodes = (function(Forward(several_ways), (5, 8)) for function in (trace, golden_trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "flat", "sequence", "options"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    assert [layer.kind for layer in layers[1:]] == ["attention", "attention", "relu", "attention"]
    assert [layer.options["heads"] for layer in layers if layer.kind == "attention"] == [2, 2, 1]
    assert layers[2].options == {"heads": 2, "causal": True, "scale": 0.5}


class Masked(nn.Module):
    """Masks in the shapes and types that torch takes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(6, 6).tril().bool())
        self.register_buffer("added", torch.linspace(-1, 0, 5).view(1, 1, 1, 5))

    def forward(self, x):
        y = attend(split(x), split(x), split(x), self.seen[:5, : x.size(1)])
        y = attend(y, split(x), y, attn_mask=self.added - 1)
        return torch.relu(y.transpose(1, 2).flatten(2))


def test_masks():
    layers, nodes = (function(Masked(), (5, 8)) for function in (trace, golden_trace))
    assert [layer.kind for layer in layers] == ["input", "attention", "attention", "relu"]
    assert [layer.options for layer in layers] == [node.options for node in nodes]
    seen = np.array(layers[1].options["mask"])
    assert (seen == np.where(np.tri(5, dtype=bool), 0.0, -np.inf)).all()
    assert layers[2].options["mask"] == ((-2.0, -1.75, -1.5, -1.25, -1.0),) * 5


def with_mask(mask, **options):
    """A network whose attention of two heads has this mask."""

    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", mask)

        def forward(self, x):
            y = split(x)
            return attend(y, y, y, attn_mask=self.mask, **options).transpose(1, 2).flatten(2)

    return One()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_mask(torch.zeros(5, 4)), "layer scaled_dot_product_attention .*broadcast"),
        (with_mask(torch.zeros(5, 5), is_causal=True), "attn_mask"),
        (with_mask(torch.zeros(2, 5, 5)), r"shape \(5, 5\), for all .* alike, not \(2, 5, 5\)"),
        (Forward(lambda self, x: attend(x, x, x, x[..., :5])), "must be a constant"),
        (with_mask(torch.full((5, 5), float("inf"))), "must be finite, or -inf"),
        (with_mask(torch.full((5, 5), float("nan"))), "must be finite, or -inf"),
        (with_mask(torch.arange(5)[:, None] > torch.arange(5)), "query 0 of attn_mask must see"),
    ],
)
def test_messages_about_masks(model, message):
    with pytest.raises(CompileError, match=message):
        trace(model, (5, 8))
    with pytest.raises(ValueError, match="is not supported"):
        golden_trace(model, (5, 8))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: split(x), "a network returns a map"),
        (lambda self, x: torch.relu(split(x)), "can be transposed"),
        (lambda self, x: split(x).reshape(x.shape), "can be transposed"),
        (lambda self, x: split(x).flatten(1), "can be transposed"),
        (lambda self, x: split(x).transpose(2, 3), "a network returns a map"),
        (lambda self, x: split(x).transpose(0, 1), "the batch must stay in front"),
        (lambda self, x: attend(*[split(x).transpose(1, 2)] * 3), "must be sequences"),
        (
            lambda self, x: torch.relu(x.permute(0, 2, 1)),
            r"can be transposed, scaled by a number, .*; its input is x as \(N, C, T\)",
        ),
        (lambda self, x: attend(x, x, x, dropout_p=1), "dropout_p must be at least 0 and below 1"),
        (lambda self, x: attend(x, x, x, enable_gqa=True), "enable_gqa must be False"),
        (lambda self, x: attend(x, x, x, scale=float("inf")), "scale must be a finite number"),
    ],
)
def test_messages(forward, message):
    with pytest.raises(CompileError, match=message):
        trace(Forward(forward), (5, 8))
    with pytest.raises(ValueError, match="is not supported|must"):
        golden_trace(Forward(forward), (5, 8))
