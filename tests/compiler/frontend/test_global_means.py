"""Means over height and width in two steps, in compiler and golden.

Covers: golden/frontend/global_means.py.
"""

import pytest
import torch

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend import torch_graph as golden
from tests.compiler.frontend.forward import Forward

SHAPE = (3, 4, 6)
IN_TWO = [
    lambda x: x.mean(-1).mean(-1),
    lambda x: x.mean(3).mean(2),
    lambda x: x.mean(2).mean(2),
    lambda x: x.mean(dim=-2).mean((-1,)),
    lambda x: torch.mean(torch.mean(x, 3), dim=2),
    lambda x: x.flatten(2).mean(2),
    lambda x: torch.flatten(x, 2).mean(-1),
    lambda x: x.flatten(start_dim=2).mean(dim=-1),
    lambda x: x.flatten(2, -1).mean(2),
    lambda x: x.flatten(2, 3).mean(2),
]


@pytest.mark.parametrize("function", IN_TWO)
def test_it_is_one_layer(function, seed):
    """The same as the mean over both axes, to torch and as a layer."""
    torch.manual_seed(seed)
    x = torch.rand(2, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(function(x), x.mean((2, 3)))
    model = Forward(lambda self, x: function(x.relu()))
    whole = Forward(lambda self, x: x.relu().mean((2, 3)))
    for tracing in (trace, golden.trace):
        *_, expected = tracing(whole, SHAPE)
        layers = tracing(model, SHAPE)
        for member in ("kind", "inputs", "shape", "flat", "options"):
            assert getattr(layers[-1], member) == getattr(expected, member), member
    assert [layer.name for layer in trace(model, SHAPE)] == [layer.name for layer in layers]


def changed_in_between(self, x):
    y = x.relu()
    lines = y.mean(3)
    y += x
    return lines.mean(2)


def read_twice(self, x):
    lines = x.mean(3)
    return lines.mean(2) + lines.mean(2)


@pytest.mark.parametrize(
    "forward",
    [
        changed_in_between,
        read_twice,
        lambda self, x: x.mean(1).mean(2),
        lambda self, x: x.mean(3).mean(1),
        lambda self, x: x.mean(3, keepdim=True).mean(2),
        lambda self, x: x.mean(3),
        lambda self, x: x.flatten(2).mean(1),
        lambda self, x: x.flatten(1, 2).mean(2),
    ],
)
def test_others_stay_refused(forward):
    with pytest.raises(CompileError, match=r"layer (mean|flatten)\w* .*(dim=\(2, 3\)|start_dim=1)"):
        trace(Forward(forward), SHAPE)
    with pytest.raises(ValueError, match="is not supported"):
        golden.trace(Forward(forward), SHAPE)


@pytest.mark.parametrize(
    ("shape", "what"), [((5, 8), "is a sequence"), ((8,), "has been flattened")]
)
def test_it_takes_maps(shape, what):
    with pytest.raises(CompileError, match=rf"layer mean_1 \(mean\): its input {what}"):
        trace(Forward(lambda self, x: x.mean(-1).mean(-1)), shape)
