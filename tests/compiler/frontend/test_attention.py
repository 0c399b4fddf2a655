"""Attention as products and a softmax, as the compiler and golden see it.

Covers: golden/frontend/attention.py.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend.torch_graph import trace as golden_trace

from .forward import Forward

INF = float("inf")


def split(x):
    return x.view(x.size(0), x.size(1), 2, 4).transpose(1, 2)


def join(y):
    return y.transpose(1, 2).flatten(2)


def plain(self, x):
    return torch.softmax(x @ x.transpose(1, 2), dim=-1) @ x


def batched(self, x):
    scores = torch.bmm(x, x.permute(0, 2, 1)) / math.sqrt(8)
    return torch.bmm(functional.softmax(scores, 2, dtype=torch.float32), x)


def with_heads(self, x):
    q, k, v = split(x), split(x), split(x)
    scores = torch.matmul(q, k.transpose(-2, -1)) / q.size(-1) ** 0.5
    return join(torch.matmul(scores.softmax(-1).contiguous(), v))


def turned_at_once(self, x):
    k = x.view(x.size(0), x.size(1), 2, 4).permute(0, 2, 3, 1)
    scores = split(x).matmul(k).mul(0.3)
    shares = functional.dropout(torch.softmax(scores, 3), 0.5, training=False)
    return join(shares.matmul(split(x)))


def matrix_transpose(self, x):
    return (x @ x.mT).softmax(-1) @ x


def added(self, x):
    q, v = split(x), split(x)
    scores = q @ q.transpose(2, 3) * 0.5 + self.near[: x.size(1), : x.size(1)]
    return join(self.drop(self.softmax(scores * 2.0)) @ v)


def hidden(self, x):
    scores = 0.25 * (split(x) @ split(x).transpose(-1, -2))
    scores = scores.masked_fill(self.tril[:5, :5] == 0, -1e9) + 0.125
    return join(torch.softmax(scores, dim=-1) @ split(x))


def in_place(self, x):
    scores = split(x) @ split(x).transpose(-1, -2)
    same = scores.contiguous()
    scores.div_(self.root)
    scores.masked_fill_(self.tril[:5, :5].logical_not(), -INF)
    return join(torch.softmax(same, dim=-1) @ split(x))


def copied(self, x):
    """What is changed in place behind a copy does not change the copy."""
    scores = split(x) @ split(x).transpose(-1, -2)
    same = scores.clone()
    scores.mul_(7)
    return join(torch.softmax(same, dim=-1) @ split(x))


class Model(Forward):
    """With buffers and modules for all of them."""

    def __init__(self, forward):
        super().__init__(forward)
        self.drop, self.softmax = nn.Dropout(0.0), nn.Softmax(dim=-1)
        self.thinned = nn.Dropout(0.5)
        self.register_buffer("tril", torch.ones(6, 6).tril())
        self.register_buffer("near", -torch.rand(6, 6, generator=torch.manual_seed(1)))
        self.register_buffer("root", torch.tensor([2.0]))


WRITTEN = [
    plain, batched, with_heads, turned_at_once, matrix_transpose, added, hidden, in_place, copied,
]  # fmt: skip


@pytest.mark.parametrize("forward", WRITTEN, ids=[forward.__name__ for forward in WRITTEN])
def test_one_layer_in_compiler_and_golden_that_torch_computes(forward, seed):
    model = Model(lambda self, x: torch.relu(forward(self, x)))
    layers, nodes = (function(model, (5, 8)) for function in (trace, golden_trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "flat", "sequence", "options"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    assert [layer.kind for layer in layers] == ["input", "attention", "relu"]
    options = layers[1].options
    heads = options["heads"]
    x = torch.randn(3, 5, 8, generator=torch.manual_seed(seed))
    parts = [x.view(3, 5, heads, 8 // heads).transpose(1, 2)] * 3
    mask = None if "mask" not in options else torch.tensor(options["mask"], dtype=torch.float32)
    ours = functional.scaled_dot_product_attention(
        *parts, attn_mask=mask, is_causal=options["causal"], scale=options["scale"]
    )
    # Numbers below 4, 5 keys: sums of 8 and of 5 terms, and exponentials, all in float32.
    assert torch.allclose(join(ours), forward(model, x), rtol=0, atol=64 * 2.0**-24 * 4)


def test_scaled_queries():
    """A number times queries with heads is a layer."""

    def forward(self, x):
        q = split(self.linear(x)) * 0.5
        return join((q @ split(x).transpose(-2, -1)).softmax(-1) @ split(x))

    model = Forward(forward)
    model.linear = nn.Linear(8, 8)
    layers, nodes = (function(model, (5, 8)) for function in (trace, golden_trace))
    assert [layer.kind for layer in layers] == ["input", "convolution", "affine", "attention"]
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "flat", "sequence", "options"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)


def test_dropout_of_shares():
    """Each has a stream of its own, as other dropout layers have; in evaluation there is none."""

    def forward(self, x):
        x = self.thinned(x)
        x = functional.scaled_dot_product_attention(x, x, x, dropout_p=0.25)
        x = functional.dropout(x, 0.1, self.training)
        x = self.thinned(torch.softmax(x @ x.transpose(1, 2), dim=-1)) @ x
        return functional.scaled_dot_product_attention(x, x, x)

    model = Model(forward)
    layers, nodes = (function(model, (5, 8)) for function in (trace, golden_trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "options"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    found = [(y.kind, y.options.get("p"), y.options.get("stream")) for y in layers[1:]]
    assert found == [
        ("dropout", 0.5, 0), ("attention", 0.25, 1), ("dropout", 0.1, 2), ("attention", 0.5, 3),
        ("attention", None, None),
    ]  # fmt: skip
    # What is written as a function has the probability that it is given, as in torch.
    kinds = [(y.kind, y.options.get("p")) for y in trace(model.eval(), (5, 8))[1:]]
    assert kinds == [("attention", 0.25), ("attention", None), ("attention", None)]


def scores_of(x):
    return split(x) @ split(x).transpose(-2, -1)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: scores_of(x), "a network returns a map"),
        (lambda self, x: torch.relu(scores_of(x)), "scores of x and x can be scaled, masked"),
        (lambda self, x: scores_of(x) @ split(x), "scores of x and x"),
        (lambda self, x: scores_of(x).softmax(2) @ split(x), "keys, dim=-1, in float32, not dim=2"),
        (lambda self, x: scores_of(x).softmax(-1) * 2, "shares of x and x can be"),
        (lambda self, x: 1 / scores_of(x), "must be its first operand"),
        (lambda self, x: scores_of(x) / 0, "divides by 0"),
        (
            lambda self, x: scores_of(x) * self.near[:5, :5],
            r"scale must be a finite number, not a constant \(5, 5\)$",
        ),
        (lambda self, x: scores_of(x) * INF, "scale must be a finite number, not inf"),
        (lambda self, x: (scores_of(x) + self.near[:5, :5]) * -1, "positive numbers, not -1"),
        (lambda self, x: scores_of(x) + (self.near[:5, :5] > 0), "must be numbers, not bool"),
        (lambda self, x: scores_of(x) + x[:, 0, 0], "must have some channels"),
        (lambda self, x: scores_of(x) + self.near, "broadcast|must match"),
        (lambda self, x: scores_of(x).masked_fill(self.near[:5, :5] < 0, -9), "or less, not -9"),
        (
            lambda self, x: functional.dropout(scores_of(x), 0.1).softmax(-1) @ split(x),
            "dropout must come behind the softmax, once; its input is scores of x and x$",
        ),
        (
            lambda self, x: self.thinned(self.thinned(scores_of(x).softmax(-1))) @ split(x),
            "dropout must come behind the softmax, once; its input is shares of x and x$",
        ),
        (
            lambda self, x: functional.dropout(scores_of(x).softmax(-1), 1.0) @ split(x),
            "p must be at least 0 and below 1, not 1.0",
        ),
        (
            lambda self, x: functional.scaled_dot_product_attention(x, x, x, dropout_p=-0.5),
            "dropout_p must be at least 0 and below 1, not -0.5",
        ),
        (
            lambda self, x: scores_of(x).masked_fill(self.tril[:5, :5] < 1, -INF).masked_fill(
                self.tril[:5, :5] == 1, -INF).softmax(-1) @ split(x),
            "query 0 of attn_mask must see",
        ),
    ],
)  # fmt: skip
def test_messages(forward, message):
    with pytest.raises(CompileError, match=message) as caught:
        trace(Model(forward), (5, 8))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="^Layer|^The"):
        golden_trace(Model(forward), (5, 8))


@pytest.mark.parametrize(
    ("forward", "operands"),
    [
        (lambda self, x: x @ x, "x, x"),
        (lambda self, x: split(x) @ split(x), r"x as \(N, heads, T, C\), x as \(N, heads, T, C\)"),
        (
            lambda self, x: scores_of(x).softmax(-1) @ split(x).mT,
            r"shares of x and x, x as \(N, heads, C, T\)",
        ),
    ],
)  # fmt: skip
def test_as_many_vectors_as_numbers_in_them(forward, operands):
    """Shapes alone would not tell."""
    shape = (8, 8) if operands == "x, x" else (4, 8)
    with pytest.raises(CompileError, match=rf"\(matmul\): an attention is .* are {operands}"):
        trace(Model(forward), shape)
    with pytest.raises(ValueError, match="^Layer matmul"):
        golden_trace(Model(forward), shape)


def test_a_mask_has_a_row_for_each_query():
    layers = trace(Model(lambda self, x: torch.relu(hidden(self, x))), (5, 8))
    mask = np.array(layers[1].options["mask"])
    assert (mask == np.where(np.tri(5, dtype=bool), 0.125, -INF)).all()
