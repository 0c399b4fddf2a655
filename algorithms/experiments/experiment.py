"""One training run: its settings, its record as JSON, how it goes on after an interruption.

A run leaves ``<data>-<model>-<method>-seed<N>-<digest>.json``; the digest is that of everything the
result depends on. A finished run is not done again. While it is going on a checkpoint lies beside
it, written after every epoch; a run goes on from there, on the CPU with the bits it would have had
anyway.
"""

import dataclasses
import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from algorithms.adagp.layers import LayerResult
from algorithms.adagp.trainer import AdaGPTrainer
from algorithms.common.checkpoints import read_checkpoint
from algorithms.common.devices import require_device
from algorithms.common.float_training import CACHE_DIRECTORY, one_thread
from algorithms.data.datasets import load_images
from algorithms.networks.registry import MODELS
from cli.atomic_files import replacing, write_whole
from golden.prediction.schedule import ScheduleConfig

from .methods import METHODS

__all__ = ["RESULTS", "Experiment", "keep", "run"]

#: Default directory of records.
RESULTS = CACHE_DIRECTORY / "adagp"
_LAYER_VALUES = tuple(field.name for field in dataclasses.fields(LayerResult))
_EVALUATED = 256  # images at a time


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to train and how.

    Members
    -------
    data : see :func:`algorithms.data.datasets.load_images`
    model, method : names in MODELS and METHODS
    seed : of the split, the initial weights and the order of the batches
    epochs : passes over the training images
    batch : images per step; what is left of an epoch behind the last full batch is not used
    learning_rate, momentum, weight_decay : of SGD; learning_rate None for the method's own
    schedule : before the method's changes
    train_images, test_images : how many are used, None for all
    device : one of DEVICES. On "cpu" one thread computes, and the same settings give the same bits
        on the same kind of processor.

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    data: str = "digits"
    model: str = "vgg"
    method: str = "adagp"
    seed: int = 1
    epochs: int = 20
    batch: int = 64
    learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(warm_up=4))
    train_images: int | None = None
    test_images: int | None = None
    device: str = "cpu"

    def __post_init__(self):
        problems = [
            f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
            for name, allowed in (("model", MODELS), ("method", METHODS))
            if getattr(self, name) not in allowed
        ]
        problems += [
            f"{name} must be at least {least}, not {getattr(self, name)!r}"
            for name, least in (("seed", 0), ("epochs", 1), ("batch", 2))
            if getattr(self, name) < least
        ]
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            problems.append(f"learning_rate must be a number above 0, not {self.learning_rate!r}")
        if not 0 <= self.momentum < 1:
            problems.append(f"momentum must be from 0 to below 1, not {self.momentum!r}")
        if not 0 <= self.weight_decay < math.inf:
            problems.append(f"weight_decay must be at least 0, not {self.weight_decay!r}")
        problems += require_device(self.device)
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def rate(self) -> float:
        """The learning rate at the start."""
        return self.learning_rate or METHODS[self.method].learning_rate


def run(experiment: Experiment, *, directory=RESULTS, report=None, stop_after=None) -> dict | None:
    """Train, or read the record of an earlier run.

    Parameters
    ----------
    directory : of records and checkpoints
    report : called with one line of text per epoch, or None
    stop_after : leave off after so many epochs of this call, with a checkpoint

    Returns
    -------
    dict
        The record, None if it was left off: ``experiment``; ``identity``; ``batches`` of an epoch;
        ``phases``, a letter of :class:`golden.prediction.schedule.Phase` for each batch;
        ``epochs``, each with ``accuracy`` on test images, mean ``loss`` and the ``layers``' mean
        values of :class:`algorithms.adagp.layers.LayerResult` over its batches of Phase BP, and
        ``learning_rate``; ``held``, updates that Phase GP left out; ``seconds``. A number that is
        not finite is None.

    Raises
    ------
    ValueError
        for data that is not there, too large a batch, or a damaged checkpoint.
    """
    data = load_images(
        experiment.data,
        seed=experiment.seed,
        train=experiment.train_images,
        test=experiment.test_images,
    )
    if len(data.train_labels) < experiment.batch:
        raise ValueError(
            f"batch must be at most {len(data.train_labels)}, the number of training images"
        )
    identity = _identity(experiment, data)
    name = _name(experiment, identity)
    path = Path(directory) / f"{name}.json"
    if path.is_file():
        if report:
            report(f"{name}: done before")
        return json.loads(path.read_text())
    devices = [torch.cuda.current_device()] if experiment.device == "cuda" else []
    with one_thread(), torch.random.fork_rng(devices=devices):
        session = _Session(experiment, data, identity)
        checkpoint = path.with_suffix(".pt")
        if session.restore(checkpoint) and report:
            report(f"{name}: goes on after epoch {session.trainer.epoch}")
        first = session.trainer.epoch
        while session.trainer.epoch < experiment.epochs:
            if stop_after is not None and session.trainer.epoch - first >= stop_after:
                return None
            session.epoch()
            session.save(checkpoint)
            if report:
                report(f"{name}: {session.line()}")
    keep(experiment, session.record, directory)
    checkpoint.unlink()
    return json.loads(path.read_text())


