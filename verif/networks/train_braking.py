"""The same network learns to read digits with braked gradients, beside plain backpropagation."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch

from algorithms.networks import digits_cnn
from golden.layers.optimizer import BrakedSGD
from golden.training.step import Training

from .train_digits import DigitsTraining, digit_batches
from .training_run import TrainingRun

__all__ = ["BRAKING", "BrakingTraining", "train_braking"]

#: How much gradients are braked.
BRAKING = 1.0


@dataclass(frozen=True, kw_only=True)
class BrakingTraining:
    """One configuration's training with braked gradients, and without.

    Members
    -------
    braked : on the RTL
    cycles, plain_cycles : of the second batch on the RTL, braked and not
    plain_batches : that take the braked training's time without braking
    plain_accuracy, timed_accuracy : on held-out images after plain training with as many batches,
        and with ``plain_batches``, both in golden's arithmetic
    """

    braked: DigitsTraining
    cycles: int
    plain_cycles: int
    plain_batches: int
    plain_accuracy: float
    timed_accuracy: float

    @property
    def notes(self) -> str:
        """What the regression says of it."""
        return (
            f"cycles per batch {self.cycles:,}, not braked {self.plain_cycles:,}; without braking "
            f"{self.plain_accuracy:.2%} after as many batches, {self.timed_accuracy:.2%} after "
            f"the same time ({self.plain_batches} batches; both in golden's arithmetic)"
        )


def train_braking(config, *, batches, images, seed=1, report=None, **options) -> BrakingTraining:
    """Train on the RTL, compared with golden after every batch; ``options`` go to ``simulate``."""
    data = digits_cnn.load(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = digits_cnn.NormalizedDigitsCNN()
    plain = digit_batches(seed, batches=batches, images=images)
    braked = [replace(batch, optimizer=_braked(batch.optimizer)) for batch in plain]
    run = TrainingRun(model, config, digits_cnn.INPUT_SHAPE, braked, report=report)
    other = TrainingRun(model, config, digits_cnn.INPUT_SHAPE, plain[:2])
    size = max(part.program.memory_size for part in (run, other))
    if report:
        report(f"RTL: {batches} braked batches of {images} images, 2 without braking")
    result = run.simulate(seed=seed, memory_bytes=size, **options)
    rival = other.simulate(seed=seed, memory_bytes=size, **options)
    result = replace(result, differences=result.differences + rival.differences)
    cycles, plain_cycles = (part.cycles[:2][-1] for part in (result, rival))
    plain_batches = round(sum(result.cycles) / plain_cycles)
    accuracies = [
        _accuracy(other, digit_batches(seed, batches=count, images=images), data)
        for count in (batches, plain_batches)
    ]
    torch_losses, torch_accuracy = run.torch_training(data.test_images, data.test_labels)
    training = DigitsTraining(
        result=result,
        commands=len(run.program.command_list),
        memory_bytes=run.program.memory_size,
        images=images,
        test_images=len(data.test_images),
        torch_losses=torch_losses,
        rtl_accuracy=run.accuracy(data.test_images, data.test_labels, result.final),
        torch_accuracy=torch_accuracy,
    )
    return BrakingTraining(
        braked=training,
        cycles=cycles,
        plain_cycles=plain_cycles,
        plain_batches=plain_batches,
        plain_accuracy=accuracies[0],
        timed_accuracy=accuracies[1],
    )


def _braked(optimizer) -> BrakedSGD:
    names = ("learning_rate", "momentum", "weight_decay")
    return BrakedSGD(braking=BRAKING, **{name: getattr(optimizer, name) for name in names})


def _accuracy(run, batches, data) -> float:
    """Of golden on held-out images, trained from the start of ``run`` on these batches."""
    golden: Training = copy.deepcopy(run.golden)
    golden.restore(copy.deepcopy(run.start))
    for batch in batches:
        golden.optimizer = batch.optimizer
        golden.step(batch.images, batch.targets)
    return float(np.mean(golden.predict(data.test_images).argmax(1) == data.test_labels))
