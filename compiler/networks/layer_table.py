"""A compiled network for people: a table of its layers, and totals."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hw.config import CoreConfig

from .array_use import PRODUCTS, ArrayUse, ratio, together
from .summary import PHASES, LayerSummary, ProgramSummary

__all__ = ["array_table", "layer_table", "print_totals"]

_MIB = 1 << 20
_BESIDE = (
    "predictor: beside the other phases, on a clock of its own; a step that waits for it lasts "
    "as long"
)


def layer_table(
    layers: Sequence[LayerSummary], programs: dict[str, ProgramSummary], *, apart: bool = False
) -> Table:
    """A row for each layer: MACs, commands, and estimated cycles by program and phase; ``apart``:
    those of the predictor have a clock of their own."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True, caption_justify="left",
        caption=_BESIDE if apart else None,
    )  # fmt: skip
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


def array_table(layers: Sequence[LayerSummary], core: CoreConfig) -> Table | None:
    """By layer, program and direction of products: what tiling allows of PEs and cycles, and the
    share of that, which is the share of cycles in which a vector enters the array. None where no
    steps are timed."""
    programs = list(dict.fromkeys(program for layer in layers for program in layer.array))
    if not programs:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("array, by layer", "all", no_wrap=True)
    found = {program: together([layer.array.get(program, {}) for layer in layers])
             for program in programs}  # fmt: skip
    pairs = [(program, use) for program in programs for use in PRODUCTS if use in found[program]]

    def cells(uses: Mapping[str, Mapping[str, ArrayUse]]) -> list[str]:
        texts = []
        for program, direction in pairs:
            use = uses.get(program, {}).get(direction)
            texts += [f"{use.allowed(core):.1%}", f"{use.busy:.1%}"] if use else ["", ""]
        return texts

    footers = iter(cells(found))
    for program, direction in pairs:
        for what in ("tiling allows", "share of that"):
            table.add_column(f"{program} {direction}\n{what}", next(footers), justify="right")
    for layer in layers:
        if layer.array:
            table.add_row(escape(layer.name), *cells(layer.array))
    return table


def _idle(found: ProgramSummary) -> str:
    """Causes, the longest first."""
    causes = sorted(found.idle.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {ratio(n, found.cycles):.1%}" for cause, n in causes if n > 0)


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
        idle = _idle(found)
        console.print(
            f"    the array takes a vector in {ratio(found.vectors, found.cycles):.1%} of them"
            + f"; in the others: {idle}" * bool(idle),
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
