"""The networks of the paper with few channels, trained for two batches beside golden."""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from rich import box
from rich.table import Table

from algorithms.networks.paper_networks import NETWORKS
from algorithms.networks.yolo_v3 import YoloV3
from cli.atomic_files import write_whole
from golden.prediction.schedule import Phase

from .adagp_blocks import experienced
from .adagp_run import AdaGPRun
from .train_blocks import random_batches, random_model
from .training_result import TrainingResult, in_phases
from .training_run import TrainingRun

__all__ = [
    "METHODS",
    "REDUCED",
    "NetworkStep",
    "ReducedNetwork",
    "network_run",
    "print_network",
    "print_networks",
    "run_network",
    "write_networks",
]

#: Name on the command line -> what the two batches do, a letter each, as
#: :class:`golden.prediction.schedule.Phase`; None: a program of backpropagation alone.
METHODS = {"bp": None, "adagp": "BG"}
#: Batches, images in each of them, classes, and the learning rate.
BATCHES, IMAGES, CLASSES, RATE = 2, 2, 10, 0.05
#: Least memory of a simulation, so that the networks of a configuration share one build.
MEMORY_BYTES = 1 << 26
#: After so many cycles, and so many per command, a simulation counts as hung.
_PATIENCE = 50_000_000, 20_000


@dataclass(frozen=True, kw_only=True)
class ReducedNetwork:
    """How a network is made small: the same graph with other numbers.

    Members
    -------
    make : a model, of a shape, a number of classes and ``width``
    shape : (C, H, W) of an image
    width : what its numbers of channels are multiplied with, see
        :mod:`algorithms.networks.paper_networks`
    loss : of every output; the targets of "mean_squared_error" are random maps
    """

    make: Callable
    shape: tuple[int, int, int] = (3, 8, 8)
    width: float = 1 / 16
    loss: str = "cross_entropy"

    @property
    def size(self) -> str:
        """Both as text."""
        return f"{'x'.join(map(str, self.shape))}, width {self.width:g}"


#: By name. The graphs are those of 32 x 32 pixels, in which VGG halves its maps five times.
REDUCED = {
    name: ReducedNetwork(make=make, shape=(3, 32, 32) if name.startswith("vgg") else (3, 8, 8))
    for name, make in NETWORKS.items()
} | {"yolo-v3": ReducedNetwork(make=YoloV3, shape=(3, 32, 32), loss="mean_squared_error")}


@dataclass(frozen=True, kw_only=True)
class NetworkStep:
    """A network trained by one method.

    Members
    -------
    network, method, reduced : what was trained
    variant, preset, images : where, and images in a batch
    phases : what every batch did, a letter each
    commands, memory_bytes : of the programs of the batches, of the memory window
    result : :class:`~verif.networks.training_result.TrainingResult`
    golden_seconds, seconds : of golden and the compiler, of the accelerator or its model
    """

    network: str
    method: str
    reduced: ReducedNetwork
    variant: str
    preset: str
    images: int
    phases: str
    commands: list
    memory_bytes: int
    result: TrainingResult
    golden_seconds: float
    seconds: float

    @property
    def name(self) -> str:
        return f"networks {self.network} {self.method}"

    @property
    def passed(self) -> bool:
        """Whether everything equals golden, and the losses say that it is worth something."""
        return self.result.passed and not self.complaint

    @property
    def complaint(self) -> str:
        """What is wrong but for differences from golden; empty if nothing is."""
        lost = [loss for loss in self.result.losses if loss is not None and not np.isfinite(loss)]
        return f"{self.name}: a loss is {lost[0]}" if lost else ""

    @property
    def shares(self) -> list:
        """Share of the cycles of every batch in which the main array takes a vector."""
        result = self.result
        return [busy / cycles for busy, cycles in zip(result.busy, result.cycles, strict=True)]

    def as_dict(self) -> dict:
        """Plain values, for JSON."""
        result = self.result
        names = ("network", "method", "variant", "preset", "images", "memory_bytes")
        lists = {"phase": self.phases, "commands": self.commands, "loss": result.losses,
                 "cycles": result.cycles, "vectors": result.busy}  # fmt: skip
        filled = {name: values for name, values in lists.items() if len(values)}
        return {
            **{name: getattr(self, name) for name in names},
            "input": self.reduced.shape,
            "width": self.reduced.width,
            "batches": [
                dict(zip(filled, row, strict=True)) for row in zip(*filled.values(), strict=True)
            ],
            "compared": result.compared,
            "differences": [str(difference) for difference in result.differences],
            "passed": self.passed,
            "golden_seconds": round(self.golden_seconds, 1),
            "seconds": round(self.seconds, 1),
        }


