"""YOLO-v3: the published size, its outputs, and that every parameter learns."""

import pytest
import torch
from torch import nn

from algorithms.networks.yolo_v3 import ANCHORS, STRIDES, YoloV3


def test_published_size():
    """Parameters with 80 classes, as the authors' definition of the network has them; 75
    convolutions; billions of operations of an image, two for each multiplication, as published."""
    shape = (3, 416, 416)
    with torch.device("meta"):
        model = YoloV3(shape, 80).eval()
        operations, image = [], torch.empty(1, *shape)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(
                lambda layer, _, y: operations.append(2 * layer.weight[0].numel() * y.numel())
            )
    outputs = model(image)
    assert sum(value.numel() for value in model.parameters()) == 61_949_149
    assert len(operations) == 75
    assert round(sum(operations) / 1e9, 2) == 65.86
    sizes = [(1, ANCHORS * 85, 416 // stride, 416 // stride) for stride in STRIDES]
    assert [tuple(output.shape) for output in outputs] == sizes


def test_every_parameter_learns(seed):
    """With few channels, on the smallest images but for one side."""
    torch.manual_seed(seed)
    model = YoloV3((3, 32, 64), 2, width=1 / 16)
    outputs = model(torch.rand(2, 3, 32, 64))
    assert [tuple(output.shape[1:]) for output in outputs] == [(21, 1, 2), (21, 2, 4), (21, 4, 8)]
    sum(output.square().sum() for output in outputs).backward()
    assert all(value.grad is not None for value in model.parameters())


@pytest.mark.parametrize("size", [(48, 64), (32, 16), (0, 32)])
def test_messages(size):
    with pytest.raises(ValueError, match=f"multiples of 32, not {size[0]} x {size[1]}"):
        YoloV3((3, *size), 20)
