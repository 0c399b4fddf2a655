"""Small networks: shapes, what golden makes of their graphs, that every parameter learns."""

import pytest
import torch

from algorithms.networks.registry import SMALL
from golden.frontend.torch_graph import trace


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 13, 6)])
def test_shapes(name, shape, seed):
    torch.manual_seed(seed)
    model = SMALL[name](shape, 7)
    logits = model(torch.rand(5, *shape))
    assert logits.shape == (5, 7)
    logits.sum().backward()
    assert all(value.grad is not None for value in model.parameters())
    assert trace(model, shape)[-1].shape == (7, 1, 1)


def test_layers():
    kinds = {name: [node.kind for node in trace(SMALL[name]((1, 8, 8), 10), (1, 8, 8))]
             for name in SMALL}  # fmt: skip
    assert kinds["vgg"].count("convolution") == 4 and kinds["vgg"].count("linear") == 2
    # One at the start, two in each block, and the shortcut of the block that changes the shape.
    assert kinds["resnet"].count("convolution") == 8 and kinds["resnet"].count("add") == 3


def test_a_residual_block_adds_its_input(seed):
    torch.manual_seed(seed)
    block = SMALL["resnet"]((1, 8, 8), 10)[3].eval()
    x = torch.randn(2, 16, 8, 8)
    assert torch.equal(block(x), torch.relu(block.body(x) + x))
