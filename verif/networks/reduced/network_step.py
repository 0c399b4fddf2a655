"""What came of a network that was trained beside golden: as text, as a table, as JSON."""

import json
from dataclasses import dataclass, field

import numpy as np
from rich import box
from rich.table import Table

from cli.atomic_files import write_whole
from verif.networks.training_result import TrainingResult

__all__ = ["NetworkStep", "print_network", "print_networks", "write_networks"]


def _nothing():
    return TrainingResult(
        differences=[], losses=[], correct=[], rejected=[], cycles=[], counters=[], compared=0,
        final=b"",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NetworkStep:
    """A network trained by one method.

    Members
    -------
    network, method : what was trained
    shape, width : of an image, or of each input; what numbers of channels were multiplied with
    variant, preset, device, images : where, and images in a batch
    configuration : digest of the accelerator's, which settings may make another than the preset's
    beside : whether steps run beside each other, see
        :func:`compiler.training.compile.compile_training`
    latency, stall_share : cycles that memory added to every burst, share of the time it paused
    phases : what every batch does, a letter each
    commands, memory_bytes : of the programs of the batches, of the memory window; nothing if the
        compiler refuses the network
    result : :class:`~verif.networks.training_result.TrainingResult`
    state : of the project, see :func:`cli.source_state.source_state`
    error : what the compiler refuses, or how a run broke off; then ``result`` is empty
    golden_seconds, seconds : of golden and the compiler, of the accelerator or its model
    """

    network: str
    method: str
    shape: tuple
    width: float
    variant: str
    preset: str
    device: str
    images: int
    configuration: str = ""
    beside: bool | None = None
    latency: int = 0
    stall_share: float = 0.0
    phases: str
    commands: list = field(default_factory=list)
    memory_bytes: int = 0
    result: TrainingResult = field(default_factory=_nothing)
    state: str = ""
    error: str = ""
    golden_seconds: float = 0.0
    seconds: float = 0.0

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
        if self.error:
            return f"{self.name}: {self.error}"
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
        names = (
            "network", "method", "variant", "preset", "configuration", "device", "images", "beside",
            "latency", "stall_share", "memory_bytes", "shape", "width", "state", "error", "passed",
        )  # fmt: skip
        lists = {"phase": self.phases, "commands": self.commands, "loss": result.losses,
                 "cycles": result.cycles, "counters": result.counters}  # fmt: skip
        filled = {name: values for name, values in lists.items() if len(values)}
        return {
            **{name: getattr(self, name) for name in names},
            "batches": [
                dict(zip(filled, row, strict=True)) for row in zip(*filled.values(), strict=True)
            ],
            "compared": result.compared,
            "differences": [str(difference) for difference in result.differences],
            "golden_seconds": round(self.golden_seconds, 1),
            "seconds": round(self.seconds, 1),
        }


def print_network(console, step) -> None:
    """The verdict, and the first number of each tensor that is wrong."""
    result = step.result
    for difference in result.differences[:10]:
        console.print(str(difference), markup=False, highlight=False, soft_wrap=True)
    if step.complaint:
        console.print(step.complaint, markup=False, highlight=False, soft_wrap=True)
    ran = f"on the {step.device}"
    if result.cycles:
        speed = sum(result.cycles) / max(result.seconds, 1e-9) / 1000
        ran = f"{sum(result.cycles):,} cycles, {speed:.0f} kcycles/s"
    console.print(
        f"{_verdict(step)} {step.name} {step.variant} {step.preset}: {result.compared:,} numbers "
        f"after {len(result.losses)} batches, {len(result.differences)} tensors differ from "
        f"golden; {step.seconds:.0f} s, {ran}",
        highlight=False,
        soft_wrap=True,
    )


def print_networks(console, steps) -> None:
    """A table of all networks that were trained, with cycles where there are some, else with
    commands."""
    rows = [
        {
            "network": step.network,
            "method": f"{step.method} {step.variant} {step.preset}",
            "batch": "\n".join(step.phases),
            "commands": _lines(step.commands, ","),
            "cycles": _lines(step.result.cycles, ","),
            "array busy": _lines(step.shares, ".1%"),
            "loss": _lines(step.result.losses, ".4f"),
            "result": _verdict(step),
        }
        for step in steps
    ]
    table = Table(
        box=box.SIMPLE, title=f"networks: {steps[0].images} images in a batch, {steps[0].device}"
    )
    headings = [heading for heading in rows[0] if any(row[heading] for row in rows)]
    if "cycles" in headings:
        headings.remove("commands")
    for heading in headings:
        left = heading in ("network", "method")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[heading] for heading in headings))
    console.print(table)


def _lines(numbers, layout):
    """A line for each batch; empty for one that has no number."""
    return "\n".join("" if number is None else format(number, layout) for number in numbers)


def _verdict(step):
    return "[green]PASS[/]" if step.passed else "[red]FAIL[/]"


def write_networks(path, steps) -> None:
    """The same as JSON."""
    write_whole(path, json.dumps([step.as_dict() for step in steps], indent=1) + "\n")
