"""``python -m perf roofline``: what limits networks, and what a variant needs before it pays."""

import argparse
from dataclasses import asdict

from rich.console import Console

from compiler.networks.registry import network, published, read_shape, usual_method
from hw.config import VARIANTS
from perf.analytic.shapes import model_layers
from perf.area.designs import VARIANTS as WITH_PREDICTOR
from perf.counted import Cell, Store
from perf.counted.command import store_of
from perf.counted.tables import NETWORKS, add_batch, add_documents, fill_unless_kept, show
from synth.study.tables import table

from .needs import SWEEPS, Setting, cells_of, pays_from, swept
from .work import Point, point_of, work_of

__all__ = ["add_roofline"]

_QUICK = {"batch": (1, 4), "axi_data_width": (64, 256), "buffer_bank_depth": (1024, 4096)}
_WORDS = {"batch": "images in a batch", "axi_data_width": "bits of the bus",
          "buffer_bank_depth": "words in a bank of the buffer"}  # fmt: skip


def add_roofline(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "roofline",
        help="what limits networks: array, vector engine or bus; what variants need to pay",
        description="Put every network's multiplications and bytes beside the cycles of its "
        "batches, and vary bandwidth, buffer and batch of one of them to see from where on a "
        "variant with predictions is faster than a baseline of the same sizes.",
        epilog="example: python -m perf roofline --network vgg13 --batch 16 --sweep vgg11 "
        "--sweep-width 0.25 --plot roofline.png --plot-needs needs.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_roofline)
    add_batch(command)
    add = command.add_argument
    add("--sweep", default="vgg11", metavar="NAME",
        help="the network whose settings are varied (default: %(default)s)")  # fmt: skip
    add("--sweep-width", type=float, default=0.25, metavar="FACTOR",
        help="what its numbers of channels are multiplied by (default: %(default)s)")  # fmt: skip
    add(
        "--quick",
        action="store_true",
        help="nothing but the network that is varied, two values of each: within 10 minutes",
    )
    add("--plot", metavar="FILE.png", help="write the roofline")
    add("--plot-needs", metavar="FILE.png", help="write speed-ups over what is varied")
    add_documents(command)


def _roofline(options) -> int:
    sweeps = _QUICK if options.quick else SWEEPS
    base = Cell(network=options.sweep, input=options.input, batch=options.batch,
                width=options.sweep_width)  # fmt: skip
    cells = [
        Cell(network=name, input=options.input, batch=options.batch, width=options.width,
             variant=variant, method=usual_method(variant))
        for name in options.network or ([] if options.quick else NETWORKS) for variant in VARIANTS
    ]  # fmt: skip
    if options.quick:
        cells = cells_of(base, {"batch": (options.batch,)})
    varied = cells_of(base, sweeps)
    for cell in dict.fromkeys((*cells, *varied)):
        if not published(cell.network).reads_images:
            raise ValueError(f"network must read images, {cell.network} does not")
    console, store = Console(highlight=False), store_of(options)
    missing = fill_unless_kept(store, [*cells, *varied], options, console)
    points, found = points_of(store, cells), swept(base, sweeps, store.get)
    if not points and not found:
        raise ValueError("nothing has been counted of these networks")
    lines = [
        "## What limits a batch", "", *point_lines(points),
        f"## What a variant needs: {base.network}, {base.width:g} of its channels, {base.input}, "
        f"batch {base.batch} unless varied", "", *need_lines(found),
    ]  # fmt: skip
    document = {
        "points": [
            asdict(p) | {"intensity": p.intensity, "rate": p.rate, "limit": p.limit}
            for p in points
        ],
        "sweep": asdict(base), "settings": [asdict(each) for each in found],
    }  # fmt: skip
    show(options, console, lines, missing, document)
    if options.plot and points:
        from .picture import plot_roofline

        plot_roofline(points, options.plot)
    if options.plot_needs and found:
        from .picture import plot_needs

        plot_needs(found, options.plot_needs)
    return 0


def points_of(store: Store, cells: list[Cell]) -> list[Point]:
    """The counted batches of cells."""
    points = []
    for cell in cells:
        found = store.get(cell)
        if found is None or found.reason is not None:
            continue
        shape = read_shape(cell.input)
        layers = model_layers(network(cell.network, shape, width=cell.width), shape)  # type: ignore[arg-type]  # an image
        for phase, batch in found.batches.items():
            work = work_of(layers, cell.batch, backward=phase == "bp")
            points.append(point_of(cell.network, cell.variant, phase, cell.config, work, batch))
    return points


def point_lines(points: list[Point]) -> list[str]:
    """A row for every batch."""
    rows = [
        [p.network, p.variant, p.phase.upper(), p.limit, f"{p.macs / 1e6:,.0f}",
         f"{p.cycles / 1e6:,.2f}", f"{p.intensity:.1f}", f"{p.rate:.1f}", f"{p.roof:.1f}",
         f"{100 * p.share:.1f} %", *(f"{100 * own:.0f} %" for own in p.busy.values())]
        for p in points
    ]  # fmt: skip
    headings = ["network", "variant", "phase", "limit", "million MACs", "million cycles",
                "MACs per byte", "MACs per cycle", "roof", "of the cycles, the limit",
                *(f"{name} at work" for name in (points[0].busy if points else ()))]  # fmt: skip
    return table(headings, rows, left=4)


def need_lines(found: list[Setting]) -> list[str]:
    """Speed-ups by schedule B, and from where on each variant is faster."""

    def text(speed):
        return "–" if speed is None else f"{speed:.3f}"

    rows = [
        [_WORDS.get(each.name, each.name), str(each.value),
         *(text(each.speed[variant]) for variant in WITH_PREDICTOR)]
        for each in found
    ]  # fmt: skip
    lines = table(["varied", "value", *WITH_PREDICTOR], rows)
    for name in dict.fromkeys(each.name for each in found):
        for variant in WITH_PREDICTOR:
            least = pays_from(found, name, variant)
            own = [each.speed[variant] for each in found if each.name == name]
            if sum(speed is not None for speed in own) < 2:
                continue  # one value says nothing of the others
            pays = "does not pay at the largest value" if least is None else f"pays from {least} on"
            lines.append(f"- {_WORDS.get(name, name)}: `{variant}` {pays}")
    return [*lines, "", "–: no program, or not counted.", ""]
