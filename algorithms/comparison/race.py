"""One training run for a budget of time: its settings and its record as JSON.

A run leaves ``<data>-<model>-<method>-<digest>.json``; the digest is that of everything the result
depends on. A finished run is not done again.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from algorithms.common.devices import require_device
from algorithms.common.float_training import one_thread
from algorithms.data.datasets import ImageData, load_images
from algorithms.networks.registry import MODELS
from cli.atomic_files import write_whole

from .contestants import CONTESTANTS, Contestant
from .costs import Costs
from .steppers import TimedSchedule, make_stepper

__all__ = ["Race", "batch_size", "read_record", "record_path", "run_race", "write_record"]

_EVALUATED = 1000  # images at a time
_CURVE = 20  # points of the curve of accuracy over time, ...
_SOME = 1000  # ... of so many test images; the last one is of all


@dataclass(frozen=True, kw_only=True)
class Race:
    """What to train and for how long.

    Members
    -------
    data : see :func:`algorithms.data.datasets.load_images`
    model, method : names in MODELS and CONTESTANTS
    seed : of the split, the initial weights, the order of the batches and of all samples
    rate : learning rate at the start; it falls to 0, linearly over the time
    budget : time, in MACs of so many batches of backpropagation
    batch : images of a batch, before the method's share
    warm_up : share of the time in which ADA-GP does not predict
    pool : images are made smaller by averaging squares of so many pixels a side
    train_images, test_images : how many are used, None for all
    cycles : what the time is counted in, if not in MACs: cycles of a batch by its kind, and as
        "unit" those of a batch of backpropagation
    tuning : a rate is to be chosen, on what ``for_tuning`` of the data gives
    device : where torch computes; None: on one thread of the processor, where the same settings
        give the same bits

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    data: str
    model: str
    method: str
    seed: int
    rate: float
    budget: int = 300
    batch: int = 64
    warm_up: float = 0.2
    pool: int = 1
    train_images: int | None = None
    test_images: int | None = None
    cycles: dict[str, int] | None = None
    tuning: bool | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
            for name, allowed in (("model", MODELS), ("method", CONTESTANTS))
            if getattr(self, name) not in allowed
        ]
        problems += [
            f"{name} must be at least {least}, not {getattr(self, name)!r}"
            for name, least in (("seed", 0), ("budget", 1), ("batch", 6), ("pool", 1))
            if getattr(self, name) < least
        ]
        if not 0 < self.rate < math.inf:
            problems.append(f"rate must be a number above 0, not {self.rate!r}")
        if not 0 <= self.warm_up < 1:
            problems.append(f"warm_up must be from 0 to below 1, not {self.warm_up!r}")
        problems += require_device(self.device or "cpu")
        if problems:
            raise ValueError("; ".join(problems))


def record_path(race: Race, directory: str | Path) -> Path:
    """Where the record of a run lies."""
    everything = {
        "race": {name: value for name, value in vars(race).items() if value is not None},
        "method": _changed(CONTESTANTS[race.method]),
        "torch": torch.__version__,
    }
    digest = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:10]
    return Path(directory) / f"{Path(race.data).name}-{race.model}-{race.method}-{digest}.json"


def _changed(contestant):
    """What is not as usual: a new kind of method leaves the records of the others valid."""
    return {
        field.name: repr(getattr(contestant, field.name))
        for field in dataclasses.fields(contestant)
        if field.name != "summary" and getattr(contestant, field.name) != field.default
    }


def read_record(race: Race, directory: str | Path) -> dict:
    """The record of a run that is finished.

    Raises
    ------
    ValueError
        naming a file that is damaged.
    """
    path = record_path(race, directory)
    try:
        record = json.loads(path.read_text())
        if record["curve"] and record["steps"]:
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no record of a finished run; delete it to do the run again")


def write_record(record: dict, race: Race, directory: str | Path) -> None:
    """Keep what :func:`run_race` has returned."""
    path = record_path(race, directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, allow_nan=False))


