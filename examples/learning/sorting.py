"""A small Transformer learns to sort digits: it reads six and writes them in ascending order.

.venv/bin/python -m examples.learning.sorting --device rtl
"""

import sys
from typing import Any

import numpy as np
import torch

from algorithms.data.sequences import TOKENS, sorting, written
from algorithms.networks.transformer import Transformer
from golden.layers.optimizer import Adam
from hw.config import AdaGPConfig
from verif.networks.learning import Learned, learn, one_cycle
from verif.networks.training_result import Batch

from .command import Task, main

__all__ = ["TASK", "judge", "run"]

#: Digits of a sequence, sequences in a batch, new ones to judge by.
LENGTH, COUNT, NEW = 6, 16, 100


def run(config: AdaGPConfig, batches: int, seed: int = 1, **options: Any) -> Learned:
    """Train; ``options`` go to :func:`verif.networks.learning.learn`."""
    torch.manual_seed(seed)
    model = Transformer(TOKENS, TOKENS, length=LENGTH, width=16, heads=2, layers=1, hidden=32)
    rng = np.random.default_rng([seed, 0])
    stream = []
    for optimizer in one_cycle(Adam(learning_rate=0.01), batches):
        own = sorting(rng, COUNT, LENGTH)
        stream.append(
            Batch(images=[own.sources, own.shifted], targets=own.targets, optimizer=optimizer)
        )
    return learn(model, config, [(LENGTH,), (LENGTH,)], stream, seed=seed, **options)


def judge(learned: Learned, seed: int = 1) -> list[str]:
    """How many new sequences are sorted without a mistake, golden's way and torch's."""
    right = accuracies(learned, seed)
    return [f"{NEW} new sequences, sorted without a mistake: golden {right[0]:.0%}, torch float32 "
            f"{right[1]:.0%}"]  # fmt: skip


def accuracies(learned: Learned, seed: int = 1) -> tuple[float, float]:
    """Of golden and of torch, which write one digit after the other."""
    new = sorting(np.random.default_rng([seed, 1]), NEW, LENGTH)

    def in_torch(inputs: list[np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(learned.model(*map(torch.from_numpy, inputs)))

    golden, floats = (
        float((written(predict, new.sources) == new.targets).all(1).mean())
        for predict in (learned.golden.predict, in_torch)
    )
    return golden, floats


TASK = Task(
    name="examples.learning.sorting", description=__doc__.splitlines()[0], batches=300, run=run,
    judge=judge,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(TASK))
