"""A compiled network for people: a table of its layers, and totals."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .summary import PHASES, LayerSummary, ProgramSummary

__all__ = ["layer_table", "print_totals"]

_MIB = 1 << 20


def layer_table(layers: Sequence[LayerSummary], programs: dict[str, ProgramSummary]) -> Table:
    """A row for each layer: MACs, commands, and estimated cycles by program and phase."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    phases = [
        (program, phase)
        for program in programs
        for phase in PHASES
        if any(phase in layer.cycles.get(program, ()) for layer in layers)
    ]
    table.add_column("layer", "total", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("map", justify="right", no_wrap=True)
    table.add_column("MMACs", _mega(sum(layer.macs for layer in layers)), justify="right")
    for program, found in programs.items():
        table.add_column(f"{program}\ncommands", f"{found.commands:,}", justify="right")
    for program, phase in phases:
        total = sum(layer.cycles.get(program, {}).get(phase, 0) for layer in layers)
        table.add_column(f"{program}\n{phase}", f"{total:,}", justify="right")
    for layer in layers:
        table.add_row(
            escape(layer.name),
            layer.kind,
            "x".join(map(str, layer.shape)),
            _mega(layer.macs) if layer.macs else "",
            *(f"{layer.commands.get(program, 0):,}" for program in programs),
            *(_count(layer.cycles.get(program, {}).get(phase, 0)) for program, phase in phases),
        )
    return table


def print_totals(
    console: Console,
    programs: dict[str, ProgramSummary],
    *,
    stream_bytes: int,
    memory_bytes: int,
    seconds: float,
    images: int,
) -> None:
    """Lines with commands, bytes, cycles and time.

    Parameters
    ----------
    stream_bytes : of the program for a run of any number of batches, in which those of each kind
        are once
    memory_bytes : of DRAM, programs included
    seconds : that compiling took
    """
    for name, found in programs.items():
        again = f", {found.executed:,} with those in loops" * (found.executed != found.commands)
        console.print(
            f"{name}: {found.commands:,} commands{again}; "
            f"estimated {found.cycles:,} cycles for {images} images",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    console.print(
        f"{stream_bytes / _MIB:.2f} MiB of commands for a run, {memory_bytes / _MIB:,.1f} MiB of "
        f"DRAM in all; compiled in {seconds:.1f} s",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _mega(macs: int) -> str:
    return f"{macs / 1e6:,.1f}"


def _count(cycles: int) -> str:
    return f"{cycles:,}" if cycles else ""
