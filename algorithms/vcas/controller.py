"""How much is sampled: ratios that keep the median of the variance that they add at a share of
SGD's own (docs/algorithm.md says why the median, and how far the mean is above it)."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import torch

from .sampling import share_of_norm

__all__ = ["Controller", "Ratios", "VCASConfig"]


@dataclass(frozen=True, kw_only=True)
class VCASConfig:
    """Choices of VCAS; defaults are those of the authors' code (thu-ml/VCAS).

    Members
    -------
    every : steps between two measurements (F)
    repetitions : batches of a measurement, and samples of each (M)
    images_share : of SGD's variance that sampling images may add (τ_act)
    weights_share : of a layer's variance that sampling rows of its weight gradient may add (τ_w)
    norm_step : by which the share of norm to keep, s, goes up or down (α)
    weights_factor : by which the ratio of rows goes down, or up (β)
    smoothing : weight of the past in a layer's ratio of images
    ratio, weights_ratio : of every layer, before the first measurement

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    every: int = 100
    repetitions: int = 2
    images_share: float = 0.025
    weights_share: float = 0.025
    norm_step: float = 0.01
    weights_factor: float = 0.95
    smoothing: float = 0.6
    ratio: float = 1.0
    weights_ratio: float = 1.0

    def __post_init__(self) -> None:
        limits = {
            "every": self.every >= 1,
            "repetitions": self.repetitions >= 2,
            "images_share": self.images_share >= 0,
            "weights_share": self.weights_share >= 0,
            "norm_step": 0 < self.norm_step < 1,
            "weights_factor": 0 < self.weights_factor < 1,
            "smoothing": 0 <= self.smoothing < 1,
            "ratio": 0 < self.ratio <= 1,
            "weights_ratio": 0 < self.weights_ratio <= 1,
        }
        wrong = [name for name, right in limits.items() if not right]
        if wrong:
            values = asdict(self)
            raise ValueError(
                "VCASConfig: " + "; ".join(f"{name} cannot be {values[name]!r}" for name in wrong)
            )


class Ratios(Protocol):
    """What a controller knows of a layer: its expected shares of images (ρ) and of rows (ν)."""

    name: str
    ratio: float
    weights_ratio: float


class Controller:
    """Ratios of all layers, from measurements.

    Parameters
    ----------
    layers : whose ratios it changes, such as :class:`~algorithms.vcas.layers.SampledLayer`, from
        the input to the loss
    config : VCASConfig

    Members
    -------
    norm : s, the share of the gradient's norm that images which are kept hold
    added : what the last measurement has found: the variance that sampling images adds, and SGD's
    """

    def __init__(self, layers: Sequence[Ratios], config: VCASConfig) -> None:
        self.layers, self.config = layers, config
        self.norm = 1.0
        self.added: tuple[float, float] | None = None

    def adjust(
        self,
        exact: Sequence[dict[str, torch.Tensor]],
        sampled: Sequence[Sequence[dict[str, torch.Tensor]]],
        norms: Sequence[dict[str, torch.Tensor]],
        variances: dict[str, float],
    ) -> None:
        """Take in a measurement.

        Parameters
        ----------
        exact : of each batch, the exact gradients of the weights by layer
        sampled : of each batch, several with sampled images and all rows
        norms : of each batch, norms of the exact gradient of every layer's output by image
        variances : by layer, what sampling rows adds, as mean over all samples
        """
        config = self.config
        own = {layer.name: _variance([g[layer.name] for g in exact]) for layer in self.layers}
        added = _mean(
            sum(float((one[name] - whole[name]).double().square().sum()) for name in whole)
            for whole, ones in zip(exact, sampled, strict=True)
            for one in ones
        )
        self.added = added, sum(own.values())
        limit = config.images_share * self.added[1]
        step = config.norm_step if added > limit else -config.norm_step
        self.norm = min(1.0, max(0.0, self.norm + step))
        least = 0.0
        for layer in self.layers:
            share = _mean(share_of_norm(batch[layer.name], self.norm) for batch in norms)
            # A layer nearer the loss never keeps less: images that it leaves out are gone below.
            least = max(least, config.smoothing * layer.ratio + (1 - config.smoothing) * share)
            layer.ratio = least
            narrow = variances[layer.name] > config.weights_share * own[layer.name]
            factor = 1 / config.weights_factor if narrow else config.weights_factor
            layer.weights_ratio = min(1.0, layer.weights_ratio * factor)

    def state_dict(self) -> dict:
        """Everything that later measurements depend on."""
        ratios = {layer.name: (layer.ratio, layer.weights_ratio) for layer in self.layers}
        return {"norm": self.norm, "ratios": ratios}

    def load_state_dict(self, state: dict) -> None:
        """The inverse of :meth:`state_dict`."""
        self.norm = state["norm"]
        for layer in self.layers:
            layer.ratio, layer.weights_ratio = state["ratios"][layer.name]


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


def _variance(gradients):
    """Of a batch's gradient, summed over its numbers: half the mean square distance of pairs."""
    pairs = itertools.combinations(gradients, 2)
    return _mean(float((a - b).double().square().sum()) / 2 for a, b in pairs)