def run_race(race: Race) -> dict:
    """Train on the device of the run.

    Returns
    -------
    dict
        The record: ``race``; ``curve``, points of [share of the time, test accuracy] on 1,000
        images, the last one at the end on all; ``steps`` by their kind; ``budget`` and what is
        ``spent``, in MACs or cycles, at most a batch more; ``kept``, for numbers of single steps by
        name the means between the points of the curve.

    Raises
    ------
    ValueError
        for data that is not there, fewer images than a batch has, or too small images.
    """
    data = load_images(race.data, seed=race.seed, train=race.train_images, test=race.test_images)
    if race.tuning:
        data = data.for_tuning(race.seed)
    if len(data.train_labels) < race.batch:
        raise ValueError(
            f"batch must be at most {len(data.train_labels)}, the number of training images"
        )
    devices = [torch.cuda.current_device()] if race.device == "cuda" else []
    with one_thread(), torch.random.fork_rng(devices=devices):
        return _train(race, data)


def _train(race: Race, data: ImageData) -> dict:
    contestant = CONTESTANTS[race.method]
    device = race.device or "cpu"
    side = min(data.train_images.shape[2:])
    if race.pool > side:
        raise ValueError(f"pool must be at most {side}, the pixels of a side, not {race.pool}")
    images, tests = (
        _pooled(part, race.pool).to(device) for part in (data.train_images, data.test_images)
    )
    labels, test_labels = (part.to(device) for part in (data.train_labels, data.test_labels))
    shape = tuple(images.shape[1:])
    torch.manual_seed(race.seed)
    model = MODELS[race.model](shape, data.classes).to(device)
    costs = Costs.of(race.model, shape, data.classes)
    schedule = TimedSchedule(race.warm_up)
    optimizer, step = make_stepper(
        contestant, model, costs, rate=race.rate * contestant.rate_share, schedule=schedule
    )
    starts = [group["lr"] for group in optimizer.param_groups]
    unit = race.cycles["unit"] if race.cycles else costs.batch(race.batch)
    budget, spent = race.budget * unit, 0.0
    steps: dict[str, int] = {}
    curve: list[list[float]] = []
    kept: dict[str, list[list[float]]] = {}
    sums: dict[str, list[float]] = {}
    batches = _batches(len(images), batch_size(race.batch, contestant), race.seed)
    while spent < budget:
        schedule.gone = spent / budget
        for group, start in zip(optimizer.param_groups, starts, strict=True):
            group["lr"] = start * (1 - schedule.gone)
        model.train()
        chosen = next(batches)
        done = step(images[chosen], labels[chosen])
        for name, value in done.kept.items():
            if math.isfinite(value):
                sums.setdefault(name, []).append(value)
        spent += race.cycles[done.kind] if race.cycles else done.macs
        steps[done.kind] = steps.get(done.kind, 0) + 1
        if spent / budget * _CURVE >= len(curve) + 1 or spent >= budget:
            share = min(1.0, spent / budget)
            seen = None if spent >= budget else _SOME
            curve.append([share, _accuracy(model, tests[:seen], test_labels[:seen])])
            for name, numbers in sums.items():
                kept.setdefault(name, []).append([share, sum(numbers) / len(numbers)])
            sums = {}
    return {
        "race": dataclasses.asdict(race),
        "curve": curve,
        "steps": steps,
        "budget": budget,
        "spent": spent,
        "kept": kept,
    }


def batch_size(batch: int, contestant: Contestant) -> int:
    """Images of a batch of a method, where the comparison's have ``batch``."""
    return max(2, round(batch * contestant.batch))


def _pooled(images, pool):
    return functional.avg_pool2d(images, pool) if pool > 1 else images


def _batches(count, size, seed):
    """Indices without end: epochs in random order, without what is left behind the last batch."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        yield from torch.from_numpy(order[: count // size * size]).split(size)
        epoch += 1


@torch.no_grad()
def _accuracy(model, images, labels):
    model.eval()
    parts = zip(images.split(_EVALUATED), labels.split(_EVALUATED), strict=True)
    return sum(int((model(x).argmax(1) == y).sum()) for x, y in parts) / len(labels)
