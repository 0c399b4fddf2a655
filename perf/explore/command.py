"""``python -m perf explore``: the Pareto front of the machine's sizes for a network."""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from cli.workers import workers_of
from compiler.networks.registry import (
    network,
    network_names,
    published,
    read_shape,
    shape_text,
    usual_method,
)
from hw.config import PRESETS, VARIANTS, AdaGPConfig
from hw.config.selection import DEFAULT_PRESET, add_settings
from perf.analytic.shapes import Layer, model_layers
from perf.counted import Cell
from perf.counted.command import add_store, store_of
from synth.common.errors import ToolError
from synth.fpga.devices import DEVICES
from synth.study.tables import table

from .budget import Budget, area_budget, device_budget
from .search import Point, Search, front
from .space import SIZES, candidates

__all__ = ["add_explore"]

#: What --quick looks at: few machines, and a small network on them.
_QUICK = SIZES | {
    "rows": (4, 8), "columns": (4, 8), "predictor_rows": (4,), "predictor_columns": (4,),
    "buffer_bank_depth": (1024,), "axi_data_width": (64, 128),
}  # fmt: skip
#: What the model of area may not know -> in words.
_UNKNOWN = {"axi": "other widths of the bus", "lut_pes": "multipliers made of look-up tables"}
#: Programs counted before the next ones are chosen, where a cluster says how many at a time.
_CLUSTER_WAVE = 8


def add_explore(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "explore",
        help="sizes of the machine that are worth their area: the Pareto front",
        description="Look at all combinations of sizes that fit a device or an area, count the "
        "cycles of those that may be among the best, and print the Pareto front: cycles of a batch "
        "against area. A machine whose bound on cycles is above those of a cheaper one is not "
        "counted. Area is that of a model fitted to measured syntheses; its error is printed.",
        epilog="example: python -m perf explore --network mobilenet-v2 --device LFE5U-85F "
        "--rows 4 8 12 --columns 4 8 12",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_explore)
    add = command.add_argument
    add("--network", required=True, metavar="NAME", help=f"one of {', '.join(network_names())}")
    add("--input", metavar="CxHxW", help="default: the network's")
    add("--batch", type=int, metavar="IMAGES", help="default: 16")
    add("--width", type=float, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)")  # fmt: skip
    add("--variant", nargs="+", choices=tuple(VARIANTS), default=["baseline"], metavar="NAME",
        help=f"of {', '.join(VARIANTS)}; those with a predictor train with ADA-GP (default: "
        "baseline)")  # fmt: skip
    add("--preset", choices=tuple(PRESETS), default=DEFAULT_PRESET,
        help="of everything that is not looked at (default: %(default)s)")  # fmt: skip
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--device",
        metavar="NAME",
        help="an FPGA: " + ", ".join(n for n, d in DEVICES.items() if d.family in ("ecp5", "xc7")),
    )
    where.add_argument("--area-limit", type=float, metavar="MM2",
        help="mm² of standard cells and SRAM at 45 nm (default: no limit)")  # fmt: skip
    for name, values in SIZES.items():
        add(f"--{name.replace('_', '-')}", dest=name, nargs="+", type=int, metavar="N",
            help=f"{_doc(name)} (default: {' '.join(map(str, values))})")  # fmt: skip
    add("--most", type=int, metavar="N", help="count at most so many machines")
    add(
        "--quick",
        action="store_true",
        help="few machines, a quarter of the channels, a batch of 2: within 10 minutes",
    )
    add("--markdown", metavar="FILE", help="write the front")
    add("--json", metavar="FILE", help="write all machines")
    add("--plot", metavar="FILE.png", help="write cycles over area")
    add_settings(command)
    add_store(command)


def _doc(name):
    return AdaGPConfig.__dataclass_fields__[name].metadata["doc"]


def _explore(options) -> int:
    try:
        return _search(options)
    except ToolError as error:
        print(f"python -m perf explore: {error}", file=sys.stderr)
        return 2


