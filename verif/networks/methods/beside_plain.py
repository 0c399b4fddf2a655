"""The digits network learns in another way on the RTL, beside plain backpropagation."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from algorithms.networks import digits_cnn
from golden.training.step import Training
from verif.networks.train_digits import DigitsTraining, digit_batches, digits_model, digits_training
from verif.networks.training_run import TrainingRun

__all__ = ["BesidePlain", "train_beside_plain"]


@dataclass(frozen=True, kw_only=True)
class BesidePlain:
    """One configuration's training in another way, and plain.

    Members
    -------
    what : the other way, as in "braked"
    training : on the RTL
    cycles, plain_cycles : of the second batch on the RTL, in the other way and plain
    plain_batches : that take the other training's time
    plain_accuracy, timed_accuracy : on held-out images after plain training with as many batches,
        and with ``plain_batches``, both in golden's arithmetic
    run : of the other way
    """

    what: str
    training: DigitsTraining
    cycles: int
    plain_cycles: int
    plain_batches: int
    plain_accuracy: float
    timed_accuracy: float
    run: TrainingRun | None = None

    @property
    def notes(self) -> str:
        """What the regression says of it."""
        return (
            f"cycles per batch {self.cycles:,}, plain {self.plain_cycles:,}; plain "
            f"backpropagation {self.plain_accuracy:.2%} after as many batches, "
            f"{self.timed_accuracy:.2%} after the same time ({self.plain_batches} batches, which "
            "is skipping for equal time; both in golden's arithmetic)"
        )


def train_beside_plain(
    config,
    *,
    what: str,
    batches: int,
    images: int,
    seed: int = 1,
    change: Callable = lambda optimizer: optimizer,
    echo: int = 0,
    make: Callable = TrainingRun,
    report: Callable | None = None,
    **options,
) -> BesidePlain:
    """Train on the RTL, compared with golden after every batch.

    Parameters
    ----------
    what : the way, for messages
    change : golden's optimizer of the other way, of the plain one
    echo : steps of the head alone behind every batch
    make : what makes the other way's run, with the arguments of ``TrainingRun``
    options : of ``simulate``
    """
    data = digits_cnn.load(seed)
    model = digits_model(seed)
    plain = digit_batches(seed, batches=batches, images=images)
    changed = [replace(batch, optimizer=change(batch.optimizer)) for batch in plain]
    shape = digits_cnn.INPUT_SHAPE
    run = make(model, config, shape, changed, echo=echo, report=report)
    other = TrainingRun(model, config, shape, plain[:2])
    size = max(part.program.memory_size for part in (run, other))
    if report:
        report(f"RTL: {batches} {what} batches of {images} images, 2 plain ones")
    result = run.simulate(seed=seed, memory_bytes=size, **options)
    rival = other.simulate(seed=seed, memory_bytes=size, **options)
    result = replace(result, differences=result.differences + rival.differences)
    cycles, plain_cycles = (part.cycles[:2][-1] for part in (result, rival))
    plain_batches = round(sum(result.cycles) / plain_cycles)
    accuracies = [
        _accuracy(other, digit_batches(seed, batches=count, images=images), data)
        for count in (batches, plain_batches)
    ]
    return BesidePlain(
        what=what,
        training=digits_training(run, result, data, echo=echo),
        cycles=cycles,
        plain_cycles=plain_cycles,
        run=run,
        plain_batches=plain_batches,
        plain_accuracy=accuracies[0],
        timed_accuracy=accuracies[1],
    )


def _accuracy(run, batches, data) -> float:
    """Of golden on held-out images, trained from the start of ``run`` on these batches."""
    golden: Training = copy.deepcopy(run.golden)
    golden.restore(copy.deepcopy(run.start))
    for batch in batches:
        golden.optimizer = batch.optimizer
        golden.step(batch.images, batch.targets)
    return float(np.mean(golden.predict(data.test_images).argmax(1) == data.test_labels))
