"""``python -m perf pipelines``: Figure 20 and what it leaves out."""

import argparse
import json
from fractions import Fraction
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import paper
from algorithms.networks.network_facts import read_shape
from algorithms.networks.paper_networks import NETWORKS
from cli.atomic_files import write_whole

from .partition import LayerTime, layers_by_cycles, layers_by_macs, partition, stages_of
from .picture import plot_timelines
from .recorded import recorded_steps
from .schedules import Stage, Steps, pipeline, schedules_of, steps

__all__ = ["add_pipelines"]


def add_pipelines(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "pipelines",
        help="steps of GPipe, DAPPLE and Chimera with ADA-GP (Figure 20 of the paper)",
        description="Simulate batches on a pipeline of devices. A step is a forward pass of a "
        "micro-batch through an even stage; a backward pass takes two. With --network or --cycles "
        "stages are runs of layers, as even as possible, and their mean is that of even ones.",
        epilog="example: python -m perf pipelines --network vgg13 --devices 4 8 --plot pipes.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_pipelines)
    add = command.add_argument
    add("--devices", nargs="+", type=int, default=[4], metavar="N", help="default: 4")
    add("--micro-batches", nargs="+", type=int, default=[4], metavar="N", help="default: 4")
    source = command.add_mutually_exclusive_group()
    source.add_argument("--network", help=f"by MACs: {', '.join(NETWORKS)}")
    source.add_argument("--cycles", metavar="FILE",
                        help="by cycles, as python -m compiler --network NAME --json FILE "
                        "estimates them")  # fmt: skip
    source.add_argument(
        "--trace", metavar="FILE",
        help="of a training that ran: trace.json of python -m algorithms pipeline",
    )  # fmt: skip
    add("--input", default="3x32x32", metavar="CxHxW", help="of --network (default: 3x32x32)")
    add("--plot", metavar="FILE.png", help="timelines of the first row of the table")
    add("--json", metavar="FILE", help="write all figures")


def _pipelines(options) -> int:
    if options.trace:
        return _recorded(options)
    layers = _layers(options)
    rows = []
    for devices in options.devices:
        stages = _stages(layers, devices)
        for count in options.micro_batches:
            for name in schedules_of(count):
                rows.append((devices, count, name, steps(name, stages, count)))
    Console().print(_table(rows, options))
    if layers is None and (4, 4) in {row[:2] for row in rows}:
        print(_beside_the_paper({row[2]: row[3] for row in rows if row[:2] == (4, 4)}))
    if options.plot:
        devices, count = options.devices[0], options.micro_batches[0]
        stages = _stages(layers, devices)
        plot_timelines(
            {f"{name}, a batch of Phase GP and one of backpropagation":
             pipeline(name, stages, count, ["GP", "BP"]) for name in schedules_of(count)},
            options.plot,
        )  # fmt: skip
        print(f"wrote {options.plot}")
    if options.json:
        write_whole(Path(options.json), json.dumps([_plain(*row) for row in rows], indent=1) + "\n")
        print(f"wrote {options.json}")
    return 0


def _recorded(options) -> int:
    """Steps of a training that ran, beside those of its schedule and the paper's."""
    found = recorded_steps(options.trace)
    what = f"{found.schedule}, {found.devices} devices, {found.micro_batches} micro-batches"
    print(f"recorded: {what}; idle {float(found.bubbles):.1%}")
    name = "dapple" if found.schedule == "1f1b" else found.schedule
    published = paper.figures()["speed_up_over_baseline"]["figure_20_pipelines_4_devices"]
    beside = published.get(name) if (found.devices, found.micro_batches) == (4, 4) else None
    if found.batch is not None:
        simulated = steps(name, [Stage()] * found.devices, found.micro_batches)
        for text, own, other, entry in (
            ("a batch of backpropagation", found.batch, simulated.batch, "steps_per_batch"),
            ("a pair, GP then BP", found.pair, simulated.pair, "steps_gp_then_bp"),
        ):
            if own is not None:
                line = f"  {text}: {_number(own)} steps, simulated {_number(other)}"
                print(line + (f", paper {beside[entry]}" if beside else ""))
    if options.plot:
        plot_timelines(found.timelines, options.plot)
        print(f"wrote {options.plot}")
    return 0


def _layers(options) -> list[LayerTime] | None:
    if options.cycles:
        return layers_by_cycles(options.cycles)
    if not options.network:
        return None
    if options.network not in NETWORKS:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}, not {options.network!r}")
    return layers_by_macs(options.network, read_shape(options.input), 10)


def _stages(layers: list[LayerTime] | None, devices: int) -> list[Stage]:
    """Even ones without ``layers``."""
    if devices < 2:
        raise ValueError(f"devices must be at least 2, not {devices}")
    return [Stage()] * devices if layers is None else stages_of(partition(layers, devices))


def _table(rows, options):
    what = options.network or options.cycles or "even stages"
    table = Table(box=box.SIMPLE, title=f"pipelines: {what}")
    headings = ("devices", "micro-batches", "schedule", "BP", "GP", "GP + BP", "speed-up B", "idle")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "schedule" else "right")
    for devices, count, name, found in rows:
        numbers = (found.batch, found.prediction, found.pair)
        table.add_row(
            str(devices), str(count), name, *(_number(each) for each in numbers),
            f"{float(found.speed_up):.3f}", f"{float(found.bubbles):.1%}",
        )  # fmt: skip
    return table


def _number(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):.2f}"


def _beside_the_paper(found: dict[str, Steps]) -> str:
    published = paper.figures()["speed_up_over_baseline"]["figure_20_pipelines_4_devices"]
    lines = ["Figure 20 of the paper (steps of a batch, of a pair):"]
    for name, entry in published.items():
        own = found[name]
        lines.append(
            f"  {name:8} {entry['steps_per_batch']}, {entry['steps_gp_then_bp']}; "
            f"here {_number(own.batch)}, {_number(own.pair)}"
        )
    lines.append(
        "  chimera needs a device that may begin backpropagation with one of its stages before "
        f"the other one has done Phase GP; in order the pair takes "
        f"{_number(found['chimera-in-order'].pair)}"
    )
    return "\n".join(lines)


def _plain(devices, count, name, found):
    numbers = ("batch", "prediction", "pair", "work", "speed_up", "bubbles")
    return {"devices": devices, "micro_batches": count, "schedule": name} | {
        each: float(getattr(found, each)) for each in numbers
    }
