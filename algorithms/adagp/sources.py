"""Where Phase GP takes its gradients from: the predictor, or a control in its place.

A source knows layers by their number. ``guess`` gives (O, n), or None for no guess, from what was
learnt of the batches before; ``learn`` takes in one batch of Phase BP. Both get the layer's
reorganised output (O, 1, S, S). Batches with numbers that are not finite are not learnt from.
"""

import math

import torch
from torch import nn

from golden.prediction.config import PredictorConfig
from golden.prediction.float_predictor import Predictor

from .gate import running
from .history import History

__all__ = ["Coast", "Predicted", "Remembered", "make_source"]

#: Added to the variance of a layer's input to the predictor, so that a constant one is no fault.
EPSILON = 1e-8


class Predicted(nn.Module):
    """Gradients from the predictor, with running statistics of every layer.

    Of a layer they are the mean μ and variance σ² of its reorganised output and the mean square s²
    of its true gradient, each the running value over the batches before; the layer's first batch of
    Phase BP sets them before they are used.

    Parameters
    ----------
    shapes : (O, n) of every layer
    config : :class:`golden.prediction.config.PredictorConfig`
    """

    def __init__(self, shapes, config: PredictorConfig):
        super().__init__()
        self.config = config
        self.sizes = [size for _, size in shapes]
        self.predictor = Predictor(self.sizes, config)
        self.statistics = [{"mean": 0.0, "variance": 0.0, "square": None} for _ in shapes]

    def guess(self, layer: int, maps: torch.Tensor) -> torch.Tensor | None:
        """s · o, before the gate. None until the layer has seen a true gradient other than 0."""
        if not self.statistics[layer]["square"]:
            return None
        with torch.no_grad():
            outputs = self.predictor(self._standardized(layer, maps), self.sizes[layer])
        return outputs * self._scale(layer)

    def learn(self, layer: int, maps: torch.Tensor, gradient: torch.Tensor) -> None:
        """One step of the predictor towards g / s, then the statistics for the next batch."""
        new = {
            "mean": maps.mean().item(),
            "variance": maps.var(correction=0).item(),
            "square": gradient.square().mean().item(),
        }
        if not all(map(math.isfinite, new.values())):
            return
        old = self.statistics[layer]
        if old["square"] is None:
            old.update(new)
        if old["square"]:
            self.predictor.learn(self._standardized(layer, maps), gradient / self._scale(layer))
        for name, value in new.items():
            old[name] = running(old[name], value, self.config.running)

    def begin_epoch(self, epoch: int) -> None:
        """Set the predictor's learning rate for an epoch, counted from 0."""
        passed = sum(epoch >= milestone for milestone in self.config.milestones)
        for group in self.predictor.optimizer.param_groups:
            group["lr"] = self.config.learning_rate / 10**passed

    def _standardized(self, layer, maps):
        if not self.config.standardize:
            return maps
        values = self.statistics[layer]
        return (maps - values["mean"]) / math.sqrt(values["variance"] + EPSILON)

    def _scale(self, layer):
        return math.sqrt(self.statistics[layer]["square"]) if self.config.scale else 1.0

    def get_extra_state(self):
        """What torch's ``state_dict`` does not know of."""
        return {
            "statistics": [dict(values) for values in self.statistics],
            "optimizer": self.predictor.optimizer.state_dict(),
        }

    def set_extra_state(self, state):
        """The inverse of :meth:`get_extra_state`."""
        self.statistics = [dict(values) for values in state["statistics"]]
        self.predictor.optimizer.load_state_dict(state["optimizer"])


class Remembered(nn.Module):
    """The running mean of a layer's true gradients; with ``factor`` 0 the latest one.

    Parameters
    ----------
    shapes : (O, n) of every layer
    """

    def __init__(self, shapes, factor: float):
        super().__init__()
        self.factor = factor
        self.gradients = [None] * len(shapes)
        self.register_buffer("place", torch.empty(0), persistent=False)  # on the source's device

    def guess(self, layer: int, maps: torch.Tensor) -> torch.Tensor | None:
        """What is remembered."""
        return self.gradients[layer]

    def learn(self, layer: int, maps: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take the gradient in; the first one as it is."""
        if not bool(torch.isfinite(gradient).all()):
            return
        old = self.gradients[layer]
        new = gradient if old is None else self.factor * old + (1 - self.factor) * gradient
        self.gradients[layer] = new.clone()

    def begin_epoch(self, epoch: int) -> None:
        """Nothing to do."""

    def get_extra_state(self):
        """The remembered gradients."""
        return list(self.gradients)

    def set_extra_state(self, state):
        """The inverse of :meth:`get_extra_state`."""
        self.gradients = [None if old is None else old.to(self.place.device) for old in state]


class Coast(nn.Module):
    """Zero: the optimizer's momentum moves the weights on. It is what a shut gate does.

    Parameters
    ----------
    shapes : (O, n) of every layer
    """

    def __init__(self, shapes):
        super().__init__()
        self.shapes = list(shapes)

    def guess(self, layer: int, maps: torch.Tensor) -> torch.Tensor:
        """(O, n) zeros."""
        return maps.new_zeros(self.shapes[layer])

    def learn(self, layer: int, maps: torch.Tensor, gradient: torch.Tensor) -> None:
        """Nothing to do."""

    def begin_epoch(self, epoch: int) -> None:
        """Nothing to do."""


def make_source(shapes, config: PredictorConfig) -> nn.Module:
    """The source that ``config`` names, for layers of ``shapes`` (O, n)."""
    if config.source == "predictor":
        return Predicted(shapes, config)
    if config.source == "coast":
        return Coast(shapes)
    if config.source == "history":
        return History(shapes, config)
    return Remembered(shapes, config.running if config.source == "mean" else 0.0)
