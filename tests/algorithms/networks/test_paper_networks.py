"""Networks of the paper: published sizes, variants for small images, every parameter learns.

Covers: algorithms/networks/blocks.py.
"""

import pytest
import torch
from torch import nn

from algorithms.networks.network_facts import examine
from algorithms.networks.paper_networks import LARGE, LEAST, NETWORKS, imagenet_shape
from golden.frontend.torch_graph import trace

#: Parameters with 1000 classes as torchvision gives them (of Inception-V4 as timm does), millions
#: of multiplications in a forward pass. VGG's convolutions have no bias here, Inception-V3 no
#: auxiliary classifier.
PUBLISHED = {
    "vgg11": (132_868_840 - 2752, 7609),
    "vgg13": (133_053_736 - 2944, 11308),
    "vgg16": (138_365_992 - 4224, 15470),
    "vgg19": (143_678_248 - 5504, 19632),
    "resnet18": (11_689_512, 1814),
    "resnet50": (25_557_032, 4089),
    "resnet101": (44_549_160, 7801),
    "resnet152": (60_192_808, 11514),
    "densenet121": (7_978_856, 2834),
    "densenet161": (28_681_000, 7728),
    "densenet169": (14_149_480, 3360),
    "densenet201": (20_013_928, 4291),
    "mobilenet-v2": (3_504_872, 301),
    "inception-v3": (27_161_264 - 3_326_696, 5713),
    "inception-v4": (42_679_816, 12254),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_published_sizes(name):
    facts = examine(name, imagenet_shape(name), 1000)
    assert (facts.parameters, round(facts.macs / 1e6)) == PUBLISHED[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_small_images_have_the_same_layers(name):
    """As many, with as many weights, but for the stem and VGG's linear layers."""
    small = examine(name, (3, 32, 32), 1000)
    large = examine(name, imagenet_shape(name), 1000)
    ours, theirs = ([(layer.outputs, layer.size) for layer in facts.layers]
                    for facts in (small, large))  # fmt: skip
    if name.startswith("vgg"):
        assert ours == theirs[:-2]
    else:
        assert ours[1:] == theirs[1:] and ours[0][0] == theirs[0][0]


@pytest.mark.parametrize(
    ("name", "last"),
    [("vgg19", 2), ("resnet18", 4), ("resnet50", 4), ("densenet121", 4), ("mobilenet-v2", 4),
     ("inception-v3", 7), ("inception-v4", 7)],
)  # fmt: skip
def test_small_images_are_halved_less_often(name, last):
    """Maps of the first convolution and of the last one: of Inception ((32 - 1) / 2 - 1) / 2."""
    layers = examine(name, (3, 32, 32), 10).layers
    assert (layers[0].pixels, layers[-1].pixels) == (32 * 32, last * last)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("vgg11", (1, 8, 9)), ("resnet18", (3, 8, 8)), ("mobilenet-v2", (2, 9, 8))],
)
def test_every_parameter_learns(name, shape, seed):
    torch.manual_seed(seed)
    model = NETWORKS[name](shape, 7)
    logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(value.grad is not None for value in model.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_smallest_images(name):
    with torch.device("meta"):
        assert NETWORKS[name]((2, LEAST, 13), 7)(torch.empty(2, 2, LEAST, 13)).shape == (2, 7)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_be_traced(name):
    with torch.device("meta"):
        model = NETWORKS[name]((3, 32, 32), 10)
    kinds = [node.kind for node in trace(model, (3, 32, 32))]
    wanted = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert kinds.count("convolution") + kinds.count("depthwise") == wanted
    assert kinds.count("linear") == 1


@pytest.mark.parametrize("name", NETWORKS)
def test_narrow_networks_have_the_same_graph(name):
    """The same layers in the same order, with fewer channels, multiples of 4."""
    with torch.device("meta"):
        wide, narrow = (NETWORKS[name]((3, 16, 16), 5, width=width) for width in (1.0, 1 / 16))
    ours, theirs = ([module for module in model.modules() if not list(module.children())]
                    for model in (narrow, wide))  # fmt: skip
    assert list(map(type, ours)) == list(map(type, theirs))
    for own, other in zip(ours, theirs, strict=True):
        if isinstance(own, nn.Conv2d):
            assert own.out_channels % 4 == 0 and 4 <= own.out_channels <= other.out_channels / 4
            same = ("kernel_size", "stride", "padding")
            assert all(getattr(own, key) == getattr(other, key) for key in same)


def test_a_dense_layer_keeps_its_input(seed):
    torch.manual_seed(seed)
    layer = NETWORKS["densenet121"]((1, 8, 8), 10)[3].eval()
    x = torch.randn(2, 64, 8, 8)
    y = layer(x)
    assert y.shape == (2, 96, 8, 8) and torch.equal(y[:, :64], x)
    assert torch.equal(y[:, 64:], layer[1](x)) and y[:, 64:].abs().sum() > 0


def test_an_inverted_residual_adds_its_input_unclipped(seed):
    torch.manual_seed(seed)
    model = NETWORKS["mobilenet-v2"]((1, 8, 8), 10).eval()
    block = next(module for module in model if hasattr(module, "body"))
    x = torch.randn(2, 24, 8, 8)
    assert torch.equal(block(x), block.body(x) + x) and block(x).min() < 0


@pytest.mark.parametrize("shape", [(3, LEAST - 1, 32), (3, 32, LEAST - 1)])
def test_too_small_images(shape):
    for network in NETWORKS.values():
        with pytest.raises(ValueError, match=f"at least 8 x 8 pixels, not {shape[1]} x {shape[2]}"):
            network(shape, 10)


def test_the_limit_of_large_images():
    stem = {side: NETWORKS["resnet18"]((3, side, LARGE), 10)[0] for side in (LARGE - 1, LARGE)}
    assert [layer.kernel_size for layer in stem.values()] == [(3, 3), (7, 7)]
