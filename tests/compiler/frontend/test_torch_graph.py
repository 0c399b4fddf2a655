"""Traced layers: the same as golden's on many networks, and the message of every refusal.

Covers: compiler/frontend/supported_layers.py, compiler/errors.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.frontend.torch_graph import backward_order, learning, readers, trace
from golden.layers.optimizer import SGD
from golden.training import torch_graph as golden
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


class Forward(nn.Module):
    """A network of a function."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


def tied():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return nn.Sequential(first, second)


SEQUENTIAL = [
    ([nn.Conv2d(2, 3, 3)], (3, 4, 4), r"layer 0 \(Conv2d\): it takes 2 channels but gets 3"),
    ([nn.Conv2d(2, 3, 3)], (2, 2, 2), r"layer 0 \(Conv2d\): .*[Kk]ernel size can't be greater"),
    (
        [nn.Conv2d(2, 3, 3, padding="same")],
        (2, 4, 4),
        r"\(Conv2d\): padding must be given in numbers, not as 'same'",
    ),
    (
        [nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")],
        (2, 4, 4),
        r"\(Conv2d\): padding_mode must be 'zeros', not 'circular'",
    ),
    ([nn.Flatten(), nn.Conv2d(8, 3, 1)], (8, 1, 1), r"layer 1 \(Conv2d\): .* flattened to vectors"),
    ([nn.Flatten(), nn.AvgPool2d(1)], (8, 1, 1), r"layer 1 \(AvgPool2d\): .* flattened to vectors"),
    (
        [nn.Conv2d(2, 3, 3), nn.Linear(3, 1)],
        (2, 3, 3),
        r"layer 1 \(Linear\): a Flatten layer must come before",
    ),
    (
        [nn.Flatten(), nn.Linear(3, 1)],
        (2, 3, 3),
        r"layer 1 \(Linear\): it takes 3 features but gets 18",
    ),
    ([nn.Linear(4, 3), nn.Sigmoid()], (4,), r"layer 1 \(Sigmoid\): .* allowed are Conv2d"),
    ([nn.BatchNorm2d(2, affine=False)], (2, 3, 3), r"layer 0 \(BatchNorm2d\): affine must be True"),
    (
        [nn.BatchNorm2d(2, track_running_stats=False)],
        (2, 3, 3),
        "track_running_stats must be True, not False",
    ),
    ([nn.BatchNorm2d(2, momentum=None)], (2, 3, 3), "momentum must be a number, not None"),
    ([nn.BatchNorm2d(2)], (3, 3, 3), r"layer 0 \(BatchNorm2d\): it takes 2 channels but gets 3"),
    ([nn.Flatten(), nn.BatchNorm1d(12)], (3, 2, 2), "BatchNorm2d takes maps"),
    ([nn.BatchNorm2d(4)], (4,), "BatchNorm2d takes maps"),
    (
        [nn.MaxPool2d(2, ceil_mode=True)],
        (2, 3, 3),
        r"\(MaxPool2d\): ceil_mode must be False, not T",
    ),
    (
        [nn.AvgPool2d(2, ceil_mode=True)],
        (2, 3, 3),
        r"\(AvgPool2d\): ceil_mode must be False, not T",
    ),
    ([nn.MaxPool2d(2, dilation=2)], (2, 5, 5), "dilation must be 1, not 2"),
    ([nn.MaxPool2d(2, return_indices=True)], (2, 5, 5), "return_indices must be False, not True"),
    ([nn.MaxPool2d(4)], (2, 3, 3), r"layer 0 \(MaxPool2d\): .*[Oo]utput size is too small"),
    ([nn.AvgPool2d(2, padding=1)], (2, 3, 3), r"layer 0 \(AvgPool2d\): padding must be 0, not 1"),
    ([nn.AvgPool2d(2, divisor_override=3)], (2, 3, 3), "divisor_override must be None, not 3"),
    ([nn.AdaptiveAvgPool2d(2)], (2, 4, 4), "output_size must be 1, not 2"),
    (
        [nn.Flatten(2)],
        (2, 3, 3),
        r"layer 0 \(Flatten\): .*end_dim=-1 or 3, not start_dim=2 and end_dim=-1",
    ),
    ([nn.Linear(3, 3)] * 2, (3,), r"\(Linear\): its parameters are used twice"),
    ([], (3,), "the network has no layer"),
    ([nn.ReLU()], (2, 2), r"input_shape must be \(C, H, W\) or \(features,\), not \(2, 2\)"),
    ([nn.ReLU()], (2, 0, 2), "input_shape must be"),
    ([nn.ReLU()], "abc", "input_shape must be"),
]


@pytest.mark.parametrize(("layers", "shape", "message"), SEQUENTIAL)
def test_messages(layers, shape, message):
    with pytest.raises(CompileError, match=message) as caught:
        trace(nn.Sequential(*layers), shape)
    assert "\n" not in str(caught.value)
    if "input_shape" not in message:
        with pytest.raises(ValueError):
            golden.trace(nn.Sequential(*layers), shape)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TwoInputs(), "layer y: a network has one input, not y besides"),
        (Forward(lambda self, x: (x.relu(), x)), "layer output: a network has one output"),
        (
            Forward(lambda self, x: x + 1.0),
            r"layer add \(add\): its operands must be two maps, .*, not x, 1.0",
        ),
        (
            Forward(lambda self, x: torch.add(x, x, alpha=2)),
            r"layer add \(add\): an addition takes two maps and nothing else, not alpha=2",
        ),
        (
            Forward(lambda self, x: x + self.pool(x), pool=nn.AvgPool2d(4)),
            r"layer add \(add\): it adds maps of \(2, 4, 4\) and \(2, 1, 1\)",
        ),
        (
            Forward(lambda self, x: x.sigmoid()),
            r"layer sigmoid \(sigmoid\): sigmoid is not supported; allowed",
        ),
        (
            Forward(lambda self, x: torch.flatten(x)),
            r"layer flatten \(flatten\): .*, not start_dim=0 and end_dim=-1",
        ),
        (
            Forward(lambda self, x: x + torch.ones(1)),
            r"layer add \(add\): its operands must be two maps|constant",
        ),
        (
            Forward(lambda self, x: (self.a(x), x.relu())[0], a=nn.Conv2d(2, 2, 1)),
            "layer a: the output must be the last layer",
        ),
        (
            Forward(lambda self, x: x.relu() if x.sum() > 0 else x),
            "the model Forward cannot be traced by torch.fx, its forward must not depend on data",
        ),
        (nn.Conv2d(2, 2, 1), "a module's own tensor or constant, weight, cannot"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(32, 3), tied()),
            r"2.1 \(Linear\): its parameters are used twice, by 2.0 as well",
        ),
        (
            Forward(lambda self, x: torch.cat([self.a(x), x], 1), a=nn.Conv2d(2, 2, 1)),
            r"layer cat \(cat\): cat is not supported; allowed are Conv2d",
        ),
        (
            Forward(lambda self, x: self.patch(x), patch=Forward(lambda self, x: x.flatten(2))),
            r"layer flatten \(flatten in patch Forward\): .* not start_dim=2 and end_dim=-1",
        ),
        (
            Forward(lambda self, x: x.reshape(x.shape[0], -1)),
            r"layer getattr_1 \(reading .shape\): reading .shape is not supported",
        ),
        (Forward(lambda self, x: torch.relu(input=x)), "one map, given by position, not .*input"),
        (torch.jit.script(nn.Sequential(nn.ReLU())), "the model is scripted or traced"),
        (nn.Sequential(nn.ReLU(), torch.jit.script(nn.ReLU())), "layer 1 is scripted or traced"),
        (3, "the model must be a torch.nn.Module, not int"),
    ],
)
def test_messages_of_other_modules(model, message):
    with pytest.raises(CompileError, match=message) as caught:
        trace(model, (2, 4, 4))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="^(Layer|The (model|network)) "):
        golden.trace(model, (2, 4, 4))
