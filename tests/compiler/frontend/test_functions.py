"""Functions, methods and what works in place are the layers that torch users expect."""

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend import torch_graph as golden
from tests.compiler.frontend.forward import Forward


def test_in_place_operations_change_what_others_read():
    """As in torch: a later layer reads what the operation has left."""

    def forward(self, x):
        first = self.conv(x)
        self.relu(first)
        copy = first.clone()
        copy += x
        return first + copy

    model = Forward(forward, conv=nn.Conv2d(2, 2, 1), relu=nn.ReLU(inplace=True))
    layers = {layer.name: layer for layer in trace(model, (2, 4, 4))}
    assert layers["add"].inputs == ("relu", "x") and layers["add_1"].inputs == ("relu", "add")
    assert [node.inputs for node in golden.trace(model, (2, 4, 4))] == [
        layer.inputs for layer in layers.values()
    ]


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x, gate: x * gate,
        lambda self, x, gate: gate * x,
        lambda self, x, gate: torch.sub(gate, x, alpha=2),
        lambda self, x, gate: x.mul_(gate),
        lambda self, x, gate: x * gate.expand(-1, -1, 4, 6),
        lambda self, x, gate: x + gate.expand_as(x),
    ],
)
def test_maps_of_one_pixel_are_repeated(forward):
    """By an upsampling."""
    model = Forward(
        lambda self, x: forward(self, self.conv(x), self.gate(x.mean((2, 3), keepdim=True))),
        conv=nn.Conv2d(2, 2, 1), gate=nn.Conv2d(2, 2, 1),
    )  # fmt: skip
    layers, nodes = (tracing(model, (2, 4, 6)) for tracing in (trace, golden.trace))
    for layer, node in zip(layers, nodes, strict=True):
        for member in ("name", "kind", "inputs", "shape", "options"):
            assert getattr(layer, member) == getattr(node, member), (layer.name, member)
    *_, upsampled, last = layers
    assert (upsampled.kind, upsampled.inputs, upsampled.shape) == ("upsample", ("gate",), (2, 4, 6))
    assert upsampled.options == {"factor": (4, 6)} and set(last.inputs) == {"conv", upsampled.name}


def test_rows_and_columns_are_repeated():
    """A column of means by a row of means, which are two layers; both are read twice."""

    def forward(self, x):
        rows, columns = (
            functional.avg_pool2d(x, size) for size in ((1, x.size(3)), (x.size(2), 1))
        )
        return rows * columns + (rows - columns)

    layers, nodes = (tracing(Forward(forward), (2, 4, 6)) for tracing in (trace, golden.trace))
    assert [(layer.kind, layer.inputs) for layer in layers] == [
        (node.kind, node.inputs) for node in nodes
    ]
    factors = [layer.options["factor"] for layer in layers if layer.kind == "upsample"]
    assert factors == [(1, 6), (4, 1)]


def test_other_maps_are_not_repeated():
    other = Forward(lambda self, x: x * x.mean((2, 3)), conv=nn.Conv2d(2, 2, 1))
    pixels = Forward(lambda self, x: x + self.conv(x), conv=nn.Conv2d(4, 1, 1))
    for model in (other, pixels):
        for tracing, error in ((trace, CompileError), (golden.trace, ValueError)):
            with pytest.raises(error, match="one shape|broadcast"):
                tracing(model, (4, 4, 4))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (operator.iadd, "add"), (operator.isub, "add"), (operator.imul, "multiply"),
        (lambda x, y: operator.itruediv(x, 4), "affine"),
    ],
)  # fmt: skip
def test_operators_in_place_change_all_names(change, kind):
    """``y += x`` changes what another name of ``y`` stands for; ``y = y + x`` would not."""

    def forward(self, x):
        y = self.conv(x)
        other = y
        y = change(y, x)
        return other * x

    model = Forward(forward, conv=nn.Conv2d(2, 2, 1))
    for tracing in (trace, golden.trace):
        *_, changed, last = tracing(model, (2, 4, 4))
        assert changed.kind == kind and last.inputs == (changed.name, "x")


