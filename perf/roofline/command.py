"""``python -m perf roofline``: what limits networks, and what a variant needs before it pays."""

import argparse
from dataclasses import asdict

from rich.console import Console

from compiler.networks.registry import network, read_shape, usual_method
from hw.config import VARIANTS
from perf.area.designs import VARIANTS as WITH_PREDICTOR
from perf.counted import Cell
from perf.counted.command import store_of
from perf.counted.tables import NETWORKS, add_batch, add_documents, fill_unless_kept, show
from synth.study.tables import table

from .needs import SWEEPS, Setting, cells_of, in_words, pays_from, swept
from .points import point_lines, points_of

__all__ = ["add_roofline"]

_QUICK = {"batch": (1, 4), "axi_data_width": (64, 256), "buffer_bank_depth": (1024, 4096)}


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
    kinds = dict.fromkeys((cell.network, cell.input, cell.width) for cell in (*cells, *varied))
    for name, size, width in kinds:
        network(name, read_shape(size), width=width)  # or a clear error
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

        title = f"Roofline, {options.input}, batch {options.batch}"
        plot_roofline(points, options.plot, title)
    if options.plot_needs and found:
        from .picture import plot_needs

        plot_needs(found, options.plot_needs)
    return 0


def need_lines(found: list[Setting]) -> list[str]:
    """Speed-ups by schedule B, and from where on each variant is faster."""

    def text(speed):
        return "–" if speed is None else f"{speed:.3f}"

    rows = [
        [in_words(each.name), str(each.value),
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
            lines.append(f"- {in_words(name)}: `{variant}` {pays}")
    return [*lines, "", "–: no program, or not counted.", ""]
