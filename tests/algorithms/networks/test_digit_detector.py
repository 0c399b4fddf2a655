"""The detector of digits: a class and a position for each cell."""

import pytest
import torch

from algorithms.networks.digit_detector import DigitDetector
from golden.frontend.torch_graph import outputs_of, trace


@pytest.mark.parametrize("size", [16, 32])
def test_maps_of_cells(size, seed):
    torch.manual_seed(seed)
    model = DigitDetector(width=4)
    logits, offsets = model(torch.rand(3, 1, size, size))
    cells = size // 8
    assert logits.shape == (3, 11, cells, cells) and offsets.shape == (3, 2, cells, cells)
    (logits.sum() + offsets.sum()).backward()
    assert all(value.grad is not None for value in model.parameters())
    nodes = outputs_of(trace(model, (1, size, size)))
    assert [node.name for node in nodes] == ["classes", "offsets"]
