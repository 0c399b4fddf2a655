"""The predictor: one network for all layers, masked to the size of each (section 3.3 of the paper).

Input (O, 1, S, S) of a layer with O output channels, output (O, n): for every output channel the
n = in_channels · kernel height · kernel width gradients of its weights.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from .config import PredictorConfig

__all__ = ["Predictor"]


class Predictor(nn.Module):
    """Conv2d 3×3 (1 → c, padding 1), ReLU, one fully connected layer of F = c · S² inputs.

    The fully connected layer has as many outputs as the largest layer needs; a layer of size n uses
    the first n. Its rows are held in parts that begin and end where a layer's size does: parts that
    a layer does not use have no gradient, so no optimizer moves them or their momentum.

    Parameters
    ----------
    sizes : n of every layer
    config : its channels, map_size, zero_start, optimizer and its numbers, seed
    """

    def __init__(self, sizes, config: PredictorConfig):
        super().__init__()
        sizes = sorted(set(sizes))
        if not sizes or sizes[0] < 1:
            raise ValueError(f"Predictor: sizes must be positive and not empty, not {sizes}")
        self.ends = tuple(sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.convolution = nn.Conv2d(1, config.channels, 3, padding=1)
            full = nn.Linear(config.features, sizes[-1])
        if config.zero_start:
            nn.init.zeros_(full.weight)
            nn.init.zeros_(full.bias)
        cuts = list(pairwise((0, *sizes)))
        self.weights = nn.ParameterList(full.weight.detach()[a:b].clone() for a, b in cuts)
        self.biases = nn.ParameterList(full.bias.detach()[a:b].clone() for a, b in cuts)
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(
                self.parameters(), lr=config.learning_rate, momentum=config.momentum
            )
        else:
            self.optimizer = torch.optim.Adam(self.parameters(), lr=config.learning_rate)

    def forward(self, maps: torch.Tensor, size: int) -> torch.Tensor:
        """(O, 1, S, S) to (O, size); ``size`` must be one of those it was made for."""
        if size not in self.ends:
            raise ValueError(f"Predictor: size must be one of {self.ends}, not {size}")
        used = self.ends.index(size) + 1
        hidden = functional.relu(self.convolution(maps)).flatten(1)
        weight = torch.cat(list(self.weights[:used]))
        return functional.linear(hidden, weight, torch.cat(list(self.biases[:used])))

    def learn(self, maps: torch.Tensor, target: torch.Tensor) -> float:
        """One step towards ``target`` (O, n) on the mean squared error; returns that error.

        If the error or a gradient is not finite nothing changes.
        """
        self.optimizer.zero_grad()
        error = functional.mse_loss(self(maps, target.shape[1]), target)
        error.backward()
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        if all(bool(torch.isfinite(values).all()) for values in (error, *gradients)):
            self.optimizer.step()
        return error.item()
