"""``python -m perf analytic``: Figures 17 to 19 by formulas."""

import argparse
import json
from pathlib import Path
from statistics import mean

from rich import box
from rich.console import Console
from rich.table import Table

import paper
from algorithms.networks.paper_networks import NETWORKS
from cli.atomic_files import write_whole
from cli.progress import progress_bar

from .evaluation import DATA, FIGURES, Row, evaluate, published
from .flows import FLOWS
from .shapes import Layer
from .training import Machine

__all__ = ["add_analytic"]


def add_analytic(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "analytic",
        help="speed-ups of the 13 networks by formulas (Figures 17 to 19 of the paper)",
        description="Count cycles of every layer's products by the formula of a data flow, and "
        "sum them up to batches of the paper's designs. No memory, no buffer, no normalisation: "
        "this is how the paper counts, not what our hardware does.",
        epilog="example: python -m perf analytic --flow row-stationary --batch 16 256",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_analytic)
    add = command.add_argument
    add("--flow", choices=tuple(FLOWS), default="weight-stationary",
        help="default: weight-stationary")  # fmt: skip
    add("--network", nargs="+", metavar="NAME", help="default: the paper's 13")
    add("--data", nargs="+", choices=tuple(DATA), default=tuple(DATA), help="default: all")
    add("--batch", nargs="+", type=int, metavar="N", help="default: 128, ImageNet 32")
    add("--features", type=int, default=Machine.features,
        help=f"inputs of the predictor's linear layer (default: {Machine.features}, the paper's; "
        "ours has 64)")  # fmt: skip
    add("--plot", metavar="FILE.png", help="a bar for every network")
    add("--json", metavar="FILE", help="write all figures")


def _analytic(options) -> int:
    all_networks = [name for name in paper.figures()["models"] if name in NETWORKS]
    networks = options.network or all_networks
    if unknown := [name for name in networks if name not in NETWORKS]:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}, not {unknown[0]!r}")
    for name, values in (("batch", options.batch or []), ("features", [options.features])):
        if wrong := [value for value in values if value < 1]:
            raise ValueError(f"{name} must be at least 1, not {wrong[0]}")
    machine = Machine(flow=options.flow, features=options.features)
    rows: list[Row] = []
    kept: dict[tuple[str, int], list[Layer]] = {}
    with progress_bar(Console(stderr=True)) as bar:
        for images in bar.track(options.batch or [None], description=options.flow):
            rows += evaluate(networks, options.data, machine, images=images, layers=kept)
    Console().print(_table(rows, machine))
    if not options.batch and networks == all_networks:
        print(_beside_the_paper(rows, options.flow))
    if options.plot:
        from .picture import plot_speed_ups

        plot_speed_ups(rows, options.flow, options.plot)
        print(f"wrote {options.plot}")
    if options.json:
        write_whole(Path(options.json), json.dumps([_plain(r) for r in rows], indent=1) + "\n")
        print(f"wrote {options.json}")
    return 0


def _table(rows, machine):
    array = f"{machine.array.rows} x {machine.array.columns}"
    table = Table(
        box=box.SIMPLE,
        title=f"speed-up over backpropagation, {machine.flow}, {array} PEs, F = {machine.features}",
        caption="efficient is as low: the formulas do not know what they differ in",
    )
    for heading in ("network", "data", "batch", "Mcycles BP"):
        table.add_column(heading, justify="left" if heading in ("network", "data") else "right")
    for variant in ("low", "max"):
        for schedule in "AB":
            table.add_column(f"{variant} {schedule}", justify="right")
    for row in rows:
        speeds = [row.speed_up(v, s) for v in ("low", "max") for s in "AB"]
        table.add_row(
            row.network, row.data, str(row.images), f"{row.cycles['max'].plain / 1e6:,.0f}",
            *(f"{speed:.3f}" for speed in speeds),
        )  # fmt: skip
    return table


def _beside_the_paper(rows, flow):
    theirs = published(flow)
    lines = [
        f"Figure {FIGURES[flow]} of the paper, max, mean of 13 networks; here by schedule B (A):"
    ]
    for data in dict.fromkeys(row.data for row in rows):
        own = [row for row in rows if row.data == data]
        steady, whole = ([row.speed_up("max", schedule) for row in own] for schedule in "BA")
        line = f"  {data:8} {theirs['mean'][data]:.2f}; here {mean(steady):.2f} ({mean(whole):.2f})"
        if "largest" in theirs:
            line += f"; at most {theirs['largest'][data]:.2f}; here {max(steady):.2f}"
        lines.append(line)
    return "\n".join(lines)


def _plain(row):
    return {"network": row.network, "data": row.data, "images": row.images} | {
        variant: {
            "plain": own.plain, "learning": own.learning, "predicted": own.predicted,
            "speed_up_a": row.speed_up(variant, "A"), "speed_up_b": own.steady,
        }
        for variant, own in row.cycles.items()
    }  # fmt: skip
