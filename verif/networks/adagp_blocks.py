"""Small networks that train by gradient prediction where nothing divides anything, beside
predictors of every kind: what tests and the regression run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
import torch
from torch import nn

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import Phase

from . import train_blocks
from .adagp_run import AdaGPRun
from .train_blocks import BLOCKS, OPTIMIZER, random_batches, random_model
from .training_result import in_phases

__all__ = [
    "CASES",
    "CLASSES",
    "INPUT_SHAPE",
    "NETWORKS",
    "PredictedCase",
    "experienced",
    "predicted_run",
    "spoiled",
]

#: (C, H, W) of an image, and classes.
INPUT_SHAPE, CLASSES = (2, 7, 5), 3


class Residual(nn.Module):
    """An addition that takes a depthwise layer, and a layer that only the addition reads."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(6)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
        self.norm2 = nn.BatchNorm2d(6)
        self.point = nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6 * 7 * 5, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm1(self.first(x)))
        x = torch.relu(self.point(x) + self.norm2(self.depthwise(x)))
        return self.head(torch.flatten(x, 1))


def ragged():
    """The largest n in the middle, the smallest at the end, maps down to 1 × 1."""
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 7, 3, stride=2), nn.ReLU(),
        nn.Conv2d(7, 4, (3, 2)), nn.ReLU(), nn.Conv2d(4, 7, 1, bias=False), nn.Flatten(),
        nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, CLASSES),
    )  # fmt: skip


def headless():
    """No linear layer at the end; a grouped convolution is not predicted."""
    return nn.Sequential(
        nn.Conv2d(2, 9, 3, stride=2), nn.BatchNorm2d(9), nn.ReLU(),
        nn.Conv2d(9, 6, 2, groups=3), nn.ReLU(),
        nn.Conv2d(6, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


NETWORKS = {
    "ragged": ragged, "residual": Residual, "headless": headless,
    **{f"{name} block": make for name, make in BLOCKS.items()},
}  # fmt: skip


def predicted_run(
    network, config, rng, phases, *, images=3, shape=INPUT_SHAPE, classes=CLASSES, rate=0.1,
    targets=None, optimizer=OPTIMIZER, **options,
) -> AdaGPRun:  # fmt: skip
    """Batches of random images and labels in phases, a letter each; ``targets`` are real ones.

    ``network`` is a name or what makes it, ``rng`` a NumPy generator, ``rate`` the learning rate or
    a list of one for each batch; ``options`` go to :class:`~verif.networks.adagp_run.AdaGPRun`.
    """
    model = random_model(NETWORKS.get(network, network), rng)
    rates = np.broadcast_to(rate, len(phases)).tolist()
    batches = random_batches(
        rng, rates, images=images, shape=shape, classes=classes, targets=targets,
        optimizer=optimizer,
    )  # fmt: skip
    return AdaGPRun(model, config, shape, in_phases(batches, map(Phase, phases)), **options)


def experienced(rng, *, weights=0.05, velocity=0.01):
    """``prepare`` of a run: a predictor in the middle of training, of random numbers whose size is
    about ``weights``. Nothing is zero, and every gate is open."""

    def prepare(golden):
        state = golden.state()
        for key, size in (("weights", weights), ("velocity", velocity), ("taps_velocity", 0.01)):
            values = rng.normal(size=state["predictor"][key].shape) * size
            state["predictor"][key] = encode(FLOAT32, values)
        for name in golden.layers:
            # Weight, square, product, power, and what is made of them.
            numbers = [0.9, 0.009, 0.05, 0.6, 0.1, 10, 0.8, 0.08]
            state["gradient_statistics"][name] = encode(FLOAT32, np.array(numbers))
            numbers = [0.9, 0.18, 0.225, 0.2, 2.0]
            state["input_statistics"][name] = encode(FLOAT32, np.array(numbers))
        golden.restore(state)

    return prepare


def spoiled(golden):
    """``prepare`` of a run whose predictor produces NaN."""
    state = golden.state()
    state["predictor"]["weights"][:] = encode(FLOAT32, np.array(np.nan))
    golden.restore(state)


@dataclass(frozen=True, kw_only=True)
class PredictedCase:
    """A network, fields of the configuration, a predictor and where it begins.

    ``prepare`` makes of a NumPy generator what :class:`~verif.networks.adagp_run.AdaGPRun` is
    given.
    """

    network: str
    settings: dict
    options: dict = field(default_factory=dict)
    prepare: Callable = experienced

    def run(self, config, rng, phases, **options) -> AdaGPRun:
        """Batches in phases, a letter each; ``config`` has the settings."""
        prepare = self.prepare(rng)
        return predicted_run(
            self.network, config, rng, phases, prepare=prepare, **self.options, **options
        )


CASES = {
    "low 5x3": PredictedCase(
        network="ragged", settings={"variant": "low", "rows": 5, "columns": 3}
    ),
    "max, a larger predictor": PredictedCase(
        network="ragged",
        settings={"variant": "max", "predictor_rows": 6, "predictor_columns": 5},
        options={"predictor": PredictorConfig(map_size=1, seed=4)},
    ),
    "max, a smaller predictor": PredictedCase(
        network="residual",
        settings={"variant": "max", "predictor_rows": 3, "predictor_columns": 2},
        options={"predictor": PredictorConfig(map_size=3, channels=2, running=0.75)},
    ),
    "efficient 3x7": PredictedCase(
        network="residual",
        settings={"variant": "efficient", "rows": 3, "columns": 7},
        options={"predict": ["depthwise", "first"]},
    ),
    "efficient": PredictedCase(network="headless", settings={"variant": "efficient"}),
    "baseline": PredictedCase(
        network="headless",
        settings={"variant": "baseline"},
        options={"predictor": PredictorConfig(map_size=3)},
    ),
    "max, a predictor of NaN": PredictedCase(
        network="headless", settings={"variant": "max"}, prepare=lambda rng: spoiled
    ),
    "efficient, a predictor of noise": PredictedCase(
        network="headless",
        settings={"variant": "efficient"},
        prepare=lambda rng: experienced(rng, weights=1.0),
    ),
}
#: Every kind of layer, on each variant in turn.
_IN_TURN = ("low", "efficient", "max")
CASES |= {
    f"{variant}, {name} block": PredictedCase(
        network=f"{name} block",
        settings={"variant": variant},
        options={"shape": train_blocks.INPUT_SHAPE, "classes": train_blocks.CLASSES},
    )
    for name, variant in zip(BLOCKS, cycle(_IN_TURN))
}
