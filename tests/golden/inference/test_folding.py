"""Inference of any graph: folded normalisation against torch in float64.

The arithmetic of every layer is that of training, which is compared layer by layer with torch in
tests/golden/training/test_step.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from golden.frontend.torch_graph import trace
from golden.inference.folding import fold
from golden.inference.network import Network

PRODUCTS = {
    "convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (4, 5, 4)),
    "without a bias": (lambda: nn.Conv2d(3, 5, 2, bias=False), nn.BatchNorm2d(5), (3, 4, 4)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), (4, 5, 4)),
    "linear": (lambda: nn.Linear(7, 5), nn.BatchNorm1d(5, affine=False), (7,)),
}


def random_network(name, seed):
    torch.manual_seed(seed)
    make, norm, shape = PRODUCTS[name]
    norm.running_mean.copy_(torch.randn(norm.num_features))
    norm.running_var.copy_(0.3 + torch.rand(norm.num_features))
    if norm.affine:
        norm.weight.data.copy_(torch.randn(norm.num_features))
        norm.bias.data.copy_(torch.randn(norm.num_features))
    return nn.Sequential(make(), norm).eval(), shape


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_folded_product_is_both_layers(name, seed):
    """But for the rounding of its numbers to float32, 2**-24 of each, which the products of the
    magnitudes add up; float64's own are 2**-29 of that."""
    model, shape = random_network(name, seed)
    (_, node) = fold(trace(model, shape))
    module, x = node.module.double(), torch.randn((8, *shape), dtype=torch.float64)
    with torch.no_grad():
        expected, actual = model.double()(x), module(x)
        for values in module.parameters():
            values.abs_()
        bound = 2.0**-24 * (1 + 2.0**-10) * module(x.abs())
    assert ((actual - expected).abs() <= bound).all()
    assert node.trainable == () and node.output == 0


def test_what_is_left_alone(seed):
    """Normalisation of the input, of a map that others read, and by the batch."""

    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.conv = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)
            self.second, self.last = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)
            self.third = nn.BatchNorm2d(2, track_running_stats=False)

        def forward(self, x):
            x = self.conv(self.first(x))
            return self.third(self.last(x + self.second(x)))

    torch.manual_seed(seed)
    model = Several()
    network = Network(model, input_shape=(2, 3, 3), rows=3, columns=2)
    kinds = [node.kind for node in network.nodes[1:]]
    assert kinds == ["fixed_norm", "fused", "fixed_norm", "add", "fused", "batch_norm"]
    images = np.random.default_rng(seed).standard_normal((2, 3, 3, 2))
    assert list(network.stored(images)) == [node.name for node in network.nodes]
    assert model.training
