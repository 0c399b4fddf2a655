"""``python -m perf planner``: the planner's cycles of commands beside the model's."""

import argparse
import json
from dataclasses import asdict

from rich.console import Console

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from compiler.networks.command import compiled
from perf.machine.command import add_network, add_plain, add_training, machine_of
from perf.machine.events.work import Works
from perf.machine.layers import batches_of

from .planner import Planned, planned_cycles, planner_table

__all__ = ["add_planner"]


def add_planner(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "planner",
        help="what the compiler takes commands for, beside what they take",
        description="Compile a network and compare, queue by queue, the cycles by which the "
        "compiler chooses between plans with those that the same commands take alone on the model "
        "of the machine.",
        epilog="example: python -m perf planner --network vgg13 --batch 16 --variant max "
        "--method adagp",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_planner)
    add_network(command)
    add_training(command)
    add_plain(command)
    command.add_argument("--json", metavar="FILE", help="write the table's numbers")


def _planner(options) -> int:
    config = machine_of(options)
    found: list[Planned] = []
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(f"compiling {options.network}", total=None)
        program = compiled(options, config)
        works = Works(config, options.latency, compiled=not options.plain)
        for name, batch in batches_of(program).items():
            bar.update(task, advance=1, description=f"{options.network} {name} on the model")
            found += planned_cycles(name, batch, works)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 130)  # nobody's window would cut it short
    console.print(planner_table(found))
    if options.json:
        rows = [asdict(item) for item in found]
        write_whole(options.json, json.dumps(rows, indent=1) + "\n")
    return 0
