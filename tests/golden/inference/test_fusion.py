"""Which layers become one fused product, with and without a vector unit."""

import pytest
import torch
from torch import nn

from golden.frontend.torch_graph import trace
from golden.inference.fusion import fuse

CONV = lambda: nn.Conv2d(3, 5, 3)  # noqa: E731

#: Layers -> (kind, relu, pool kind, number of layers) of each product without a vector unit.
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


def products_of(layers, shape=(3, 8, 9), **options):
    nodes = fuse(trace(nn.Sequential(*layers), shape), **options)
    return [node.options.get("product") for node in nodes[1:]]


def described(product):
    if product is None:
        return None
    kind = "identity" if product.module is None else type(product.module).__name__.lower()
    layers = product.name.removeprefix("identity, ").count(",") + 1
    return kind, product.relu, product.pool and product.pool.kind, layers


@pytest.mark.parametrize("case", GROUPINGS)
def test_grouping(case):
    """A vector unit does what has no product to belong to."""
    layers, expected = GROUPINGS[case]
    found = products_of(layers, vector=False)
    assert [described(product) for product in found] == expected
    assert [product.wide for product in found] == [False] * (len(found) - 1) + [True]
    with_vector = [described(product) for product in products_of(layers)]
    assert [product for product in with_vector if product] == [
        product for product in expected if product[0] != "identity"
    ]


def test_names_and_shapes():
    model = nn.Sequential()
    model.add_module("first", nn.Conv2d(3, 5, (3, 1), stride=(2, 1), padding=(1, 0)))
    model.add_module("pool", nn.MaxPool2d((2, 3), stride=(1, 2)))
    model.add_module("flat", nn.Flatten())
    model.add_module("last", nn.Linear(5 * 3 * 4, 2))
    nodes = fuse(trace(model, (3, 8, 9)))
    assert [(node.name, node.inputs) for node in nodes[1:]] == [
        ("flat", ("input_1",)), ("last", ("flat",)),
    ]  # fmt: skip
    first, last = (node.options["product"] for node in nodes[1:])
    assert first.name == "first, pool, flat"
    assert (first.sums_shape, first.output_shape) == ((5, 4, 9), (5, 3, 4))
    assert (last.input_shape, last.kernel, last.output_shape) == ((5, 3, 4), (3, 4), (2, 1, 1))
    assert (first.macs, last.macs) == (5 * 4 * 9 * 3 * 3, 120)


def test_what_others_read_stays():
    """A sum of which others read the parts, and an output that is flattened by nobody."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.relu = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.ReLU()

        def forward(self, x):
            y = self.one(x)
            return self.relu(self.two(y) + y)

    nodes = fuse(trace(Residual(), (3, 4, 4)))
    assert [node.kind for node in nodes[1:]] == ["fused", "fused", "add", "relu"]


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AvgPool2d(6),
    ],
)
def test_pooling_that_post_does_not_know(pool):
    layers = [nn.Conv2d(3, 5, 3), pool]
    assert [product is None for product in products_of(layers, window=35)] == [False, True]
    with pytest.raises(ValueError, match=r"Layer 1 \(.*_pool\) needs a vector unit"):
        products_of(layers, vector=False, window=35)


def test_reference_is_torch(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, stride=2, padding=2, dilation=2, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(5, 4),
    ).double()
    image = torch.randn(2, 3, 8, 7, dtype=torch.float64)
    x = image
    for product in products_of(model, (3, 8, 7), vector=False):
        x = product.reference(x.reshape(2, *product.input_shape))
        assert tuple(x.shape[1:]) == product.output_shape
    assert torch.allclose(x.reshape(2, -1), model(image), rtol=0, atol=1e-12)


def test_layers_that_need_a_vector_unit_are_named():
    with pytest.raises(ValueError, match=r"Layer 0 \(sigmoid\) needs a vector unit"):
        products_of([nn.Sigmoid()], vector=False)
    with pytest.raises(ValueError, match=r"Layer 1 \(batch_norm\) needs a vector unit"):
        products_of([CONV(), nn.BatchNorm2d(5)], vector=False)
