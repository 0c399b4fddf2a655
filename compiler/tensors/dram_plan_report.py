"""A memory plan for people: a table, a line that sums it up, a drawing."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol

from rich import box
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from cli.atomic_files import replacing
from cli.consoles import table_console

from .dram_planner import MemoryPlan

__all__ = ["draw_plan", "plan_table", "print_plan", "print_steps", "summary"]

#: Colours of kinds in turn; they stay apart for colour-blind readers (Okabe and Ito).
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip


class ListedStep(Protocol):
    """What is shown of a :class:`compiler.training.program.StepInfo`."""

    @property
    def layer(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def command_count(self) -> int: ...


class SteppedProgram(Protocol):
    """What is shown of a :class:`~compiler.training.TrainingProgram`."""

    @property
    def steps(self) -> Sequence[ListedStep]: ...
    @property
    def command_list(self) -> Sequence[object]: ...
    @property
    def images(self) -> int: ...
    @property
    def memory_size(self) -> int: ...


def plan_table(plan: MemoryPlan) -> Table:
    """One row for each block of a ``MemoryPlan``, by offset, then by steps."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns: tuple[tuple[str, JustifyMethod], ...] = (
        ("name", "left"),
        ("kind", "left"),
        ("shape", "left"),
        ("bytes", "right"),
        ("offset", "right"),
        ("from step", "right"),
        ("to step", "right"),
        ("shares space with", "left"),
    )
    for heading, justify in columns:
        table.add_column(heading, justify=justify, no_wrap=heading != "shares space with")
    permanent = ("always", "")
    for block in sorted(plan.blocks, key=lambda b: (plan.offsets[b.name], b.steps or (-1, -1))):
        table.add_row(
            escape(block.name),
            block.kind,
            "x".join(str(size) for size in block.shape),
            f"{block.size:,}",
            f"{plan.offsets[block.name]:#x}",
            *(permanent if block.steps is None else (str(step) for step in block.steps)),
            escape(", ".join(plan.neighbours(block.name))),
        )
    return table


def print_steps(program: SteppedProgram, console: Console | None = None) -> None:
    """One row for each step of a :class:`~compiler.training.TrainingProgram`."""
    console = console or table_console(200)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns: tuple[tuple[str, JustifyMethod], ...] = (
        ("step", "right"),
        ("layer", "left"),
        ("direction", "left"),
        ("commands", "right"),
    )
    for heading, justify in columns:
        table.add_column(heading, justify=justify)
    for number, step in enumerate(program.steps):
        count = str(step.command_count)
        table.add_row(str(number), escape(step.layer), step.direction, count)
    console.print(table)
    console.print(
        f"{len(program.command_list)} commands for a batch of {program.images} images, "
        f"{program.memory_size:,} bytes of memory with the program",
        markup=False,
        soft_wrap=True,
    )


def summary(plan: MemoryPlan) -> str:
    """One line: bytes planned, bytes without sharing, the most bytes alive at once."""
    if not plan.blocks:
        return "no blocks"
    return (
        f"{len(plan.blocks)} blocks in {plan.size:,} bytes; {plan.unshared:,} without sharing; "
        f"{plan.size / plan.peak - 1:.1%} above the {plan.peak:,} alive at once"
    )


def print_plan(plan: MemoryPlan, console: Console | None = None) -> None:
    """Print table and summary to ``console``, by default standard output."""
    console = console or table_console(200)
    console.print(plan_table(plan))
    console.print(summary(plan), markup=False, soft_wrap=True)


def draw_plan(plan: MemoryPlan, path: str | PathLike[str]) -> Path:
    """Draw the blocks, offset over steps, coloured by kind, into a PNG file at ``path``.

    Permanent blocks go through all steps. Needs matplotlib.
    """
    # Imported here: it takes a second, and everything else does without it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch, Rectangle

    steps = [step for block in plan.blocks for step in block.steps or ()]
    begin, end = min(steps, default=0), max(steps, default=0)
    kinds = list(dict.fromkeys(block.kind for block in plan.blocks))
    colours = {kind: _COLOURS[number % len(_COLOURS)] for number, kind in enumerate(kinds)}
    unit, name = (1 << 20, "MiB") if plan.size > 1 << 22 else (1 << 10, "KiB")
    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    try:
        for block in plan.blocks:
            first, last = block.steps or (begin, end)
            axes.add_patch(
                Rectangle(
                    (first - 0.5, plan.offsets[block.name] / unit),
                    last - first + 1,
                    block.size / unit,
                    facecolor=colours[block.kind],
                    edgecolor="black",
                    linewidth=0.4,
                )
            )
            # Where it has room: characters of this size are about 0.005 of the width.
            share = (last - first + 1) / (end - begin + 1)
            if block.size > plan.size / 50 and share > 0.006 * len(block.name):
                axes.annotate(
                    block.name,
                    ((first + last) / 2, (plan.offsets[block.name] + block.size / 2) / unit),
                    ha="center",
                    va="center",
                    fontsize=6,
                    clip_on=True,
                )
        axes.axhline(plan.peak / unit, color="black", linestyle=":", linewidth=1)
        axes.set(
            xlim=(begin - 0.5, end + 0.5),
            ylim=(0, max(plan.size, 1) / unit * 1.03),
            xlabel="step",
            ylabel=f"offset / {name}",
            title=summary(plan),
        )
        axes.title.set_fontsize(9)
        axes.legend(
            handles=[Patch(facecolor=colours[kind], label=kind) for kind in kinds],
            loc="lower right",
            fontsize=7,
        )
        with replacing(path) as file:
            figure.savefig(file, dpi=150, format="png")
    finally:
        pyplot.close(figure)
    return Path(path)
