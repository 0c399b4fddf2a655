"""Grouping of torch layers into stages, and the messages for what is not supported."""

import pytest
import torch
from torch import nn

from golden.inference.stages import group_layers

CONV = lambda: nn.Conv2d(3, 5, 3)  # noqa: E731

#: Layers -> (kind, relu, pool kind, number of layers in the stage) of each stage.
GROUPINGS = {
    "conv": ([CONV()], [("conv2d", False, None, 1)]),
    "conv relu": ([CONV(), nn.ReLU()], [("conv2d", True, None, 2)]),
    "conv relu max": (
        [CONV(), nn.ReLU(), nn.MaxPool2d(2)],
        [("conv2d", True, "max", 3)],
    ),
    "conv max relu": (
        [CONV(), nn.MaxPool2d(2), nn.ReLU()],
        [("conv2d", True, "max", 3)],
    ),
    "conv average relu": (
        [CONV(), nn.AvgPool2d(2), nn.ReLU()],
        [("conv2d", False, "average", 2), ("identity", True, None, 1)],
    ),
    "two pools": (
        [CONV(), nn.MaxPool2d(2), nn.AvgPool2d(2)],
        [("conv2d", False, "max", 2), ("identity", False, "average", 1)],
    ),
    "pool first, relu joins": (
        [nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2)],
        [("identity", True, "max", 2), ("identity", False, "max", 1)],
    ),
    "relu first, twice": (
        [nn.ReLU(), nn.ReLU(), CONV()],
        [("identity", True, None, 2), ("conv2d", False, None, 1)],
    ),
    "relu behind flatten": (
        [CONV(), nn.Flatten(), nn.ReLU(), nn.Linear(5 * 6 * 7, 4), nn.ReLU()],
        [("conv2d", True, None, 3), ("linear", True, None, 2)],
    ),
    "nested": (
        [nn.Sequential(CONV(), nn.Sequential(nn.ReLU())), nn.Conv2d(5, 1, 1)],
        [("conv2d", True, None, 2), ("conv2d", False, None, 1)],
    ),
}


@pytest.mark.parametrize("case", GROUPINGS)
def test_grouping(case):
    layers, expected = GROUPINGS[case]
    stages = group_layers(nn.Sequential(*layers), (3, 8, 9))
    found = [
        (stage.kind, stage.relu, stage.pool and stage.pool.kind, stage.name.count(",") + 1)
        for stage in stages
    ]
    assert found == expected
    assert [stage.wide for stage in stages] == [False] * (len(stages) - 1) + [True]


def test_names_and_shapes():
    model = nn.Sequential()
    model.add_module("first", nn.Conv2d(3, 5, (3, 1), stride=(2, 1), padding=(1, 0)))
    model.add_module("pool", nn.MaxPool2d((2, 3), stride=(1, 2)))
    model.add_module("flat", nn.Flatten())
    model.add_module("last", nn.Linear(5 * 3 * 4, 2))
    first, last = group_layers(model, (3, 8, 9))
    assert first.name == "first Conv2d, pool MaxPool2d, flat Flatten"
    assert (first.sums_shape, first.output_shape) == ((5, 4, 9), (5, 3, 4))
    assert (last.input_shape, last.kernel, last.output_shape) == ((5, 3, 4), (3, 4), (2, 1, 1))
    assert (first.macs, last.macs) == (5 * 4 * 9 * 3 * 3, 120)
    assert first.flattened and last.flattened


def test_reference_is_torch(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(5, 4),
    ).double()
    image = torch.randn(2, 3, 8, 7, dtype=torch.float64)
    x = image
    for stage in group_layers(model, (3, 8, 7)):
        x = stage.reference(x.reshape(2, *stage.input_shape))
        assert tuple(x.shape[1:]) == stage.output_shape
    assert torch.allclose(x.reshape(2, -1), model(image), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Conv2d(3, 3, 3, groups=3)], "Layer 0 Conv2d is not supported: groups must be 1"),
        ([nn.Conv2d(3, 3, 3, dilation=2)], r"Layer 0 Conv2d .*dilation must be 1, not \(2, 2\)"),
        ([nn.Conv2d(3, 3, 3, padding="same")], "padding must be given in numbers, not 'same'"),
        ([nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")], "padding_mode must be 'zeros'"),
        ([nn.Conv2d(4, 3, 3)], "it takes 4 channels but gets 3"),
        ([nn.Conv2d(3, 3, 10)], r"its kernel \(10, 10\) does not fit the 8 x 9 map"),
        ([nn.Flatten(), nn.Conv2d(3, 3, 1)], "Layer 1 Conv2d .*has been flattened"),
        ([nn.Linear(9, 3)], "Layer 0 Linear .*a Flatten layer must come before it"),
        ([nn.Flatten(), nn.Linear(9, 3)], "it takes 9 features but gets 216"),
        ([nn.MaxPool2d(3, padding=1)], "Layer 0 MaxPool2d .*padding must be 0, not 1"),
        ([nn.MaxPool2d(2, ceil_mode=True)], "ceil_mode must be False"),
        ([nn.MaxPool2d(2, dilation=2)], "dilation must be 1, not 2"),
        ([nn.MaxPool2d(2, return_indices=True)], "return_indices must be False"),
        ([nn.MaxPool2d(9)], r"its kernel \(9, 9\) does not fit the 8 x 9 map"),
        ([nn.AvgPool2d(3, padding=1)], "padding must be 0, not 1"),
        ([nn.AvgPool2d(2, divisor_override=3)], "divisor_override must be None, not 3"),
        ([nn.Flatten(), nn.AvgPool2d(1)], "Layer 1 AvgPool2d .*has been flattened"),
        ([nn.Flatten(0)], "start_dim 1 and end_dim -1, not 0 and -1"),
        ([CONV(), nn.BatchNorm2d(5)], "Layer 1 BatchNorm2d .*supported are Conv2d, Linear, ReLU"),
        ([nn.Sequential(nn.Sigmoid())], "Layer 0.0 Sigmoid is not supported"),
        ([nn.Flatten()], "no layer that computes anything"),
    ],
)
def test_unsupported_layers_are_named(layers, message):
    with pytest.raises(ValueError, match=message):
        group_layers(nn.Sequential(*layers), (3, 8, 9))


def test_other_arguments_are_checked():
    with pytest.raises(ValueError, match=r"must be a torch.nn.Sequential, not Conv2d"):
        group_layers(CONV(), (3, 8, 9))
    with pytest.raises(ValueError, match=r"input_shape must be \(C, H, W\) or \(features,\)"):
        group_layers(nn.Sequential(CONV()), (3, 8))
