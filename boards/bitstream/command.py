"""``python -m boards build``: a bitstream."""

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from boards.catalogue import BOARDS, BoardError
from boards.options import add_system, board_of, system_of, whole
from cli.atomic_files import write_whole
from cli.build_directory import build_root

from .flow import build, emit, missed, synthesize_system

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: python -m boards build ulx3s --clock 40 --set columns=4"
    add = parser.add_argument
    add("board", help=f"one of {', '.join(BOARDS)}")
    add_system(parser)
    add("--seed", type=whole(0), default=1, help="of place and route (1)")
    add("--dry-run", action="store_true", help="write Verilog and constraints, and end")
    add("--synthesis-only", action="store_true", help="print what it takes, and end")
    add("--placement-only", action="store_true",
        help="print what it takes and what nextpnr estimates without routing, and end")  # fmt: skip
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="default: build/boards/BOARD-HASH; with --device BOARD-DEVICE-HASH",
    )


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0, or 1 if a clock is missed."""
    board = board_of(arguments)
    config = system_of(board, arguments)
    accelerator = config.accelerator
    name = "-".join([board.name, *filter(None, [arguments.device]), accelerator.hash])
    directory = arguments.output or build_root() / "boards" / name
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    console.print(
        f"{board.name}: {accelerator.variant}, {accelerator.rows} x {accelerator.columns} PEs of "
        f"{accelerator.operand_format}"
        + (" with training engines" if accelerator.has_training_engines else "")
        + f", {config.clock_mhz:g} MHz; {board.device}; SDRAM {config.chip.name} at "
        f"{config.sdram.clock_mhz:g} MHz; serial line {config.baud:,} bit/s; "
        f"configuration {accelerator.hash}",
        soft_wrap=True,
    )
    began = time.monotonic()
    try:
        if arguments.dry_run:
            for name, text in emit(board, config).items():
                write_whole(directory / name, text)
                console.print(f"wrote {directory / name}, {len(text):,} bytes", soft_wrap=True)
            console.print(f"{time.monotonic() - began:.1f} s")
            return 0
        with Console(stderr=True).status("starting") as status:
            options = {"directory": directory, "progress": status.update}
            if arguments.synthesis_only:
                resources = synthesize_system(board, config, **options)
            else:
                built = build(
                    board, config, seed=arguments.seed, route=not arguments.placement_only,
                    **options,
                )  # fmt: skip
    except ValueError as error:
        raise BoardError(str(error)) from None
    if arguments.synthesis_only:
        _print_resources(console, resources)
        console.print(f"time: {time.monotonic() - began:.0f} s")
        return 0
    _print(console, built)
    for name, size in built.files.items():
        console.print(f"wrote {directory / name}, {size:,} bytes", soft_wrap=True)
    faults = missed(built)
    for line in faults:
        console.print(f"[red]too slow:[/] {line}", soft_wrap=True)
    return 1 if faults else 0


def _print_resources(console, resources, placed=None):
    """Counts of the netlist and, where there is a placement, nextpnr's, of which is the share."""
    placed = placed or {}
    table = Table(title="resources")
    for heading in ("resource", "netlist", *(["placed"] if placed else []), "available", "%"):
        table.add_column(heading, justify="left" if heading == "resource" else "right")
    for name, (used, available) in resources.items():
        counts = [f"{used:,}"]
        if placed:
            counts.append(f"{placed[name]:,}" if name in placed else "")
        share = placed.get(name, used) / available
        table.add_row(name, *counts, f"{available:,}", f"{100 * share:.1f}")
    console.print(table)


def _print(console, built):
    _print_resources(console, built.resources, built.placed)
    table = Table(title="timing")
    for heading in ("clock, or crossing", "reached", "needed"):
        table.add_column(heading, justify="left" if heading.startswith("clock") else "right")
    for name, (fmax, needed) in built.clocks.items():
        table.add_row(name, f"{fmax:.2f} MHz", f"{needed:.2f} MHz")
    for ends, (taken, limit) in built.crossings.items():
        table.add_row(ends, f"{taken:.2f} ns", f"{limit:.2f} ns")
    console.print(table)
    if path := built.critical_path:
        console.print(
            f"slowest path: {path['from']} → {path['to']}, {path['logic_ns']:.1f} ns logic and "
            f"{path['routing_ns']:.1f} ns wires",
            soft_wrap=True,
        )
    steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in built.seconds.items())
    console.print(f"time: {steps}", soft_wrap=True)
