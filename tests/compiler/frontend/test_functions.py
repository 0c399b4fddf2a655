"""Functions, methods and what works in place are the layers that torch users expect."""

import torch
from torch import nn
from torch.nn import functional

from compiler.frontend.torch_graph import trace
from golden.training import torch_graph as golden
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
        (nn.Hardtanh(), functional.hardtanh),
        (nn.LeakyReLU(0.2), lambda x: functional.leaky_relu(x, 0.2)),
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
        expected = trace(nn.Sequential(module), (2, 4, 6))[1]
        actual = trace(Forward(lambda self, x, call=function: call(x)), (2, 4, 6))[1]
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
    }
    for function, expected in cases.items():
        model = Forward(lambda self, x, call=function: call(x))
        for tracing in (trace, golden.trace):
            layer = tracing(model, (2, 4, 6))[1]
            assert (layer.kind, layer.options) == expected