def keep(experiment: Experiment, record: dict, directory) -> Path:
    """Write a record that :func:`run` has returned, perhaps on another machine."""
    path = Path(directory) / f"{_name(experiment, record['identity'])}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, indent=1, allow_nan=False))
    return path


def _name(experiment, identity):
    data = Path(experiment.data).resolve().name
    return f"{data}-{experiment.model}-{experiment.method}-seed{experiment.seed}-{identity}"


def _identity(experiment, data):
    """Digest of all a result depends on."""
    everything = {
        "experiment": dataclasses.asdict(experiment),
        "method": dataclasses.asdict(METHODS[experiment.method]),
        "data": data.digest,
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:8]


class _Session:
    """A run that is going on."""

    def __init__(self, experiment, data, identity):
        self.experiment, self.data = experiment, data
        self.method = METHODS[experiment.method]
        torch.manual_seed(experiment.seed)
        shape = tuple(data.train_images.shape[1:])
        self.model = MODELS[experiment.model](shape, data.classes).to(experiment.device)
        optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=experiment.rate,
            momentum=experiment.momentum,
            weight_decay=experiment.weight_decay,
        )
        self.trainer = AdaGPTrainer(
            self.model,
            optimizer,
            predictor=self.method.predictor,
            schedule=self.method.schedule(experiment.schedule),
        )
        self.plateau = (
            torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer) if self.method.plateau else None
        )
        self.record = {
            "experiment": dataclasses.asdict(experiment) | {"learning_rate": experiment.rate},
            "identity": identity,
            "batches": len(data.train_labels) // experiment.batch,
            "phases": "",
            "epochs": [],
            "held": 0,
            "seconds": 0.0,
        }

    def epoch(self):
        """Train one epoch and test."""
        started, trainer, size = time.perf_counter(), self.trainer, self.experiment.batch
        factor = self.method.rate_factor(trainer.schedule, trainer.epoch)
        groups = trainer.optimizer.param_groups
        if self.plateau is None:
            for group in groups:
                group["lr"] = self.experiment.rate * factor
        rate = groups[0]["lr"]
        rng = np.random.default_rng([self.experiment.seed, trainer.epoch])
        order = torch.from_numpy(rng.permutation(len(self.data.train_labels)))
        results = []
        self.model.train()
        batches = order.split(size)[: self.record["batches"]]
        for chosen in tqdm(batches, f"epoch {trainer.epoch + 1}", leave=False, disable=None):
            result = trainer.step(
                *self._on_device(self.data.train_images[chosen], self.data.train_labels[chosen])
            )
            self.record["phases"] += result.phase.value
            self.record["held"] += len(result.held)
            results.append(dataclasses.replace(result, outputs=None))
        trainer.end_epoch()
        loss = _mean(result.loss for result in results if result.loss is not None)
        if self.plateau is not None and loss is not None:
            self.plateau.step(loss)
        self.record["epochs"].append(
            {
                "accuracy": self._accuracy(),
                "loss": loss,
                "learning_rate": rate,
                "layers": {
                    layer.name: {
                        value: _mean(
                            getattr(result.layers[layer.name], value)
                            for result in results
                            if layer.name in result.layers
                        )
                        for value in _LAYER_VALUES
                    }
                    for layer in trainer.layers
                },
            }
        )
        self.record["seconds"] += time.perf_counter() - started

    def line(self) -> str:
        """The last epoch in a line."""
        last, done = self.record["epochs"][-1], len(self.record["epochs"])
        phases = self.record["phases"][-self.record["batches"] :]
        loss = "none" if last["loss"] is None else f"{last['loss']:.4f}"
        return (
            f"epoch {done:3d}/{self.experiment.epochs}  BP {len(phases) - phases.count('G'):3d}  "
            f"GP {phases.count('G'):3d}  loss {loss}  test accuracy {last['accuracy']:.2%}"
        )

    def _on_device(self, *tensors):
        return (tensor.to(self.experiment.device) for tensor in tensors)

    @torch.no_grad()
    def _accuracy(self):
        self.model.eval()
        parts = (self.data.test_images.split(_EVALUATED), self.data.test_labels.split(_EVALUATED))
        right = 0
        for part in zip(*parts):
            images, labels = self._on_device(*part)
            right += int((self.model(images).argmax(1) == labels).sum())
        return right / len(self.data.test_labels)

    def save(self, path):
        """Write the checkpoint."""
        state = {
            "record": self.record,
            "trainer": self.trainer.state_dict(),
            "plateau": None if self.plateau is None else self.plateau.state_dict(),
            "random": torch.get_rng_state(),
        }
        if self.experiment.device == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state()
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            torch.save(state, file)

    def restore(self, path) -> bool:
        """Go on from a checkpoint; False, and nothing done, if there is none."""
        if not path.is_file():
            return False
        state = read_checkpoint(path)
        self.trainer.load_state_dict(state["trainer"])
        if self.plateau is not None:
            self.plateau.load_state_dict(state["plateau"])
        self.record = state["record"]
        torch.set_rng_state(state["random"])
        if self.experiment.device == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"])
        return True


def _mean(values):
    """The mean; None if there are no values or it is not finite."""
    values = list(values)
    mean = sum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None
