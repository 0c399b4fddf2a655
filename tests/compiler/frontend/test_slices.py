"""Slices of channels, as the compiler and golden see them.

Covers: golden/frontend/slices.py.
"""

import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend.torch_graph import trace as golden_trace

from .forward import Forward

MAP, SEQUENCE, VECTOR = (6, 4, 5), (5, 6), (6,)


def both(forward, shape):
    """Layers of the compiler, which are golden's nodes, too."""
    model = Forward(forward)
    layers, nodes = (function(model, shape) for function in (trace, golden_trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "flat", "sequence", "options", "output"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    return layers


#: (forward, shape of the input, what the slice begins and ends with)
WRITTEN = [
    (lambda self, x: x[:, 1:4], MAP, (1, 4)),
    (lambda self, x: x[:, 2:, :, :], MAP, (2, 6)),
    (lambda self, x: x[:, -2:], MAP, (4, 6)),
    (lambda self, x: x[:, :-5, ...], MAP, (0, 1)),
    (lambda self, x: x[: x.size(0), : x.shape[1] // 2, : x.size(2)], MAP, (0, 3)),
    (lambda self, x: x.narrow(1, 2, 3), MAP, (2, 5)),
    (lambda self, x: torch.narrow(x, dim=-3, start=-4, length=2), MAP, (2, 4)),
    (lambda self, x: x.chunk(4, dim=1)[-1], MAP, (4, 6)),
    (lambda self, x: torch.chunk(x, 2, 1)[0], MAP, (0, 3)),
    (lambda self, x: x.split(4, 1)[1], MAP, (4, 6)),
    (lambda self, x: torch.split(x, [1, 3, 2], dim=-3)[1], MAP, (1, 4)),
    (lambda self, x: x.split(split_size=5, dim=1)[0], MAP, (0, 5)),
    (lambda self, x: x[..., 1:3], SEQUENCE, (1, 3)),
    (lambda self, x: x[:, :, 4:], SEQUENCE, (4, 6)),
    (lambda self, x: x.chunk(3, dim=-1)[1], SEQUENCE, (2, 4)),
    (lambda self, x: x.split((1, 5), 2)[1], SEQUENCE, (1, 6)),
    (lambda self, x: x[:, 3:5], VECTOR, (3, 5)),
    (lambda self, x: x[..., :2], VECTOR, (0, 2)),
    (lambda self, x: x.chunk(2, -1)[1], VECTOR, (3, 6)),
]


@pytest.mark.parametrize(("forward", "shape", "channels"), WRITTEN)
def test_a_slice_however_it_is_written(forward, shape, channels):
    layers = both(lambda self, x: torch.relu(forward(self, x)), shape)
    assert [layer.kind for layer in layers] == ["input", "slice", "relu"]
    begin, end = channels
    assert layers[1].options == {"begin": begin, "end": end}
    # Torch takes the same.
    x = torch.arange(2.0 * torch.Size(shape).numel()).view(2, *shape)
    axis = 2 if len(shape) == 2 else 1
    assert (forward(None, x) == x.movedim(axis, 0)[begin:end].movedim(0, axis)).all()


@pytest.mark.parametrize(
    ("forward", "shape"),
    [
        (lambda self, x: x[:, :], MAP), (lambda self, x: x[...], SEQUENCE),
        (lambda self, x: x.chunk(1, 1)[0], MAP), (lambda self, x: x.narrow(1, 0, 6), VECTOR),
        (lambda self, x: x.flatten(1)[:, :], MAP),
    ],
)  # fmt: skip
def test_all_channels_are_no_slice(forward, shape):
    kinds = [layer.kind for layer in both(lambda self, x: torch.relu(forward(self, x)), shape)]
    assert "slice" not in kinds


def test_parts_of_one_map():
    """Each is a layer of its own, also one that nobody reads, and one of a part; if the map has
    been changed in place, it is one of the new map."""

    def forward(self, x):
        y = x * 2
        _, _, _ = y.split([2, 3, 1], dim=1)
        parts = y.chunk(2, dim=1)
        y.relu_()
        return torch.cat([parts[1], parts[0][:, 1:]], 1)

    layers = both(forward, MAP)
    found = [(y.inputs[0], *y.options.values()) for y in layers if y.kind == "slice"]
    assert found == [("mul", 0, 2), ("mul", 2, 5), ("mul", 5, 6), ("relu_", 3, 6), ("relu_", 0, 3),
                     ("getitem_4", 1, 3)]  # fmt: skip


def test_queries_keys_and_values():
    """Of one layer."""

    def forward(self, x):
        q, k, v = self.both(x).chunk(3, dim=2)
        return nn.functional.scaled_dot_product_attention(q, k, v)

    model = Forward(forward)
    model.both = nn.Linear(6, 6)
    kinds = [[y.kind for y in function(model, SEQUENCE)] for function in (trace, golden_trace)]
    assert kinds == [["input", "convolution", "slice", "slice", "slice", "attention"]] * 2


@pytest.mark.parametrize(
    ("forward", "shape", "message"),
    [
        (lambda self, x: x[:2], MAP, "no batch of maps"),
        (lambda self, x: x[:, 1], MAP, r"some channels, one behind the other, of a map \(6, 4, 5"),
        (lambda self, x: x[:, ::2], MAP, "some channels, one behind the other"),
        (lambda self, x: x[:, :, 1:], MAP, "some channels, one behind the other"),
        (lambda self, x: x[:, 1:], SEQUENCE, r"of a sequence \(6, 5, 1\)"),
        (lambda self, x: x[:, 3:3], MAP, "some channels, one behind the other"),
        (lambda self, x: x.flatten(1)[:, 1:], MAP, "has been flattened to a vector"),
        (lambda self, x: x.flatten(1)[:, :10], MAP, "has been flattened to a vector"),
        (lambda self, x: x.chunk(2, 2)[0], MAP, "must divide channels, dim=1, not dim=2"),
        (lambda self, x: x.chunk(2)[0], MAP, "must divide channels, dim=1, not dim=0"),
        (lambda self, x: x.split(2, 1)[0], SEQUENCE, "must divide channels, dim=2, not dim=1"),
        (lambda self, x: x.flatten(1).chunk(2, 1)[0], MAP, "has been flattened to a vector"),
        (lambda self, x: torch.relu(x.chunk(2, 1)), MAP, "must be Tensor, not tuple"),
        (lambda self, x: torch.cat(x.chunk(2, 1), 1), MAP, "2 parts of x must be taken one by one"),
        (lambda self, x: x.chunk(2, 1), MAP, "a network returns a map"),
        (lambda self, x: x.chunk(2, 1)[0:1], MAP, "must be taken one by one"),
        (lambda self, x: x.split([2, 2], 1)[0], MAP, "split"),
    ],
)  # fmt: skip
def test_messages(forward, shape, message):
    with pytest.raises(CompileError, match=message) as caught:
        trace(Forward(forward), shape)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="^Layer|^The"):
        golden_trace(Forward(forward), shape)


def test_a_part_that_is_changed_in_place():
    """The map itself, and other slices of it, cannot be read any more: some of it has changed."""

    def forward(self, x):
        y = x * 2
        y[:, 2:4].relu_()
        return y + 1

    with pytest.raises(CompileError, match="it reads mul, a view of a map that relu_"):
        trace(Forward(forward), MAP)
    with pytest.raises(
        ValueError, match=r"^Layer add .*it reads mul, of which relu_ changed a view"
    ):
        golden_trace(Forward(forward), MAP)
