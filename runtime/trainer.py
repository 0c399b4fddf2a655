"""Training of a torch module on an accelerator."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sized
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console

from cli.progress import progress_bar
from compiler.training.optimizer import optimizer_of
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig

from . import optimizers
from .accelerator import Accelerator
from .check import GoldenTwin
from .checkpoint import read_checkpoint, write_checkpoint
from .data import as_batch, input_shape, with_following
from .errors import DifferenceFound
from .history import EpochSums, History
from .inference import Inference
from .programs import METHODS, Programs, require_method
from .session import BatchResult, PredictionSession, Session
from .state import State

__all__ = ["METHODS", "Trainer"]


class Trainer:
    """Trains a module on an accelerator, batch after batch.

    The module's layers, the loss and the optimizer are those of docs/operators.md. Numbers are
    rounded as docs/training.md says, and the same on every device: the emulator's weights are the
    RTL's, bit for bit.

    Batches may have different sizes, as the last of an epoch often has: for every size there is a
    program of its own, compiled when it is first needed, and what has been learned is carried over.
    Nothing is padded, so batch statistics are those of the samples that are there.

    Parameters
    ----------
    model : begins with its weights; it is given the trained ones at the end of :meth:`fit`
    accelerator : Accelerator
    loss : "cross_entropy", "mean_squared_error", ``nn.CrossEntropyLoss(...)`` or ``nn.MSELoss()``
    optimizer : ``torch.optim.SGD``, ``Adam`` or ``AdamW`` of the model's parameters, or
        :class:`algorithms.braking.optimizer.BrakedSGD`: learning rate, momentum, weight decay and
        braking as they are when a batch begins; None: SGD with a rate of 0.05 and a momentum of 0.9
    method : "bp", or "adagp" (a float format and a network with a layer that can be predicted)
    schedule : ScheduleConfig of ADA-GP, with at most four stages; by default the paper's, ten
        epochs of warm-up and then four to one batches of Phase GP for one of backpropagation
    predictor : PredictorConfig of ADA-GP
    predict : names of the layers to predict; None for all that can be
    echo : of "bp": so many more steps of the head alone behind every batch, on the features that
        the batch brought to it; the network's only output is then a linear layer
    scheduler : of torch, for the optimizer; stepped by :meth:`fit`
    scheduler_every : "epoch" or "batch": when it is stepped
    guard : leave out updates with gradients that are not finite
    check : train the golden model beside, on the host, and raise :class:`DifferenceFound` at the
        first batch after which one number differs

    Members
    -------
    history : :class:`~runtime.history.History` of the epochs that are over
    epoch, batch : how many epochs have been trained, and batches of the next one

    Raises
    ------
    ValueError
        naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        accelerator: Accelerator,
        *,
        loss: Any = "cross_entropy",
        optimizer: torch.optim.Optimizer | None = None,
        method: str = "adagp",
        schedule: ScheduleConfig | None = None,
        predictor: PredictorConfig | None = None,
        predict: Collection[str] | None = None,
        echo: int = 0,
        scheduler: Any = None,
        scheduler_every: Literal["epoch", "batch"] = "epoch",
        guard: bool = True,
        check: bool = False,
    ) -> None:
        if not isinstance(accelerator, Accelerator):
            raise TypeError(f"accelerator must be a runtime.Accelerator, not {accelerator!r}")
        require_method(
            method, echo, {"schedule": schedule, "predictor": predictor, "predict": predict}
        )
        if scheduler_every not in ("epoch", "batch"):
            raise ValueError(f"scheduler_every must be epoch or batch, not {scheduler_every!r}")
        self._model, self.accelerator = model, accelerator
        self._optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        optimizers.require(self._optimizer, model)
        if scheduler is not None and getattr(scheduler, "optimizer", None) is not self._optimizer:
            raise ValueError("scheduler must be one of the optimizer that the trainer is given")
        self._scheduler, self._scheduler_every = scheduler, scheduler_every
        self._echo = echo
        self.method, self._loss, self._guard, self._check = method, loss, guard, check
        self._schedule = schedule or ScheduleConfig()
        self._predictor = predictor or PredictorConfig()
        self._predict = predict
        self._shape: tuple[int, ...] | None = None
        self._programs = Programs(
            accelerator, model, method=method, schedule=self._schedule, predictor=self._predictor,
            predict=predict, loss=loss, optimizer=self._optimizer, guard=guard, echo=echo,
        )  # fmt: skip
        self._golden: GoldenTwin | None = None
        self.epoch = self.batch = self._count = 0
        self._rng = torch.get_rng_state()
        self._resumed_rng: torch.Tensor | None = None
        self._sums = EpochSums()
        kind = accelerator.device_name
        self.history = History(method=method, device=f"{accelerator.config.variant}, {kind}")

    # What has been learned -------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Weights, statistics, the optimizer's and the predictor's numbers, as they are now."""
        return self._programs.state

    @property
    def model(self) -> torch.nn.Module:
        """The module, with the weights and statistics that have been learned."""
        self.state.into(self._model)
        return self._model

    @property
    def session(self) -> Session:
        """The program of the last batch, and the window of memory it works in.

        Raises
        ------
        ValueError
            no batch has been trained
        """
        if self._programs.current is None:
            raise ValueError("there is no program in memory before the first batch")
        return self._programs.current

    def close(self) -> None:
        """Give back the accelerator's memory; what has been learned stays here."""
        self._programs.close()

    # Training --------------------------------------------------------------------------------

    def fit(
        self,
        loader: Iterable[Any],
        epochs: int,
        *,
        validation: Iterable[Any] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        progress: bool | Callable[[str], None] = True,
    ) -> History:
        """Train until ``epochs`` epochs are over, those before included.

        Parameters
        ----------
        loader : gone through once an epoch; yields pairs (images, labels): images (N, C, H, W) or
            (N, features), as torch has them, tensors or arrays
        validation : likewise; behind every epoch the accelerator classifies its images
        checkpoint : a file that is written behind every epoch, see :meth:`save`
        checkpoint_every : write it behind so many batches, too
        progress : True shows a bar and a line for each epoch where there is a terminal; a function
            is called with these lines; False shows nothing

        Returns
        -------
        History, also of the epochs before

        Raises
        ------
        ValueError
            of what the loader yields: a wrong shape, a number that is not finite, a label that is
            no class
        CompileError
            the network cannot be trained, which layer and why
        AcceleratorError
            a program did not end well
        DifferenceFound
            with ``check``
        """
        console = Console(stderr=True)
        show = progress if callable(progress) else console.print if progress is True else _silent
        total = len(loader) if isinstance(loader, Sized) else None
        with progress_bar(console if progress is True else Console(quiet=True)) as bar:
            while self.epoch < epochs:
                task = bar.add_task(f"epoch {self.epoch}", total=total)
                for (images, targets), following in with_following(self._rest(loader)):
                    begin = time.perf_counter()
                    if len(images) not in self._programs:
                        bar.update(task, description=f"epoch {self.epoch}: compiling")
                    result = self._train(images, targets, following)
                    seconds = time.perf_counter() - begin
                    self._sums.add(result, len(images), self._coefficients()["rate"], seconds)
                    loss = "" if result.loss is None else f", loss {result.loss:.4f}"
                    bar.update(task, completed=self.batch, description=f"epoch {self.epoch}{loss}")
                    self._stepped("batch")
                    if checkpoint and checkpoint_every and not self.batch % checkpoint_every:
                        self.save(checkpoint)
                if not self.batch:
                    raise ValueError("the loader yields no batch")
                self._end_epoch(validation)
                bar.remove_task(task)
                show(str(self.history.epochs[-1]))
                if checkpoint:
                    self.save(checkpoint)
        self.state.into(self._model)
        return self.history

    def step(self, images: Any, targets: Any) -> BatchResult:
        """Train one batch; see :meth:`fit` for what it may be and for errors."""
        return self._train(*as_batch((images, targets), self._shape))

    def _train(self, images, targets, following=None):
        """A batch as :func:`runtime.data.as_batch` returns it, and the next one, if it is known."""
        shape = self._shape = self._shape or input_shape(images)
        session, coefficients = self._programs.for_batch(len(images), shape), self._coefficients()
        if self._check and self._golden is None:
            self._golden = self._twin(session.state(), shape)
        session.sample_seed = self._count
        if following is not None and len(following[0]) != len(images):
            following = None  # it has another program
        result = session.step(images, targets, coefficients, self.epoch, self.batch, following)
        if self._golden is not None:
            differences = self._golden.step(
                self._count, images, targets,
                optimizers.golden_optimizer(self._optimizer, coefficients), coefficients,
                result.phase, session.state(), result.loss,
            )  # fmt: skip
            if differences:
                raise DifferenceFound(differences)
        self.batch += 1
        self._count += 1
        return result

    def _rest(self, loader):
        """Batches of this epoch that have not been trained."""
        skipped, resumed, self._resumed_rng = self.batch, self._resumed_rng, None
        if resumed is not None:
            torch.set_rng_state(resumed)
        self._rng = torch.get_rng_state()
        for number, batch in enumerate(loader):
            if number >= skipped:
                images, targets = as_batch(batch, self._shape)
                self._shape = self._shape or input_shape(images)
                yield images, targets

    def _end_epoch(self, validation):
        session = self._programs.current
        gates = session.gates() if isinstance(session, PredictionSession) else {}
        accuracy = None if validation is None else self.evaluate(validation)
        record = self._sums.record(self.epoch, validation=accuracy, gates=gates)
        self.history.epochs.append(record)
        self._sums = EpochSums()
        self.epoch, self.batch = self.epoch + 1, 0
        self._stepped("epoch")

    def _stepped(self, what):
        if self._scheduler is None or self._scheduler_every != what:
            return
        # Without gradients it does nothing; torch wants to see it before the scheduler's step.
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.step()
        self._scheduler.step()

    def evaluate(self, loader: Iterable[Any]) -> float:
        """Share of the samples of ``loader`` that the accelerator classifies correctly now."""
        right = samples = 0
        with Inference(self.accelerator, self.model) as network:
            for images, labels in loader:
                right += int((network(images).argmax(1) == np.asarray(labels)).sum())
                samples += len(labels)
        if not samples:
            raise ValueError("there are no samples to validate with")
        return right / samples

    # Coefficients and golden ------------------------------------------------------------------

    def _coefficients(self):
        numbers = optimizers.coefficients(self._optimizer)
        if self.method == "adagp":
            numbers |= {
                "predictor_rate": self._predictor.learning_rate,
                "predictor_momentum": self._predictor.momentum,
            }
        return numbers

    def _twin(self, state: State, shape: tuple[int, ...]) -> GoldenTwin:
        twin = GoldenTwin(
            self._model, self.accelerator.config, shape,
            optimizer=optimizers.golden_optimizer(self._optimizer, self._coefficients()),
            predictor=self._predictor if self.method == "adagp" else None,
            predict=self._predict, loss=self._loss, guard=self._guard, echo=self._echo,
        )  # fmt: skip
        twin.load(state)
        return twin

    # Files -----------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint: everything from which :meth:`resume` goes on bit for bit, on any
        device. The file appears whole or not at all."""
        scheduler = self._scheduler
        contents = {
            "state": self.state.plain(),
            "epoch": self.epoch,
            "batch": self.batch,
            "count": self._count,
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if scheduler is None else scheduler.state_dict(),
            "history": self.history.plain(),
            "sums": dataclasses.asdict(self._sums),
            # As it was when the epoch began of which batches are left.
            "generator": self._rng if self.batch else torch.get_rng_state(),
        }
        write_checkpoint(path, self._identity(), contents)

    def resume(self, path: str | PathLike[str]) -> None:
        """Go on from a checkpoint of a trainer with the same arguments.

        Within an epoch, as many batches of the loader are left out as had been trained; torch's
        generator is as it was when that epoch began, so a loader that shuffles with it yields them
        in the same order.

        Raises
        ------
        ValueError
            the file is no checkpoint, or one of another network, method or configuration
        """
        contents = read_checkpoint(path, self._identity())
        self._programs.restart(State.restored(contents["state"]))
        self._golden = None
        self.epoch, self.batch = contents["epoch"], contents["batch"]
        self._count = contents["count"]
        self._optimizer.load_state_dict(contents["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(contents["scheduler"])
        self.history = History.restored(contents["history"])
        self._sums = EpochSums(**contents["sums"])
        self._resumed_rng = contents["generator"]

    def _identity(self):
        """What must be the same when training goes on: everything that decides about a bit."""
        config = self.accelerator.config
        return {
            "method": self.method + (f" with an echo of {self._echo}" if self._echo else ""),
            "loss": str(self._loss),
            "optimizer": str(optimizer_of(self._optimizer)),
            "scheduler": type(self._scheduler).__name__,
            "operand_format": config.operand_format,
            "rows of the cores": tuple(core.rows for core in config.cores),
            "columns": config.columns,
            "parameters": {n: tuple(p.shape) for n, p in self._model.named_parameters()},
            "schedule": str(self._schedule),
            "predictor": str(self._predictor),
        }


def _silent(_line):
    pass
