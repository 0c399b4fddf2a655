"""A small detector learns to find scikit-learn's digits on a canvas: which one, and where.

.venv/bin/python -m examples.learning.detector --device rtl --on-device 1
"""

import sys
from typing import Any

import numpy as np
import torch
from torch import nn

from algorithms.data.canvas import Score, canvases, score
from algorithms.networks import digits_cnn
from algorithms.networks.digit_detector import DigitDetector
from golden.layers.optimizer import Adam
from hw.config import AdaGPConfig
from verif.networks.learning import Learned, learn, one_cycle, torch_inputs
from verif.networks.training_result import Batch

from .command import Task, main

__all__ = ["TASK", "judge", "run"]

#: Canvases in a batch, and new ones to judge by, with digits that were held out.
COUNT, NEW = 16, 150
#: Pixels of a canvas each way.
SIZE = 16
#: Of what is background so much counts.
SHARE, IGNORED = 1 / 3, -100
LOSSES = [nn.CrossEntropyLoss(ignore_index=IGNORED), "mean_squared_error"]


def run(config: AdaGPConfig, batches: int, seed: int = 1, **options: Any) -> Learned:
    """Train; ``options`` go to :func:`verif.networks.learning.learn`."""
    torch.manual_seed(seed)
    data, rng = digits_cnn.load(seed), np.random.default_rng([seed, 0])
    stream = []
    for optimizer in one_cycle(Adam(learning_rate=0.02), batches):
        own = canvases(rng, data.train_images, data.train_labels, COUNT, SIZE)
        targets = [own.sampled(rng, SHARE, IGNORED), own.offsets]
        stream.append(Batch(images=own.images, targets=targets, optimizer=optimizer))
    shape = (1, SIZE, SIZE)
    return learn(DigitDetector(), config, shape, stream, loss=LOSSES, seed=seed, **options)


def judge(learned: Learned, seed: int = 1) -> list[str]:
    """What golden and torch find on new canvases."""
    lines = [f"{NEW} new canvases with digits that were held out"]
    for name, own in zip(("golden", "torch float32"), scores(learned, seed), strict=True):
        lines.append(
            f"  {name:14} {own.found:.0%} of the digits found in their cell, their centres "
            f"{own.pixels:.2f} pixels off; a digit seen in {own.false:.1%} of the other cells"
        )
    return lines


def scores(learned: Learned, seed: int = 1) -> tuple[Score, Score]:
    """Of golden and of torch."""
    data = digits_cnn.load(seed)
    new = canvases(np.random.default_rng([seed, 1]), data.test_images, data.test_labels, NEW, SIZE)
    with torch.no_grad():
        outputs = [part.numpy() for part in learned.model(*torch_inputs(new.images))]
    return score(new, *learned.golden.predict(new.images)), score(new, *outputs)


TASK = Task(
    name="examples.learning.detector", description=__doc__.splitlines()[0], batches=400, run=run,
    judge=judge,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(TASK))
