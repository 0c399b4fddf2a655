"""A small problem: which of three numbers is the largest?"""

import torch
from torch import nn


def problem(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network, 240 inputs of 6 numbers, and their labels."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    inputs = torch.randn(240, 6)
    return model, inputs, inputs[:, :3].argmax(1)
