"""A CNN with batch normalisation learns to read digits on the generated hardware."""

from dataclasses import dataclass

import numpy as np
import torch
from rich import box
from rich.table import Table

from algorithms.networks import digits_cnn
from golden.layers.optimizer import SGD

from .torch_training import torch_training
from .training_result import Batch, TrainingResult
from .training_run import TrainingRun

__all__ = [
    "DigitsTraining",
    "digit_batches",
    "digits_model",
    "digits_training",
    "print_training",
    "train_digits",
]

#: The learning rate, and what it is multiplied by in the last third of the batches.
LEARNING_RATE, LAST_THIRD = 0.05, 0.2


@dataclass(frozen=True, kw_only=True)
class DigitsTraining:
    """One configuration's training.

    Members
    -------
    result : of the RTL
    commands, memory_bytes : of the program of one batch
    images, test_images : in a batch, held out
    trained : numbers of the batches that are learned from, of those of the result
    torch_losses : of torch in float32 on the same batches
    rtl_accuracy, torch_accuracy : on held-out images; that of the RTL's weights and statistics is
        computed in golden's arithmetic
    """

    result: TrainingResult
    commands: int
    memory_bytes: int
    images: int
    test_images: int
    trained: list
    torch_losses: list
    rtl_accuracy: float
    torch_accuracy: float


def digit_batches(seed: int, *, batches: int, images: int) -> list[Batch]:
    """Training images in random order, pass after pass, with a learning rate in two steps."""
    data = digits_cnn.load(seed)
    if batches < 1:
        raise ValueError(f"batches must be at least 1, not {batches}")
    if not 1 <= images <= len(data.train_images):
        raise ValueError(f"batch size must be from 1 to {len(data.train_images)}, not {images}")
    rng = np.random.default_rng([seed, 0x7A])
    passes = -(-batches * images // len(data.train_images))
    order = np.concatenate([rng.permutation(len(data.train_images)) for _ in range(passes)])
    result = []
    for number in range(batches):
        chosen = order[number * images : (number + 1) * images]
        late = number >= 2 * batches // 3
        rate = LEARNING_RATE * (LAST_THIRD if late else 1)
        result.append(
            Batch(
                images=data.train_images[chosen],
                targets=data.train_labels[chosen],
                optimizer=SGD(learning_rate=rate, momentum=0.9, weight_decay=1e-4),
            )
        )
    return result


def train_digits(config, *, batches, images, seed=1, report=None, **options) -> DigitsTraining:
    """Train on the RTL; ``options`` go to ``simulate``."""
    run = TrainingRun(
        digits_model(seed),
        config,
        digits_cnn.INPUT_SHAPE,
        digit_batches(seed, batches=batches, images=images),
        report=report,
    )
    if report:
        report(f"RTL: {batches} batches of {images} images")
    return digits_training(run, run.simulate(seed=seed, **options), digits_cnn.load(seed))


def digits_model(seed: int) -> torch.nn.Module:
    """The CNN with batch normalisation, with weights of its own for each seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return digits_cnn.NormalizedDigitsCNN()


def digits_training(run: TrainingRun, result: TrainingResult, data, *, echo=0) -> DigitsTraining:
    """What became of a run, with torch's training on the same batches beside it."""
    torch_losses, torch_accuracy = torch_training(
        run.model, [run.batches[number] for number in run.trained], data.test_images,
        data.test_labels, echo=echo,
    )  # fmt: skip
    return DigitsTraining(
        result=result,
        commands=len(run.program.command_list),
        memory_bytes=run.program.memory_size,
        images=len(run.batches[0].images),
        test_images=len(data.test_images),
        trained=list(run.trained),
        torch_losses=torch_losses,
        rtl_accuracy=run.accuracy(data.test_images, data.test_labels, result.final),
        torch_accuracy=torch_accuracy,
    )


def print_training(console, step) -> None:
    """What was compared in a step of the regression; of digits also the loss of every batch."""
    result, training = step.result, step.training
    if training is not None:
        console.print(_losses(step.name, training))
    for difference in result.differences[:10]:
        console.print(str(difference), markup=False, highlight=False, soft_wrap=True)
    verdict = "[green]PASS[/]" if result.passed else "[red]FAIL[/]"
    text = (
        f"{result.compared:,} weights, velocities and statistics after {len(result.losses)} "
        f"batches, {len(result.differences)} tensors differ from golden"
    )
    if training is not None:
        text += (
            f"; {training.test_images} held-out images: {training.rtl_accuracy:.2%} with the RTL's "
            f"weights in golden's arithmetic, torch float32 {training.torch_accuracy:.2%} (varies "
            "a little with the processor)"
        )
    if step.notes:
        text += f"; {step.notes}"
    speed = sum(result.cycles) / max(result.seconds, 1e-9) / 1000
    console.print(
        f"{verdict} {step.name}: {text}; {sum(result.cycles):,} cycles, {speed:.0f} kcycles/s",
        highlight=False,
        soft_wrap=True,
    )


def _losses(name, training):
    """The loss of every batch beside torch's."""
    result = training.result
    table = Table(box=box.SIMPLE, title=f"{name}: {training.commands} commands per batch")
    for heading in ("batch", "loss RTL", "loss torch", "correct", "cycles"):
        table.add_column(heading, justify="right")
    for number, (place, other) in enumerate(
        zip(training.trained, training.torch_losses, strict=True), 1
    ):
        loss, correct, cycles = (
            values[place] for values in (result.losses, result.correct, result.cycles)
        )
        right = f"{correct}/{training.images}"
        table.add_row(str(number), f"{loss:.4f}", f"{other:.4f}", right, f"{cycles:,}")
    return table