def test_sizes_in_place_are_new_numbers():
    """As numbers are in Python."""

    def forward(self, x):
        whole = size = x.size(2)
        size //= 2
        return functional.interpolate(functional.avg_pool2d(x, size), size=(whole, whole))

    for tracing in (trace, golden.trace):
        layers = tracing(Forward(forward), (2, 4, 4))
        assert layers[1].shape == (2, 2, 2) and layers[2].shape == (2, 4, 4)


@pytest.mark.parametrize("change", [lambda b: b.add_(1), lambda b: operator.iadd(b, 1)])
def test_a_buffer_stays_as_it_is(change):
    model = Forward(lambda self, x: x + change(self.numbers))
    model.register_buffer("numbers", torch.zeros(2, 4, 4))
    with pytest.raises(CompileError, match="a constant cannot be changed"):
        trace(model, (2, 4, 4))
    with pytest.raises(ValueError, match="a constant cannot be changed"):
        golden.trace(model, (2, 4, 4))
    assert not model.numbers.any()


def test_the_arguments_of_functions():
    """Modules and functions with the same arguments are the same layers."""
    pairs = [
        (
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            lambda x: functional.max_pool2d(x, 3, 2, 1, 1, True),
        ),
        (nn.AvgPool2d(2), lambda x: functional.avg_pool2d(x, 2)),
        (
            nn.AvgPool2d(3, 1, 1, divisor_override=5),
            lambda x: functional.avg_pool2d(x, 3, 1, padding=1, divisor_override=5),
        ),
        (nn.AdaptiveAvgPool2d((2, None)), lambda x: functional.adaptive_avg_pool2d(x, (2, 6))),
        (nn.AdaptiveAvgPool2d(1), lambda x: x.mean((-1, 2), keepdim=True)),
        (nn.AdaptiveMaxPool2d(2), lambda x: functional.adaptive_max_pool2d(x, 2)),
        (nn.ReLU6(), lambda x: functional.hardtanh(x, 0.0, 6.0)),
        (nn.ReLU6(), lambda x: x.clamp(0, 6)),
        (nn.ReLU6(), lambda x: torch.clamp(x, min=0, max=6.0)),
        (nn.ReLU6(), lambda x: torch.clip_(x.relu(), 0, 6)),
        (nn.Hardtanh(), functional.hardtanh),
        (nn.Hardtanh(-2, 3), lambda x: torch.clip(x, -2, 3)),
        (nn.Hardtanh(-2, 3), lambda x: x.clip_(max=3, min=-2)),
        (nn.ReLU(), lambda x: x.clamp(min=0)),
        (nn.ReLU(), lambda x: torch.clip(x, 0.0)),
        (nn.LeakyReLU(0.2), lambda x: functional.leaky_relu(x, 0.2)),
        (nn.LeakyReLU(0.2), lambda x: functional.leaky_relu_(x, 0.2)),
        (nn.Hardswish(), functional.hardswish),
        (nn.Hardsigmoid(), functional.hardsigmoid),
        (nn.Sigmoid(), lambda x: x.sigmoid_()),
        (nn.Tanh(), torch.tanh),
        (nn.SiLU(), functional.silu),
        (nn.GELU("tanh"), lambda x: functional.gelu(x, approximate="tanh")),
        (nn.Softplus(), functional.softplus),
        (nn.Softmax(1), lambda x: functional.softmax(x, dim=-3)),
        (nn.Softmax2d(), lambda x: x.softmax(1)),
        (nn.Upsample((8, 6)), lambda x: functional.interpolate(x, scale_factor=(2, 1))),
        (nn.UpsamplingNearest2d(scale_factor=3), lambda x: functional.interpolate(x, (12, 18))),
    ]
    for module, function in pairs:
        model = Forward(lambda self, x, call=function: call(x))
        for tracing in (trace, golden.trace):
            expected = tracing(nn.Sequential(module), (2, 4, 6))[-1]
            actual = tracing(model, (2, 4, 6))[-1]
            for member in ("kind", "options", "shape"):
                assert getattr(actual, member) == getattr(expected, member), module


