"""Networks cut into stages."""

import pytest
import torch
from torch import nn

from algorithms.networks.registry import SMALL
from algorithms.pipeline.partition import cut, even_runs


def test_runs_are_as_even_as_can_be():
    assert [list(run) for run in even_runs([5, 1, 1, 1, 5], 3)] == [[0], [1, 2, 3], [4]]
    assert [len(run) for run in even_runs([1] * 9, 4)] in ([2, 2, 2, 3], [3, 2, 2, 2])
    with pytest.raises(ValueError, match="stages must be at most 2, not 3"):
        even_runs([1, 1], 3)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("stages", [2, 4])
def test_stages_are_the_network(name, stages, seed):
    """The same modules, and the same outputs."""
    torch.manual_seed(seed)
    model = SMALL[name]((1, 8, 8), 10).eval()
    images = torch.randn(3, 1, 8, 8)
    parts = cut(model, stages, images[:1])
    assert len(parts) == stages
    assert [layer for part in parts for layer in part] == list(model)
    assert torch.equal(nn.Sequential(*parts)(images), model(images))
    for part in parts:
        assert any(isinstance(each, nn.Conv2d | nn.Linear) for each in part[0].modules())


def test_what_cannot_be_cut():
    images = torch.zeros(1, 4)
    with pytest.raises(ValueError, match=r"model must be an nn\.Sequential, .* not Linear"):
        cut(nn.Linear(4, 4), 2, images)
    with pytest.raises(ValueError, match="layer 1 draws random numbers"):
        cut(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)), 2, images)
    with pytest.raises(ValueError, match="stages must be at most 1, not 2"):
        cut(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), 2, images)
