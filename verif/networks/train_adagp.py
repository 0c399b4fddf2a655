"""Digits learned by ADA-GP on the generated hardware, by the schedule in its registers."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from rich import box
from rich.table import Table

from algorithms.networks import digits_cnn
from emulator.batch_loop import BatchLoop
from golden.prediction.schedule import ScheduleConfig, Stage
from golden.training.step import Training

from .adagp_run import AdaGPResult, AdaGPRun
from .train_digits import digit_batches
from .training_result import in_phases

__all__ = ["EPOCHS", "SCHEDULE", "AdaGPTraining", "print_adagp", "train_adagp"]

#: Short epochs: a warm-up, then two batches in Phase GP before each with backpropagation, then one.
SCHEDULE = ScheduleConfig(warm_up=1, ladder=(Stage(gp=2, epochs=1), Stage(gp=1, epochs=None)))
EPOCHS = 4


@dataclass(frozen=True, kw_only=True)
class AdaGPTraining:
    """One variant's training.

    Members
    -------
    result : of the RTL
    phases : :class:`golden.prediction.schedule.Phase` of every batch
    accuracy : method -> (share of held-out images classified correctly, batches with
        backpropagation); in golden's arithmetic. "RTL" is that of the weights that the
        accelerator has learned, the others of golden's on the same batches:
        "bp", "skip" (nothing in place of Phase GP), "skip-time" (the time of Phase GP spent on
        backpropagation)
    images, test_images : in a batch, held out
    """

    result: AdaGPResult
    phases: list
    accuracy: dict
    images: int
    test_images: int


def train_adagp(config, *, batches, images, seed=1, report=None, **options) -> AdaGPTraining:
    """Train on the RTL in one run; ``options`` go to :func:`verif.system.accelerator.run`.

    Raises
    ------
    ValueError
        if ``batches`` are not :data:`EPOCHS` equal epochs.
    """
    if batches < EPOCHS or batches % EPOCHS:
        raise ValueError(f"batches of train-adagp must be a multiple of {EPOCHS}, not {batches}")
    data = digits_cnn.load(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = digits_cnn.NormalizedDigitsCNN()
    # A run has one learning rate.
    plain = digit_batches(seed, batches=batches, images=images)
    plain = [replace(batch, optimizer=plain[0].optimizer) for batch in plain]
    loop = BatchLoop(schedule=SCHEDULE, batches=batches, epoch_batches=batches // EPOCHS)
    phases = loop.phases()
    run = AdaGPRun(
        model, config, digits_cnn.INPUT_SHAPE, in_phases(plain, phases), report=report
    )  # fmt: skip
    if report:
        report(f"RTL: {batches} batches of {images} images in one run")
    result = run.simulate_loop(loop, seed=seed, **options)
    accuracy = {
        "RTL": (
            run.accuracy(data.test_images, data.test_labels, result.final),
            sum(phase.backpropagates for phase in phases),
        )
    }
    equal_time = replace(SCHEDULE, convert_every=3)
    schedules = {"bp": ScheduleConfig.backpropagation(), "skip": SCHEDULE, "skip-time": equal_time}
    for name, schedule in schedules.items():
        if report:
            report(f"golden: {name}")
        which = list(schedule.phases(EPOCHS, batches // EPOCHS))
        golden = Training(
            run.model, input_shape=digits_cnn.INPUT_SHAPE, optimizer=plain[0].optimizer,
            rows=config.rows, columns=config.columns, operand_format=config.operand_format,
        )  # fmt: skip
        for batch, phase in zip(plain, which, strict=True):
            if phase.backpropagates:
                golden.step(batch.images, batch.targets)
        predicted = golden.predict(data.test_images).argmax(1)
        accuracy[name] = (
            float(np.mean(predicted == data.test_labels)),
            sum(phase.backpropagates for phase in which),
        )
    return AdaGPTraining(
        result=result, phases=phases, accuracy=accuracy, images=images,
        test_images=len(data.test_images),
    )  # fmt: skip


def print_adagp(console, name, training) -> None:
    """Every batch, accuracies, and the verdict."""
    result = training.result
    table = Table(box=box.SIMPLE, title=name)
    for heading in ("batch", "phase", "loss RTL", "correct", "cycles", "gate of every layer"):
        table.add_column(heading, justify="left" if heading.startswith("gate") else "right")
    for number, (phase, loss, correct, cycles, gates) in enumerate(
        zip(training.phases, result.losses, result.correct, result.cycles, result.gates,
            strict=True), 1
    ):  # fmt: skip
        table.add_row(
            str(number), phase.name, "" if loss is None else f"{loss:.4f}",
            f"{correct}/{training.images}", f"{cycles:,}",
            " ".join(f"{gate:.2f}" for gate in gates.values()),
        )  # fmt: skip
    console.print(table)
    table = Table(
        box=box.SIMPLE, title=f"{training.test_images} held-out images, in golden's arithmetic"
    )
    for heading in ("weights of", "correct", "batches with backpropagation"):
        table.add_column(heading, justify="left" if heading == "weights of" else "right")
    for method, (accuracy, count) in training.accuracy.items():
        shown = "RTL, ADA-GP" if method == "RTL" else f"golden, {method}"
        table.add_row(shown, f"{accuracy:.2%}", f"{count} of {len(training.phases)}")
    console.print(table)
    for difference in result.differences[:10]:
        console.print(str(difference), markup=False, highlight=False, soft_wrap=True)
    verdict = "[green]PASS[/]" if result.passed else "[red]FAIL[/]"
    speed = sum(result.cycles) / max(result.seconds, 1e-9) / 1000
    console.print(
        f"{verdict} {name}: {result.compared:,} numbers of network, optimizer and predictor after "
        f"{len(training.phases)} batches, {len(result.differences)} tensors differ from golden; "
        f"{sum(result.rejected)} tiles refused; {sum(result.cycles):,} cycles, "
        f"{speed:.0f} kcycles/s",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