def _search(options) -> int:
    if options.most is not None and options.most < 1:
        raise ValueError(f"most must be at least 1, not {options.most}")
    usual = _QUICK if options.quick else SIZES
    sizes = {name: getattr(options, name) or usual[name] for name in SIZES}
    budget = (
        device_budget(options.device) if options.device else area_budget(options.area_limit)
    )  # fmt: skip
    shape = read_shape(options.input) if options.input else published(options.network).shapes[0]
    width = options.width or (0.25 if options.quick else 1.0)
    batch = Cell(network=options.network, input=shape_text(shape), width=width,
                 batch=options.batch or (2 if options.quick else 16))  # fmt: skip

    def cell(candidate):
        method = usual_method(candidate.variant)
        return replace(batch, variant=candidate.variant, method=method, preset=candidate.preset,
                       settings=candidate.settings)  # fmt: skip

    layers: list[Layer] = []
    if published(options.network).reads_images:
        layers = model_layers(network(options.network, shape, width=width), shape)  # type: ignore[arg-type]  # an image
    search = Search(
        candidates(options.variant, sizes, preset=options.preset, settings=options.settings),
        cell, layers, batch.batch, budget,
    )  # fmt: skip
    if not search.fitting:
        raise ValueError(f"none of {search.looked_at} machines fits {budget.name}")
    console = Console(highlight=False)
    console.print(f"{search.looked_at} machines, {search.fitting} fit {budget.name}")
    _count(search, options, console)
    best = front(search.points, budget.shown)
    lines = _document(batch, search, best, budget)
    console.print("\n".join(lines), markup=False, soft_wrap=True)
    if options.markdown:
        write_whole(options.markdown, "\n".join(lines))
    if options.json:
        document = {
            "budget": asdict(budget), "error": budget.error(), "batch": asdict(batch),
            "front": [point.candidate.text for point in best],
            "points": [_plain(point) for point in search.points],
        }  # fmt: skip
        write_whole(Path(options.json), json.dumps(document, indent=1) + "\n")
    if options.plot and best:
        from .picture import plot_front

        plot_front(search.points, best, budget, _what(batch), options.plot)
    return 0


def _count(search, options, console):
    store, workers = store_of(options), workers_of(options)
    left = options.most or search.fitting
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("", total=search.fitting)
        while left > 0:
            most = _CLUSTER_WAVE if options.scheduler else workers.jobs
            wave = search.wave(min(most, left))
            if not wave:
                break
            left -= len(wave)
            cells = [point.cell for point in wave]
            store.fill(
                cells, workers, model=options.model, plain=options.plain, outdated=options.outdated
            )
            for point in wave:
                search.counted(point, store.get(point.cell))
                last = search.points[-1]
                took = f"{last.cycles:,.0f} cycles" if last.cycles is not None else last.reason
                console.print(f"{point.candidate.text}: {took}", markup=False, soft_wrap=True)
            bar.update(task, completed=len(search.points), description=wave[-1].candidate.text)
    search.give_up()


def _what(batch: Cell) -> str:
    """The network and its batch, whatever the machine."""
    return f"{batch.network}, {batch.input}, batch {batch.batch}, width {batch.width:g}"


def _document(batch, search, best: list[Point], budget: Budget) -> list[str]:
    counted = [point for point in search.points if point.cycles is not None]
    middle, worst = budget.error()
    names = list(best[0].costs) if best else []
    unknown = [_UNKNOWN[name] for name in budget.never_varied if name in _UNKNOWN]
    rows = [
        [
            point.candidate.text, f"{point.cycles:,.0f}",
            f"{point.least / (point.cycles or 1):.1%}",
            *(f"{point.costs[name]:,.2f}" if "mm²" in name else f"{point.costs[name]:,.0f}"
              for name in names),
            "yes" if budget.fits(point.costs, margin=worst) else "within the error",
        ]
        for point in best
    ]  # fmt: skip
    return [
        f"{_what(batch)}, on {budget.name}: {search.looked_at} machines, {search.fitting} fit, "
        f"{len(counted)} counted, {len(best)} on the front.",
        "",
        *table(["machine", "cycles of a batch", "bound", *names, "fits"], rows),
        "Cycles: of a batch with backpropagation; of a variant with a predictor the mean of a "
        "batch of Phase BP and one of Phase GP. Bound: the least cycles of its products, as a "
        f"share. {budget.shown} by the model of area, which is off by {100 * middle:.1f} % on the "
        f"average and {100 * worst:.1f} % at most on designs that it was not fitted to."
        + (f" What these cost was never measured: {', '.join(unknown)}." if unknown else ""),
        "",
    ]


def _plain(point: Point):
    return {
        "machine": point.candidate.text, "variant": point.candidate.variant,
        "settings": point.candidate.settings, "configuration": point.candidate.config.hash,
        "costs": dict(point.costs), "least": point.least, "cycles": point.cycles,
        "reason": point.reason,
    }  # fmt: skip
