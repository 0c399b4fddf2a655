"""``python -m algorithms pipeline``."""

import argparse
import dataclasses
import hashlib
import json
import time
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from algorithms.common.devices import DEVICES
from algorithms.common.float_training import CACHE_DIRECTORY
from algorithms.networks.registry import SMALL
from cli.atomic_files import write_whole
from cli.progress import progress_bar

from .launch import finished_epochs, read_stages, train_pipeline
from .plan import METHODS, SCHEDULES, PipelinePlan
from .single import train_single

__all__ = ["add_pipeline"]

_RUNS = CACHE_DIRECTORY / "pipelines"


def add_pipeline(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "pipeline",
        help="train with a process for every stage of the network",
        description="Train a network cut into stages, each in a process of its own on this "
        "machine (torch.distributed). With gpipe and 1f1b the weights are those of a training in "
        "one process, bit for bit; --check shows it. A run that was interrupted goes on from its "
        "last epoch.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python -m algorithms pipeline --schedule 1f1b --method adagp --check",
    )
    command.set_defaults(action=_pipeline)
    add, default = command.add_argument, PipelinePlan()
    add("--schedule", choices=SCHEDULES, default=default.schedule,
        help="async: not emptied within an epoch, gradients late (default: gpipe)")  # fmt: skip
    add("--method", choices=METHODS, default=default.method, help="default: bp")
    add("--data", default=default.data, help="as of train (default: digits)")
    add("--model", choices=tuple(SMALL), default=default.model, help="default: vgg")
    for name, text in (
        ("stages", "processes"), ("micro_batches", "of a batch"), ("epochs", "over the data"),
        ("batch", "images"), ("warm_up", "epochs of adagp before predictions"), ("seed", "of all"),
    ):  # fmt: skip
        value = getattr(default, name)
        flag = f"--{name.replace('_', '-')}"
        add(flag, type=int, default=value, metavar="N", help=f"{text} (default: {value})")
    add("--rate", type=float, default=default.rate, help=f"learning rate (default: {default.rate})")
    add("--momentum", type=float, default=default.momentum, help=f"default: {default.momentum}")
    add("--braking", type=float, default=0.0, metavar="RHO", help="Adaptive Braking (default: 0)")
    add("--train-images", type=int, help="use so many only")
    add("--test-images", type=int, help="use so many only")
    add("--device", choices=DEVICES, default=default.device,
        help="cuda: a GPU for every stage, over nccl (default: cpu, over gloo)")  # fmt: skip
    add("--check", action="store_true", help="train in one process, too, and compare every bit")
    add("--output", metavar="DIR", help=f"of checkpoints and traces (default: in {_RUNS})")


def _pipeline(options) -> int:
    names = [field.name for field in dataclasses.fields(PipelinePlan) if field.name != "predictor"]
    plan = PipelinePlan(**{name: getattr(options, name) for name in names})
    if options.check and plan.device != "cpu":
        raise ValueError("check needs device cpu: other devices round in other places")
    data = plan.load()
    stages = plan.build(data)
    directory = Path(options.output or _RUNS / _digest(plan))
    for number, stage in enumerate(stages):
        layers = ", ".join(type(layer).__name__ for layer in stage)
        print(f"stage {number}: {layers}")
    if done := finished_epochs(plan, directory):
        print(f"goes on after epoch {done} of {plan.epochs}, from {directory}", flush=True)
    started = time.monotonic()
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(f"epochs, {plan.schedule}, {plan.method}", total=plan.epochs)
        train_pipeline(plan, directory, progress=lambda epoch: bar.update(task, completed=epoch))
    if done < plan.epochs:
        print(f"trained {plan.epochs - done} epochs in {time.monotonic() - started:.1f} s")
    trained = read_stages(plan, directory)
    images = len(data.test_labels)
    print(f"accuracy on {images} test images: {_accuracy(trained, data):.2%}")
    path = directory / "trace.json"
    write_whole(path, json.dumps(_traces(plan, directory)) + "\n")
    print(f"wrote {path}; python -m perf pipelines --trace {path} shows its steps")
    return _compare(plan, trained) if options.check else 0


def _digest(plan):
    text = json.dumps(dataclasses.asdict(plan), sort_keys=True) + torch.__version__
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{Path(plan.data).name}-{plan.model}-{plan.schedule}-{plan.method}-{digest}"


def _traces(plan, directory):
    """Passes of every stage, of all epochs."""
    return {
        "schedule": plan.schedule,
        "micro_batches": plan.micro_batches if plan.schedule != "async" else 1,
        "stages": [
            [
                each
                for epoch in range(1, plan.epochs + 1)
                for each in json.loads((directory / f"epoch{epoch}-stage{number}.json").read_text())
            ]
            for number in range(plan.stages)
        ],
    }


@torch.no_grad()
def _accuracy(stages, data):
    outputs = nn.Sequential(*stages).eval()(data.test_images)
    return (outputs.argmax(1) == data.test_labels).float().mean().item()


def _compare(plan, trained):
    """1 if a number differs from those of a training in one process."""
    count = 0
    for number, (found, wanted) in enumerate(zip(trained, train_single(plan), strict=True)):
        for name, value in wanted.state_dict().items():
            own = found.state_dict()[name]
            count += value.numel()
            if not torch.equal(own, value):
                place = (own != value).flatten().nonzero()[0].item()
                here, there = (each.flatten()[place].item() for each in (own, value))
                print(f"FAIL stage {number}, {name}[{place}]: {here!r}, in one process {there!r}")
                return 1
    print(f"PASS {count:,} weights and statistics equal those of one process, bit for bit")
    return 0
