"""``python -m perf count``: cycles of many batches, kept in a file."""

import argparse
from itertools import product
from pathlib import Path

from rich.console import Console

from cli.progress import progress_bar
from cli.workers import add_workers, workers_of
from compiler.networks.registry import network_names, published, shape_text, usual_method
from hw.config import PRESETS, VARIANTS
from hw.config.selection import DEFAULT_PRESET, add_settings
from perf.machine.command import LATENCY_CYCLES, add_plain

from .cells import METHODS, Cell
from .count import MODELS, Count
from .store import Store

__all__ = ["add_count", "add_store", "fill", "store_of"]


def add_count(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "count",
        help="cycles and counters of networks on the model of the machine, kept in a file",
        description="Compile networks, run their command streams on the model of the machine, and "
        "keep cycles and counters. What is in the file is not counted again, so a command that was "
        "ended goes on where it was.",
        epilog="example: python -m perf count --network vgg13 mobilenet-v2 --input 3x32x32 "
        "--batch 16 --variant baseline max",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_count)
    add = command.add_argument
    add("--network", nargs="+", required=True, metavar="NAME",
        help=f"of {', '.join(network_names())}")  # fmt: skip
    add("--input", nargs="+", metavar="CxHxW",
        help="images, or sentences as in 32+32 (default: the network's)")  # fmt: skip
    add("--batch", nargs="+", type=int, default=[16], metavar="IMAGES", help="default: 16")
    add("--variant", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS),
        metavar="NAME", help=f"of {', '.join(VARIANTS)} (default: all)")  # fmt: skip
    add("--method", choices=METHODS,
        help="default: bp for baseline, adagp for the others")  # fmt: skip
    add("--preset", choices=tuple(PRESETS), default=DEFAULT_PRESET, help="default: %(default)s")
    add("--optimizer", default="sgd", help="or nesterov, adam, adamw (default: sgd)")
    add("--classes", type=int, help="default: as many as such images usually have")
    add("--width", type=float, default=1.0, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)")  # fmt: skip
    add("--channels", type=int, default=Cell.channels, metavar="C", help="of the predictor "
        "(default: %(default)s)")  # fmt: skip
    add("--map-size", type=int, default=Cell.map_size, metavar="S", help="of the predictor, whose "
        "linear layer has C * S * S inputs (default: %(default)s)")  # fmt: skip
    add("--latency", nargs="+", type=int, default=[LATENCY_CYCLES], metavar="CYCLES",
        help=f"that memory adds to every burst (default: {LATENCY_CYCLES})")  # fmt: skip
    add_settings(command)
    add_store(command)


def add_store(command) -> None:
    """Add the options of what is kept, and of where it is counted."""
    command.add_argument(
        "--store", type=Path, metavar="FILE",
        help="where counts are kept (default: cycles.jsonl in the build directory); those that "
        "come with the project are read as well",
    )  # fmt: skip
    command.add_argument("--outdated", action="store_true",
        help="count again what another state of the project has counted")  # fmt: skip
    command.add_argument("--model", choices=MODELS, default=MODELS[0],
        help="cycles: every block from cycle to cycle (default); events: whole commands, some "
        "hundred times as fast, a little less exact, nothing of why the array waits")  # fmt: skip
    add_plain(command)
    add_workers(command, jobs=1, what="programs")


def store_of(options) -> Store:
    """The store that the options of :func:`add_store` name."""
    return Store(options.store)


def fill(store: Store, cells: list[Cell], options, console: Console) -> None:
    """Count what is missing of ``cells``, as the options of :func:`add_store` say, with a bar and
    a line for each."""
    missing = store.missing(cells, model=options.model, outdated=options.outdated)
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(missing[0].text if missing else "", total=len(missing))

        def show(found: Count) -> None:
            bar.update(task, advance=1, description=f"after {found.cell.text}")
            console.print(_line(found), markup=False, soft_wrap=True)

        store.fill(
            missing, workers_of(options), model=options.model, plain=options.plain, outdated=True,
            report=show,
        )  # fmt: skip


def _count(options) -> int:
    cells = []
    for network in options.network:
        inputs = options.input or [shape_text(published(network).shapes[0])]
        for size, batch, variant, latency in product(
            inputs, options.batch, options.variant, options.latency
        ):
            cells.append(
                Cell(
                    network=network, input=size, batch=batch, variant=variant, latency=latency,
                    method=options.method or usual_method(variant),
                    preset=options.preset, settings=tuple(options.settings),
                    optimizer=options.optimizer, classes=options.classes, width=options.width,
                    channels=options.channels, map_size=options.map_size,
                )
            )  # fmt: skip
    for cell in cells:
        cell.config  # noqa: B018  wrong settings show before anything is counted
    console, store = Console(highlight=False), store_of(options)
    fill(store, cells, options, console)
    kept = [store.get(cell) for cell in cells]
    refused = sum(found is not None and found.reason is not None for found in kept)
    console.print(f"{len(cells)} cells, {refused} of them without a program; {store.path}",
                  markup=False, soft_wrap=True)  # fmt: skip
    return 0


def _line(found: Count) -> str:
    if found.reason is not None:
        return f"{found.cell.text}: {found.reason}"
    cycles = ", ".join(f"{name} {batch.cycles:,} cycles" for name, batch in found.batches.items())
    compiler, model = found.seconds
    how = "" if found.model == MODELS[0] else f" by {found.model}"
    spent = f"compiled in {compiler:.0f} s, counted{how} in {model:.0f} s"
    return f"{found.cell.text}: {cycles}; {spent}"