def test_sums_products_and_constants():
    """What Python's operators and torch's functions are, in compiler and golden."""
    cases = {
        (lambda x: 2 - x): ("affine", {"factor": -1.0, "offset": 2.0}),
        (lambda x: x - 0.5): ("affine", {"factor": 1.0, "offset": -0.5}),
        (lambda x: -x): ("affine", {"factor": -1.0, "offset": 0.0}),
        (lambda x: 3 * x): ("affine", {"factor": 3.0, "offset": 0.0}),
        (lambda x: x / 8): ("affine", {"factor": 0.125, "offset": 0.0}),
        (lambda x: torch.add(x, 2, alpha=3)): ("affine", {"factor": 1.0, "offset": 6.0}),
        (lambda x: x - x): ("add", {"scale": -1.0}),
        (lambda x: torch.add(x, x, alpha=2)): ("add", {"scale": 2.0}),
        (lambda x: x.mul_(x)): ("multiply", {}),
        (lambda x: torch.multiply(x, x)): ("multiply", {}),
        (lambda x: x.multiply(3)): ("affine", {"factor": 3.0, "offset": 0.0}),
        (lambda x: torch.subtract(x, 2, alpha=3)): ("affine", {"factor": 1.0, "offset": -6.0}),
        (lambda x: x.subtract_(x)): ("add", {"scale": -1.0}),
        (lambda x: torch.rsub(x, 2, alpha=3)): ("affine", {"factor": -3.0, "offset": 2.0}),
        (lambda x: torch.true_divide(x, 8)): ("affine", {"factor": 0.125, "offset": 0.0}),
        (lambda x: x.divide(8)): ("affine", {"factor": 0.125, "offset": 0.0}),
        (lambda x: torch.negative(x)): ("affine", {"factor": -1.0, "offset": 0.0}),
        (lambda x: torch.neg_(x)): ("affine", {"factor": -1.0, "offset": 0.0}),
    }
    for function, expected in cases.items():
        model = Forward(lambda self, x, call=function: call(x))
        for tracing in (trace, golden.trace):
            layer = tracing(model, (2, 4, 6))[1]
            assert (layer.kind, layer.options) == expected


def test_rsub_takes_the_first_map_from_the_second():
    model = Forward(lambda self, x: torch.rsub(x.relu(), x.tanh(), alpha=2))
    for tracing in (trace, golden.trace):
        *_, layer = tracing(model, (2, 4, 6))
        assert layer.inputs == ("tanh", "relu") and layer.options == {"scale": -2.0}


def test_leaky_relu_in_place_changes_what_others_read():
    def forward(self, x):
        y = self.conv(x)
        functional.leaky_relu_(y)
        return y + x

    model = Forward(forward, conv=nn.Conv2d(2, 2, 1))
    for tracing in (trace, golden.trace):
        assert tracing(model, (2, 4, 6))[-1].inputs == ("leaky_relu_", "x")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.clamp(max=6), "two limits, or min=0 alone, not min=None and max=6"),
        (lambda x: x.clamp(0.5), "two limits, or min=0 alone, not min=0.5 and max=None"),
        (lambda x: torch.clamp(x, x, x), "its limits must be numbers, not x"),
        (lambda x: x.clamp(6, 0), "its limits must be finite, and the upper one larger"),
        (lambda x: torch.true_divide(2, x), "it must divide by a number, not by x"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "its arguments are .*not rounding_mode"),
    ],
)
def test_messages(function, message):
    model = Forward(lambda self, x: function(x))
    with pytest.raises(CompileError, match=message):
        trace(model, (2, 4, 6))
    with pytest.raises(ValueError, match="is not supported"):
        golden.trace(model, (2, 4, 6))
