"""``python -m compiler --table``: all networks of the paper, at their sizes, on every variant."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from compiler.errors import CompileError
from hw.config import PRESETS, VARIANTS
from hw.config.selection import DEFAULT_PRESET, select_config

from .cells import (
    Cell,
    Outcome,
    append_outcome,
    compile_cell,
    compiler_state,
    read_outcomes,
)
from .registry import (
    SMALL,
    network_names,
    published,
    read_shape,
    shape_text,
    usual_batch,
    usual_method,
)

__all__ = ["document", "fill_table", "wanted_cells"]

_MIB, _MEGA = 1 << 20, 1e6

_HEAD = """# Results: networks of the paper

What becomes of the networks at their full width, by network, size of the images and variant.
`baseline` trains by backpropagation; the others are ADA-GP: a batch with backpropagation (BP) and
one of Phase GP.

- *MiB*: these commands, packed, which the program for a run of any number of batches has once.
- *DRAM*: MiB of the memory window, with everything.
- *Cycles*: millions for a batch, as the compiler estimates them
  ([compiler.md](compiler.md#the-networks-of-the-paper)).
- *Seconds* of processor time and *memory* in GiB: those of the compiler, in a process of its own
  for every row.
- *Commit*: the last one that had changed compiler, hardware or networks; "+" if there were changes
  that were not committed. Rows of different commits may differ for that reason alone.

This page is written by

```
{command}
```

which does not compile again what `{name}` has already; with `--outdated` it does what another
commit has compiled.
"""


def fill_table(options: argparse.Namespace) -> None:
    """Compile what ``options.table``, a file, lacks of the wanted cells; write
    ``options.document``, if there is one, from all that is in the file.

    Raises
    ------
    CompileError, ConfigError
        with what is wrong.
    """
    path, console = Path(options.table), Console(highlight=False)
    outcomes = read_outcomes(path)
    cells, state = wanted_cells(options), compiler_state()

    def is_missing(cell: Cell) -> bool:
        found = outcomes.get(cell)
        if found is None or (options.outdated and found.state != state):
            return True
        return bool(options.again and found.reason is not None)

    missing = [cell for cell in cells if is_missing(cell)]
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(missing))
        for cell in missing:
            bar.update(task, description=_name(cell))
            outcome = compile_cell(cell, limit=options.limit)
            outcomes[cell] = outcome
            append_outcome(path, outcome)
            console.print(f"{_name(cell)}: {_in_short(outcome)}", markup=False, soft_wrap=True)
            bar.update(task, advance=1)
    refused = sum(outcomes[cell].reason is not None for cell in cells)
    console.print(f"{len(cells)} cells, {refused} of them without a program", markup=False)
    if options.document:
        write_whole(options.document, document(outcomes.values(), path.name))
        console.print(f"wrote {options.document}", markup=False, soft_wrap=True)


def wanted_cells(options: argparse.Namespace) -> list[Cell]:
    """Networks and variants of ``options``, by default all; each for CIFAR's images and for those
    of its publication, unless ``options.input`` says which."""
    known = network_names()
    names = _all_networks(options.input) if options.only is None else options.only.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CompileError(
            f"--only must name networks of {', '.join(known)}, not {', '.join(unknown)}"
        )
    if not options.limit > 0:
        raise CompileError(f"--limit must be above 0 seconds, not {options.limit}")
    if options.batch is not None and options.batch < 1:
        raise CompileError(f"--batch must be at least 1, not {options.batch}")
    if options.input is not None:
        read_shape(options.input)
    select_config(preset=options.preset, settings=options.settings)
    cells = []
    for name in names:
        for size in [options.input] if options.input else map(shape_text, published(name).shapes):
            for variant in [options.variant] if options.variant else VARIANTS:
                cells.append(
                    Cell(
                        network=name,
                        input=size,
                        batch=options.batch or usual_batch(name, size),
                        variant=variant,
                        method=options.method or usual_method(variant),
                        preset=options.preset or DEFAULT_PRESET,
                        settings=tuple(options.settings),
                        width=options.width,
                    )
                )
    return cells


def _all_networks(size: str | None) -> list[str]:
    """Names of all networks of the paper, or of those that have inputs such as ``size``."""
    names = network_names(relatives=False)
    if size is None:
        return names
    images = isinstance(read_shape(size)[0], int)
    return [name for name in names if published(name).reads_images == images]


def document(outcomes: Iterable[Outcome], name: str) -> str:
    """The page, Markdown, of what the file ``name`` has; a table for each size and batch."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(_group(outcome.cell), []).append(outcome)
    command = f"python -m compiler --table docs/{name} --document docs/{Path(name).stem}.md"
    parts = [_HEAD.format(command=command, name=name)]
    for title in sorted(groups, key=lambda title: _order(groups[title][0].cell)):
        rows = sorted(groups[title], key=lambda outcome: _order(outcome.cell))
        parts.append(f"## {title}\n\n{_table(rows)}")
        reasons = [row for row in rows if row.reason]
        if reasons:
            parts.append("\n".join(f"- {_name(row.cell)}: {row.reason}" for row in reasons) + "\n")
    return "\n".join(parts)


def _group(cell: Cell) -> str:
    """Cells of one table: sizes of the publication are together, whatever they are."""
    size = _size(cell.input, " × ")
    if cell.input != SMALL and cell.input == shape_text(published(cell.network).shapes[-1]):
        size = "Size of the publication"
    others = [f"preset `{cell.preset}`"] * (cell.preset != DEFAULT_PRESET)
    others += [f"`{setting}`" for setting in cell.settings]
    others += [f"width {cell.width:g}"] * (cell.width != 1)
    return ", ".join([size, f"batch {cell.batch}", *others])


def _order(cell: Cell) -> tuple[object, ...]:
    names, variants = network_names(), list(VARIANTS)
    network = names.index(cell.network) if cell.network in names else len(names)
    presets = [DEFAULT_PRESET, *(name for name in PRESETS if name != DEFAULT_PRESET)]
    return (
        presets.index(cell.preset), cell.settings, -cell.width, cell.input != SMALL, -cell.batch,
        network, variants.index(cell.variant), cell.method,
    )  # fmt: skip


def _size(text: str, times: str) -> str:
    """Height and width of images; the lengths of sentences as they are."""
    return times.join(text.split("x")[1:]) or text


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| network | input | variant | BP commands | GP commands | MiB | DRAM MiB | BP cycles | "
        "GP cycles | seconds | memory | commit |",
        "| --- | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for outcome in outcomes:
        cell, programs = outcome.cell, outcome.programs
        row = [cell.network, _size(cell.input, "×"), cell.variant]
        if outcome.reason is not None:
            row += ["no program"] + [""] * 5
        else:
            row += [f"{programs[p]['commands']:,}" if p in programs else "" for p in ("bp", "gp")]
            row += [f"{outcome.stream_bytes / _MIB:.2f}", f"{outcome.memory_bytes / _MIB:,.0f}"]
            row += [
                f"{programs[p]['cycles'] / _MEGA:,.1f}" if p in programs else ""
                for p in ("bp", "gp")
            ]
        row += [f"{outcome.seconds:,.0f}", f"{outcome.peak_bytes / (1 << 30):.2f}", outcome.state]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _name(cell: Cell) -> str:
    return f"{cell.network} {cell.input}, batch {cell.batch}, {cell.variant}, {cell.method}"


def _in_short(outcome: Outcome) -> str:
    cost = f"{outcome.seconds:,.0f} s, {outcome.peak_bytes / (1 << 30):.2f} GiB"
    if outcome.reason is not None:
        return f"{outcome.reason} ({cost})"
    return f"{outcome.stream_bytes / _MIB:.2f} MiB of commands ({cost})"
