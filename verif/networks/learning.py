"""A network that learns a task: its first batches on the accelerator, all of them in golden, and in
torch's float32 beside."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from rich import box
from rich.table import Table
from torch import nn

from golden.training.step import Training

from .torch_training import of_torch
from .training_result import Batch, TrainingResult
from .training_run import TrainingRun

__all__ = ["DEVICES", "Learned", "learn", "losses_table", "one_cycle", "torch_inputs"]

#: What runs the first batches: nothing, commands in the functional model, the emitted Verilog.
DEVICES = ("none", "emulator", "rtl")
_LOSSES = {"cross_entropy": nn.CrossEntropyLoss(), "mean_squared_error": nn.MSELoss()}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What came of a training.

    Members
    -------
    golden : after the last batch
    model : trained by torch in float32, with the same weights at the beginning
    result : of the batches that the device ran; None without a device
    losses, torch_losses : of every batch
    """

    golden: Training
    model: nn.Module
    result: TrainingResult | None
    losses: list[float]
    torch_losses: list[float]


def one_cycle(optimizer, batches: int, warm_up: float = 0.2) -> list:
    """``optimizer`` for each of so many batches: its learning rate is reached after a share of
    them, ``warm_up``, and goes down to 0 from there, both in a line."""
    return [
        replace(
            optimizer,
            learning_rate=optimizer.learning_rate
            * min((number + 1) / (warm_up * batches), (batches - number) / (1 - warm_up) / batches),
        )
        for number in range(batches)
    ]


def learn(
    model: nn.Module, config, input_shape, batches: Sequence[Batch], *, loss="cross_entropy",
    device: str = "emulator", on_device: int = 2, seed: int = 1,
    report: Callable[[str], None] | None = None, **options,
) -> Learned:  # fmt: skip
    """Train.

    Parameters
    ----------
    model, config, input_shape, loss : see :class:`~verif.networks.training_run.TrainingRun`
    device : one of DEVICES
    on_device : batches that it runs and that are compared, every number of them
    report : called with a line of text every 20 batches
    options : of ``TrainingRun.simulate``

    Raises
    ------
    ValueError
        for another device, or more batches on it than there are.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, not {device!r}")
    if not 1 <= on_device <= len(batches):
        raise ValueError(f"batches on the device must be from 1 to {len(batches)}, not {on_device}")
    run = TrainingRun(model, config, input_shape, batches[:on_device], loss=loss)
    result = None
    if device == "emulator":
        result = run.interpret(seed)
    elif device == "rtl":
        result = run.simulate(seed=seed, **options)
    outputs = [output.value for output in run.program.outputs]
    losses = [
        float(sum(part[name].view(np.float32)[0] for name in outputs)) for part in run.expected
    ]
    for number, batch in enumerate(batches[on_device:], on_device + 1):
        run.golden.optimizer = batch.optimizer
        value = run.golden.step(batch.images, batch.targets).loss.value
        losses.append(float(value.view(np.float32)))
        if report and not number % 20:
            report(f"golden: {number} of {len(batches)} batches, loss {losses[-1]:.4f}")
    trained, torch_losses = _torch_training(run.model, batches, loss)
    return Learned(
        golden=run.golden, model=trained, result=result, losses=losses, torch_losses=torch_losses
    )


def _torch_training(model, batches, loss):
    """The model after the same batches in float32, and the loss of each."""
    model = copy.deepcopy(model).train()
    optimizer, losses = of_torch(batches[0].optimizer, model.parameters()), []
    for batch in batches:
        optimizer.param_groups[0]["lr"] = batch.optimizer.learning_rate
        outputs, targets = model(*torch_inputs(batch.images)), batch.targets
        if not isinstance(outputs, tuple):
            outputs, targets = (outputs,), (targets,)
        kinds = loss if isinstance(loss, list) else [loss] * len(outputs)
        parts = map(_torch_loss, kinds, outputs, targets)
        total = sum(parts, torch.zeros(()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return model.eval(), losses


def torch_inputs(images) -> list[torch.Tensor]:
    """What golden reads of a batch as torch has it."""
    parts = images if isinstance(images, list) else [images]
    return [_tensor(np.moveaxis(part, 3, 1) if part.ndim == 4 else part) for part in parts]


def _torch_loss(kind, output, targets):
    function, targets = _LOSSES.get(kind, kind), np.asarray(targets)
    if targets.ndim == 4:
        targets = np.moveaxis(targets, 3, 1)
    # Of a sequence torch wants the classes second.
    return function(output.movedim(2, 1) if output.dim() == 3 else output, _tensor(targets))


def _tensor(values):
    values = np.ascontiguousarray(values)
    return torch.from_numpy(values.astype(np.float32) if values.dtype.kind == "f" else values)


def losses_table(learned: Learned, every: int) -> Table:
    """The mean loss of every so many batches, golden's and torch's."""
    table = Table(box=box.SIMPLE, title=f"mean loss of {every} batches")
    for heading in ("up to batch", "golden", "torch float32"):
        table.add_column(heading, justify="right")
    for end in range(every, len(learned.losses) + 1, every):
        means = (np.mean(part[end - every : end]) for part in
                 (learned.losses, learned.torch_losses))  # fmt: skip
        table.add_row(str(end), *(f"{mean:.4f}" for mean in means))
    return table
