"""Traced layers: the same as golden's on many networks.

Covers: compiler/frontend/layer.py, golden/frontend/layers.py,
golden/frontend/functions.py.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.frontend.torch_graph import backward_order, learning, readers, trace
from golden.frontend import torch_graph as golden
from golden.layers.optimizer import SGD
from golden.training.step import Training


class Residual(nn.Module):
    """A strided block with a projection and one without; a ReLU that is used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.relu = nn.ReLU()
        self.down = nn.Conv2d(5, 6, 3, stride=2, padding=1)
        self.shortcut = nn.Conv2d(5, 6, 1, stride=2, bias=False)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.relu(self.norm(self.first(x)))
        x = self.relu(self.down(x) + self.shortcut(x))
        x = torch.relu(x + self.second(x))
        x = torch.add(x, x).relu()
        return self.head(torch.flatten(self.pool(x), 1))


class Frozen(nn.Module):
    """Layers in front that nothing learns from, and one whose map nothing reads."""

    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.dead = nn.Conv2d(3, 2, 1)
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        x = self.pool(x)
        self.dead(x)
        return self.left(x) + self.right(x)


NETWORKS = {
    "residual": lambda: (Residual(), (3, 7, 6)),
    "frozen": lambda: (Frozen(), (3, 5, 4)),
    "grouped": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.Sequential(nn.Conv2d(6, 9, 1, groups=3), nn.Identity(), nn.ReLU()),
            nn.MaxPool2d(3, 2, 1),
            nn.Flatten(),
            nn.Linear(9 * 2 * 2, 3),
        ),
        (2, 8, 7),
    ),
    "pools and strides": lambda: (
        nn.Sequential(
            nn.MaxPool2d((1, 2)),
            nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2)),
            nn.ReLU(inplace=True),
            nn.AvgPool2d((2, 1), 1),
            nn.Conv2d(5, 2, 1),
        ),
        (3, 7, 11),
    ),
    "vectors": lambda: (
        nn.Sequential(nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)),
        (7,),
    ),
    "flattened maps": lambda: (
        nn.Sequential(nn.Flatten(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5)),
        (2, 3, 4),
    ),
}


class Functional(nn.Module):
    """Functions and methods in place of modules, and what is done in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.same = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding="same")
        self.drop, self.head = nn.Dropout(0.5).eval(), nn.Linear(16, 3)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x):
        first = self.conv(x)
        y = self.act(first)
        y += self.same(first)  # of what the activation has left
        y = functional.relu6(self.drop(y))
        pooled = functional.max_pool2d(y, 3, 2, 1, ceil_mode=True)
        z = functional.avg_pool2d(pooled, 3, stride=1, padding=1, count_include_pad=False)
        z = torch.cat((z, functional.hardtanh(z, -2.0, 2.0), pooled), dim=-3)
        z = functional.dropout(z, 0.5, training=False)
        means = torch.cat([z.mean([-1, -2]), pooled.mean((2, 3), keepdim=True).flatten(1)], 1)
        return self.head(means.reshape(means.shape[0], 16).contiguous())


NETWORKS["functional"] = lambda: (Functional(), (2, 6, 9))


@pytest.mark.parametrize("name", NETWORKS)
def test_same_layers_as_golden(name):
    model, shape = NETWORKS[name]()
    ours, theirs = trace(model, shape), golden.trace(model, shape)
    members = ("name", "kind", "inputs", "shape", "flat", "options", "parameters", "trainable")
    for layer, node in zip(ours, theirs, strict=True):
        for member in members:
            actual, expected = getattr(layer, member), getattr(node, member)
            assert actual == expected, f"{layer.name}.{member}: {actual}, golden {expected}"
        assert layer.module is node.module, layer.name


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_are_those_of_torch(name, seed):
    """Every module's output for real numbers."""
    model, shape = NETWORKS[name]()
    seen = {}

    def note(path):
        def hook(module, inputs, output):
            seen.setdefault(path, tuple(output.shape))

        return hook

    hooks = [module.register_forward_hook(note(path)) for path, module in model.named_modules()]
    torch.manual_seed(seed)
    model(torch.rand(3, *shape))
    for hook in hooks:
        hook.remove()
    compared = 0
    for layer in trace(model, shape):
        if layer.name in seen:
            size = layer.shape
            expected = (3, int(np.prod(size))) if layer.flat else (3, *size)
            assert seen[layer.name] == expected, layer.name
            compared += 1
    assert compared > 2


@pytest.mark.parametrize("name", NETWORKS)
def test_the_model_is_not_changed(name):
    model, shape = NETWORKS[name]()
    before = {key: values.clone() for key, values in model.state_dict().items()}
    layers = trace(model, shape)
    after = model.state_dict()
    assert list(before) == list(after)
    for key, values in before.items():
        assert torch.equal(values, after[key]) and after[key].device.type == "cpu", key
    own = set(model.modules())
    assert all(layer.module in own for layer in layers if layer.module is not None)


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_order_is_goldens(name, rng):
    model, shape = NETWORKS[name]()
    training = Training(
        model, input_shape=shape, optimizer=SGD(learning_rate=0.1), rows=4, columns=4,
        loss="mean_squared_error",
    )  # fmt: skip
    size = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    last = training.nodes[-1]
    targets = (2, last.shape[0]) if last.flat else (2, *last.shape[1:], last.shape[0])
    result = training.step(rng.standard_normal((2, *size)), rng.standard_normal(targets))
    assert backward_order(trace(model, shape)) == tuple(result.gradients)


def test_learning_and_readers():
    layers = trace(*NETWORKS["residual"]())
    assert {layer.name for layer in layers} - learning(layers) == {"x"}
    read = readers(layers)
    assert read["relu"] == ("down", "shortcut")
    assert read["relu_1"] == ("second", "add_1")
    assert read["relu_2"] == ("add_2", "add_2")
    assert [name for name, names in read.items() if not names] == ["head"]
    layers = trace(*NETWORKS["frozen"]())
    assert learning(layers) == {"dead", "left", "right", "add"}
    assert readers(layers)["pool"] == ("dead", "left", "right")
    assert backward_order(layers) == ("add", "right", "left")


def test_a_pooling_module_may_be_used_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.conv = nn.MaxPool2d(2), nn.Conv2d(2, 2, 1)

        def forward(self, x):
            return self.pool(self.conv(self.pool(x)))

    layers = trace(Twice(), (2, 8, 8))
    assert [layer.kind for layer in layers] == ["input", "max_pool", "convolution", "max_pool"]
    assert [layer.shape[1] for layer in layers] == [8, 4, 4, 2]
    assert len({layer.name for layer in layers}) == 4
