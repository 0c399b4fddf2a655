"""The message of every refusal, of a network's layers and functions.

Covers: compiler/errors.py.
"""

import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend import torch_graph as golden
from tests.compiler.frontend.forward import Forward


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


def changed_view(x):
    flat = x.view(x.size(0), -1)
    flat.relu_()
    return x + x


def tied():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return nn.Sequential(first, second)


def shared_statistics():
    first, second = (nn.BatchNorm2d(2, affine=False) for _ in range(2))
    second.running_mean = first.running_mean
    return nn.Sequential(first, second)


SEQUENTIAL = [
    ([nn.Conv2d(2, 3, 3)], (3, 4, 4), r"layer 0 \(Conv2d\): it takes 2 channels but gets 3"),
    ([nn.Conv2d(2, 3, 3)], (2, 2, 2), r"layer 0 \(Conv2d\): .*[Kk]ernel size can't be greater"),
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
    ([nn.Linear(4, 3), nn.Softsign()], (4,), r"layer 1 \(Softsign\): .* allowed are Conv2d"),
    (
        [nn.ConvTranspose2d(2, 3, 3, output_padding=1, dilation=2)],
        (2, 3, 3),
        r"\(ConvTranspose2d\): output_padding must be less than the stride \(1, 1\), not \(1, 1\)",
    ),
    ([nn.ConvTranspose2d(4, 3, 1)], (2, 3, 3), "it takes 4 channels but gets 2"),
    ([nn.BatchNorm2d(2, momentum=None)], (2, 3, 3), "momentum must be a number, not None"),
    ([nn.BatchNorm2d(2)], (3, 3, 3), r"layer 0 \(BatchNorm2d\): it takes 2 channels but gets 3"),
    ([nn.Flatten(), nn.BatchNorm1d(12)], (3, 2, 2), "BatchNorm2d takes maps"),
    ([nn.BatchNorm2d(4)], (4,), "BatchNorm2d takes maps"),
    ([nn.GroupNorm(2, 4)], (6, 3, 3), r"\(GroupNorm\): it takes 4 channels but gets 6"),
    ([nn.GroupNorm(2, 4)], (4,), r"\(GroupNorm\): its input has been flattened to vectors"),
    ([nn.MaxPool2d(2, dilation=2)], (2, 5, 5), "dilation must be 1, not 2"),
    ([nn.MaxPool2d(2, return_indices=True)], (2, 5, 5), "return_indices must be False, not True"),
    ([nn.MaxPool2d(4)], (2, 3, 3), r"layer 0 \(MaxPool2d\): .*[Oo]utput size is too small"),
    ([nn.AvgPool2d(2, padding=2)], (2, 3, 3), r"layer 0 \(AvgPool2d\): .*half of"),
    ([nn.AvgPool2d(2, divisor_override=-3)], (2, 3, 3), "divisor_override must be at least 1, not"),
    (
        [nn.AdaptiveAvgPool2d(3)],
        (2, 6, 4),
        r"output_size must divide the map of \(6, 4\), not be 3",
    ),
    ([nn.Hardtanh(0.5, 0.5 + 1e-9)], (2, 6, 4), "layer 0 .Hardtanh.: its limits must be"),
    ([nn.GELU("sigmoid")], (4,), r"\(GELU\): approximate must be 'none' or 'tanh', not 'sigmoid'"),
    (
        [nn.Softmax(2)],
        (2, 4, 4),
        r"\(Softmax\): it must be taken over the channels, dim=1, not dim=2",
    ),
    ([nn.Softmax(1)], (4, 3), r"\(Softmax\): it must be taken over the channels, dim=2, not dim=1"),
    ([nn.Flatten(), nn.Softmax(1)], (2, 2, 2), r"a map \(2, 2, 2\) that has been fl"),
    ([nn.TransformerEncoderLayer(4, 2)], (3, 4), r"0 \(TransformerEncoderLayer\): .* write linear"),
    ([nn.Softplus(2)], (4,), r"\(Softplus\): beta must be 1, not 2"),
    ([nn.Softplus(threshold=5)], (4,), r"\(Softplus\): threshold must be at least 20, not 5"),
    ([nn.LeakyReLU(-0.1)], (4,), r"\(LeakyReLU\): negative_slope must be finite and not negative"),
    ([nn.Upsample(scale_factor=1.5)], (2, 4, 4), r"\(Upsample\): .* whole factors, not by \[1.5"),
    ([nn.Upsample(scale_factor=2, mode="bilinear")], (2, 4, 4), "mode must be 'nearest', not 'b"),
    ([nn.Dropout(1.0)], (4,), r"\(Dropout\): p must be at least 0 and below 1, not 1.0"),
    ([nn.Dropout2d(0.3)], (4,), r"\(Dropout2d\): its input has been flattened to vectors"),
    (
        [nn.Flatten(2)],
        (2, 3, 3),
        r"layer 0 \(Flatten\): .*end_dim=-1 or 3, not start_dim=2 and end_dim=-1",
    ),
    ([nn.Linear(3, 3)] * 2, (3,), r"\(Linear\): its parameters are used twice"),
    ([], (3,), "the network has no layer"),
    (
        [nn.ReLU()],
        (2, 2, 2, 2),
        r"input_shape must be \(C, H, W\), \(features,\) or \(T, C\), \(T,\)",
    ),
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
        (Forward(lambda self, x: (x.relu(), x)), "layer x: an output must be what a layer"),
        (
            Forward(lambda self, x: x + self.conv(x), conv=nn.Conv2d(2, 1, 1)),
            r"layer add \(add\): it adds maps of \(2, 4, 4\) and \(1, 4, 4\)",
        ),
        (
            Forward(lambda self, x: x.erf()),
            r"layer erf \(erf\): erf is not supported; allowed",
        ),
        (
            Forward(lambda self, x: torch.flatten(x)),
            r"layer flatten \(flatten\): .*, not start_dim=0 and end_dim=-1",
        ),
        (
            Forward(lambda self, x: (self.a(x), x.relu())[0], a=nn.Conv2d(2, 2, 1)),
            "layer a: the output must be the last layer",
        ),
        (
            Forward(lambda self, x: x.relu() if x.sum() > 0 else x),
            "the model Forward cannot be traced by torch.fx, its forward must not depend on data",
        ),
        (
            nn.Sequential(*[nn.Conv2d(2, 2, 1)] * 2),
            r"layer 0 \(Conv2d\): its parameters are used twice, because the module is called "
            "twice; each layer must have its own",
        ),
        (
            nn.Sequential(*[nn.BatchNorm2d(2, affine=False)] * 2),
            r"layer 0 \(BatchNorm2d\): its buffers, running_mean, .*, are used twice, because the "
            "module is called twice",
        ),
        (
            nn.Sequential(*[nn.BatchNorm2d(2, affine=False)] * 2).eval(),
            r"layer 0 \(BatchNorm2d\): its buffers, .* are used twice",
        ),
        (shared_statistics(), r"layer 1 \(BatchNorm2d\): its buffers, .* used twice, by 0 as well"),
        (
            Forward(lambda self, x: x.transpose(1, 2)),
            r"layer transpose .* are for sequences: .*; its input is a map \(2, 4, 4\)",
        ),
        (
            Forward(lambda self, x: x.flatten(1).unflatten(1, (2, 16)).permute(0, 2, 1)),
            r"layer unflatten \(unflatten\): .* are for sequences: .*; its input is vectors",
        ),
        (nn.Conv2d(2, 2, 1), "a module's own tensor or constant, weight, cannot"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(32, 3), tied()),
            r"2.1 \(Linear\): its parameters are used twice, by 2.0 as well",
        ),
        (
            Forward(lambda self, x: torch.cat([self.a(x), x], 1), a=nn.Conv2d(2, 2, (2, 1))),
            r"layer cat \(cat\): Sizes of tensors must match except in dimension 1",
        ),
        (
            Forward(lambda self, x: torch.cat([x, x], 2)),
            r"layer cat \(cat\): it must join channels, dim=1, not dim=2",
        ),
        (
            Forward(lambda self, x: x.relu().mean((2, 3), True, out=x)),
            "layer mean.*(its arguments are|unexpected keyword)",
        ),
        (Forward(lambda self, x: x / x), r"layer truediv .*: it must divide by a number, not by x"),
        (Forward(lambda self, x: x / 0), "it divides by 0"),
        (
            Forward(lambda self, x: x * float("inf")),
            "its numbers must be finite in float32, not inf",
        ),
        (
            Forward(lambda self, x: x.mean(1)),
            r"layer mean \(mean\): it must be taken over height and width, dim=\(2, 3\), not dim=1",
        ),
        (
            Forward(lambda self, x: changed_view(x)),
            r"layer add.*: it reads x, a view of a map that relu_ \(relu_\) has changed in place",
        ),
        (
            Forward(lambda self, x: self.patch(x), patch=Forward(lambda self, x: x.flatten(2))),
            r"layer flatten \(flatten in patch Forward\): .* not start_dim=2 and end_dim=-1",
        ),
        (
            Forward(lambda self, x: x.reshape(x.shape[0], 2, -1)),
            r"layer reshape \(reshape\): it must leave the map .* not make \(2, 16\) of it",
        ),
        (
            Forward(lambda self, x: x.T),
            r"layer getattr_1 \(reading .T\): reading .T is not supported",
        ),
        (
            Forward(lambda self, x: x.view(7, 16, 2)),
            r"layer view \(view\): it must leave the map",
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


def test_what_is_a_layer_without_buffers_may_be_used_twice():
    """Statistics of the batch alone."""
    norm = nn.BatchNorm2d(2, affine=False, track_running_stats=False)
    kinds = [layer.kind for layer in trace(nn.Sequential(norm, norm), (2, 4, 4))]
    assert kinds == ["input", "batch_norm", "batch_norm"]
