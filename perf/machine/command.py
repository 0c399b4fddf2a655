"""``python -m perf cycles``: a network's cycles by layer and phase."""

import argparse
import json
import time
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from compiler.networks.command import compiled
from compiler.networks.registry import network_names
from compiler.networks.summary import PHASES
from hw.config import PRESETS, VARIANTS, AdaGPConfig
from hw.config.selection import add_settings, select_config

from .events.work import Works
from .layers import BEHIND, BatchCycles, batches_of, time_batch

__all__ = [
    "LATENCY_CYCLES",
    "add_cycles",
    "add_network",
    "add_plain",
    "add_training",
    "cycles_table",
    "machine_of",
]

#: Of memory, unless the command line says otherwise: as in `verif bench --case layers`.
LATENCY_CYCLES = 30


def add_cycles(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "cycles",
        help="cycles of a network by layer and phase (Figure 16 of the paper)",
        description="Compile a network and run its command streams on the model of the machine, "
        "a batch with backpropagation and, with --method adagp, one with predicted gradients.",
        epilog="example: python -m perf cycles --network vgg13 --input 3x32x32 --batch 16 "
        "--variant max --method adagp",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_cycles)
    add_network(command)
    add_training(command)
    add = command.add_argument
    add("--exact", action="store_true",
        help="simulate loops until the whole machine's state repeats; without it until their "
        "iterations take the same time but for 0.4 %%")  # fmt: skip
    add("--model", choices=("cycles", "events"), default="cycles",
        help="every block from cycle to cycle (default), or whole commands, some hundred times as "
        "fast, without what the array waits for")  # fmt: skip
    add("--json", metavar="FILE", help="write cycles, counters and layers")


def add_network(command: argparse.ArgumentParser) -> None:
    """Options that say which network's batch runs on which machine and memory."""
    add = command.add_argument
    add("--network", required=True, metavar="NAME", help=f"one of {', '.join(network_names())}")
    add("--input", metavar="CxHxW", help="image, or sentences as in 32+32 (default: the network's)")
    add("--batch", type=int, default=16, metavar="IMAGES", help="default: 16")
    add("--classes", type=int, help="default: as many as such images usually have")
    add("--width", type=float, default=1.0, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)")  # fmt: skip
    add("--variant", choices=tuple(VARIANTS), default="baseline", help="default: baseline")
    add("--preset", choices=tuple(PRESETS), help="default: paper")
    add("--latency", type=int, default=LATENCY_CYCLES, metavar="CYCLES",
        help="that memory adds to every burst (default: %(default)s)")  # fmt: skip
    add_settings(command)


def add_plain(command: argparse.ArgumentParser) -> None:
    """The option for what is over before the models are compiled."""
    command.add_argument(
        "--plain",
        action="store_true",
        help="the models in plain Python: for tiny networks, compiling it takes longer",
    )


def add_training(command: argparse.ArgumentParser) -> None:
    """Options that say how the network is trained."""
    add = command.add_argument
    add("--method", choices=("bp", "adagp"), default="bp",
        help="backpropagation, or with predicted gradients as well (default: bp)")  # fmt: skip
    add("--optimizer", default="sgd", help="or nesterov, adam, adamw (default: sgd)")
    add("--loss", help="default: the network's")


def machine_of(options: argparse.Namespace, *usual: str) -> AdaGPConfig:
    """The machine that the options of :func:`add_network` say, with ``usual`` settings unless they
    say otherwise. Raises ValueError for a latency that no memory has, ConfigError for wrong
    settings."""
    if options.latency < 0:
        raise ValueError(f"latency must be at least 0, not {options.latency}")
    settings = [*usual, *options.settings]
    return select_config(variant=options.variant, preset=options.preset, settings=settings)


def _cycles(options) -> int:
    config = machine_of(options)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 240  # nobody's window would cut it short
    found: dict[str, BatchCycles] = {}
    seconds: dict[str, float] = {}
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(f"compiling {options.network}", total=None)
        program = compiled(options, config)
        works = Works(config, options.latency) if options.model == "events" else None
        for name, batch in batches_of(program).items():
            bar.update(task, advance=1, description=f"{options.network} {name} on the model")
            begin = time.perf_counter()
            found[name] = time_batch(
                batch, latency=options.latency, exact=options.exact, works=works
            )
            seconds[name] = time.perf_counter() - begin
    console.print(cycles_table(found))
    for name, batch in found.items():
        result = batch.result
        console.print(
            f"{name}: {result.cycles:,} cycles for {options.batch} images, "
            f"{result.read_bytes:,} bytes read, {result.write_bytes:,} written; "
            f"{result.simulated:,} cycles simulated in {seconds[name]:.1f} s",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    if options.json:
        document = {
            "network": options.network, "batch": options.batch, "method": options.method,
            "latency": options.latency, "config": config.as_dict(),
            "batches": {name: asdict(batch) for name, batch in found.items()},
        }  # fmt: skip
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
    return 0


def cycles_table(batches: dict[str, BatchCycles]) -> Table:
    """A row for each layer, a column for each phase of each batch."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    columns = [
        (name, phase)
        for name, batch in batches.items()
        for phase in PHASES
        if any(phase in phases for phases in batch.layers.values())
    ]
    table.add_column("layer", "total", no_wrap=True)
    for name, phase in columns:
        total = sum(phases.get(phase, 0) for phases in batches[name].layers.values())
        table.add_column(f"{name}\n{phase}", f"{total:,}", justify="right")
    for name, batch in batches.items():
        table.add_column(f"{name}\nall", f"{batch.result.cycles:,}", justify="right")
    layers = dict.fromkeys(layer for batch in batches.values() for layer in batch.layers)
    layers[BEHIND] = layers.pop(BEHIND, None)
    for layer in layers:
        counts = [batches[name].layers.get(layer, {}).get(phase, 0) for name, phase in columns]
        counts += [sum(batch.layers.get(layer, {}).values()) for batch in batches.values()]
        table.add_row(escape(layer), *(f"{count:,}" if count else "" for count in counts))
    return table