def network_run(
    name: str, method: str, config, seed: int, reduced: ReducedNetwork | None = None
) -> TrainingRun:
    """A network in training, with golden's results; see :data:`METHODS`. ``reduced`` is another
    size than the one in :data:`REDUCED`.

    By backpropagation every stored map and gradient has a place of its own and is compared. By
    ADA-GP tensors share memory, as they do in the programs that users get; the predictor has
    experience, so that no gate is closed.
    """
    reduced = reduced or REDUCED[name]
    rng = np.random.default_rng([seed, list(REDUCED).index(name)])
    model = random_model(lambda: reduced.make(reduced.shape, CLASSES, width=reduced.width), rng)
    batches = random_batches(
        rng, [RATE] * BATCHES, images=IMAGES, shape=reduced.shape, classes=CLASSES,
        targets=_target_maps(model, reduced, rng),
    )  # fmt: skip
    phases = METHODS[method]
    if phases is None:
        return TrainingRun(
            model, config, reduced.shape, batches, loss=reduced.loss, reuse=False
        )  # fmt: skip
    return AdaGPRun(
        model, config, reduced.shape, in_phases(batches, map(Phase, phases)), loss=reduced.loss,
        prepare=experienced(rng),
    )  # fmt: skip


def _target_maps(model, reduced, rng):
    """Random targets of all outputs, None for labels."""
    if reduced.loss == "cross_entropy":
        return None
    with torch.no_grad():
        outputs = copy.deepcopy(model).eval()(torch.zeros(IMAGES, *reduced.shape))
    shapes = [tuple(output.shape) for output in outputs]
    return [rng.standard_normal((n, h, w, c)).astype(np.float32) for n, c, h, w in shapes]


def run_network(
    name, method, config, *, preset, width=None, seed=1, emulator=False, report=None, **options
) -> NetworkStep:
    """Train on the RTL, or in the functional model; ``options`` go to
    :meth:`~verif.networks.training_run.TrainingRun.simulate`. With ``width`` the numbers of
    channels are multiplied by it, and images have 32 × 32 pixels."""
    begin = time.perf_counter()
    reduced = REDUCED[name]
    if width is not None:
        reduced = replace(reduced, width=width, shape=(3, 32, 32))
    run = network_run(name, method, config, seed, reduced)
    commands = [len(run.program_of(batch).command_list) for batch in run.batches]
    memory = run.program.memory_size
    ready = time.perf_counter()
    if report:
        report(
            f"{name} {method}: {reduced.size}; {' and '.join(f'{n:,}' for n in commands)} "
            f"commands, {memory / 2**20:.1f} MiB, golden and compiler {ready - begin:.0f} s"
        )
    if emulator:
        result = run.interpret(seed)
    else:
        result = run.simulate(
            seed=seed, memory_bytes=MEMORY_BYTES, report=report,
            timeout_cycles=min(_PATIENCE[0] + _PATIENCE[1] * max(commands), 1 << 31), **options,
        )  # fmt: skip
    return NetworkStep(
        network=name, method=method, reduced=reduced, variant=config.variant, preset=preset,
        images=IMAGES, phases=METHODS[method] or "B" * BATCHES, commands=commands,
        memory_bytes=memory, result=result, golden_seconds=ready - begin,
        seconds=time.perf_counter() - ready,
    )  # fmt: skip


def print_network(console, step) -> None:
    """The verdict, and the first number of each tensor that is wrong."""
    result = step.result
    for difference in result.differences[:10]:
        console.print(str(difference), markup=False, highlight=False, soft_wrap=True)
    if step.complaint:
        console.print(step.complaint, markup=False, highlight=False, soft_wrap=True)
    verdict = "[green]PASS[/]" if step.passed else "[red]FAIL[/]"
    ran = "in the functional model"
    if result.cycles:
        speed = sum(result.cycles) / max(result.seconds, 1e-9) / 1000
        ran = f"{sum(result.cycles):,} cycles, {speed:.0f} kcycles/s"
    console.print(
        f"{verdict} {step.name} {step.variant} {step.preset}: {result.compared:,} numbers after "
        f"{len(result.losses)} batches, {len(result.differences)} tensors differ from golden; "
        f"{step.seconds:.0f} s, {ran}",
        highlight=False,
        soft_wrap=True,
    )


def print_networks(console, steps) -> None:
    """A table of all networks that were trained."""
    table = Table(box=box.SIMPLE, title=f"networks: {IMAGES} images in a batch")
    for heading in ("network", "method", "batch", "cycles", "array busy", "loss", "result"):
        table.add_column(heading, justify="left" if heading in ("network", "method") else "right")
    for step in steps:
        result = step.result
        losses = ["" if loss is None else f"{loss:.4f}" for loss in result.losses]
        columns = [
            step.phases,
            [f"{number:,}" for number in result.cycles],
            [f"{share:.1%}" for share in step.shares],
            losses,
        ]
        table.add_row(
            step.network,
            f"{step.method} {step.variant} {step.preset}",
            *("\n".join(column) for column in columns),
            "[green]PASS[/]" if step.passed else "[red]FAIL[/]",
        )
    console.print(table)


def write_networks(path, steps) -> None:
    """The same as JSON."""
    write_whole(path, json.dumps([step.as_dict() for step in steps], indent=1) + "\n")
