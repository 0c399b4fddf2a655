"""Heads of sequences in a model's ``forward``, as the compiler and golden see them.

Covers: golden/training/torch_heads.py.
"""

import pytest
import torch
from torch.nn import functional

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.training.torch_graph import trace as golden_trace

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


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: split(x), "a network returns a map"),
        (lambda self, x: torch.relu(split(x)), "can be transposed"),
        (lambda self, x: split(x).reshape(x.shape), "can be transposed"),
        (lambda self, x: split(x).flatten(1), "can be transposed"),
        (lambda self, x: split(x).transpose(2, 3), "can be transposed"),
        (lambda self, x: attend(*[split(x).transpose(1, 2)] * 3), "must be sequences"),
        (lambda self, x: attend(x, x, x, dropout_p=0.5), "attn_mask must be None, dropout_p 0"),
        (lambda self, x: attend(x, x, x, scale=float("inf")), "scale must be a finite number"),
    ],
)
def test_messages(forward, message):
    with pytest.raises(CompileError, match=message):
        trace(Forward(forward), (5, 8))
    with pytest.raises(ValueError, match="is not supported|must"):
        golden_trace(Forward(forward), (5, 8))
