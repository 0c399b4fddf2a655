"""``python -m perf area``: who is faster for the same area, the same power."""

import argparse
from dataclasses import asdict

from rich.console import Console

from perf.counted import Cell
from perf.counted.command import store_of
from perf.counted.tables import NETWORKS, add_batch, add_documents, fill_unless_kept, show

from .designs import COSTS, designs_of
from .document import (
    comparison_lines,
    design_lines,
    efficiency_lines,
    model_lines,
    paper_lines,
    skipping_lines,
    verdict_lines,
)
from .measured import FLOWS, report_designs
from .model import fitted
from .skipping import skipping
from .verdict import cells_of, compare, efficiencies

__all__ = ["add_area"]


def add_area(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "area",
        help="who is faster for the same area, the same power: a variant or a bigger baseline",
        description="Beside every variant put a baseline with as many more columns as the variant "
        "costs, by the synthesis report's cost of a column, and count the cycles of both. Also: "
        "speed per mm², per LUT and per joule, and the time in which batches are skipped.",
        epilog="example: python -m perf area --network vgg13 --batch 16 --markdown area.md "
        "--plot area.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_area)
    add_batch(command)
    add = command.add_argument
    add("--quick", action="store_true",
        help="one network, a batch of 4: within 10 minutes")  # fmt: skip
    add("--plot", metavar="FILE.png", help="write speed over cost")
    add_documents(command)


def _area(options) -> int:
    networks = options.network or list(NETWORKS[-1:] if options.quick else NETWORKS)
    images = min(options.batch, 4) if options.quick else options.batch
    report = report_designs()
    console, store = Console(highlight=False), store_of(options)
    batches = [
        Cell(network=name, input=options.input, batch=images, width=options.width)
        for name in networks
    ]
    cells = [cell for batch in batches for cell in cells_of(report, batch)]
    missing = fill_unless_kept(store, cells, options, console)
    compared, efficient, skipped = [], [], []
    for batch in batches:
        compared += compare(report, batch, store.get)
        efficient += efficiencies(report, batch, store.get)
        by_variant = {
            name: store.get(design.cell(batch)) for name, design in designs_of(report).items()
        }
        base = by_variant["baseline"]
        if base is not None and base.reason is None:
            skipped += skipping(batch.network, base, by_variant.get)
    left_out = {flow: fitted(flow).left_out() for flow in FLOWS}
    designs = {each.design.name: each.design for each in efficient}
    lines = [
        f"{', '.join(networks)}, {options.input}, batch {images}, {options.width:g} of their "
        "channels.", "",
        "## What the designs cost", "", *design_lines(list(designs.values())),
        "## Who is faster", "", *verdict_lines(compared)[:-1], *paper_lines(),
        *comparison_lines(compared),
        "## Speed for what it costs", "", *efficiency_lines(efficient),
        "## Equal time with skipping", "", *skipping_lines(skipped),
        "## How far the model of area is off", "", *model_lines(left_out),
    ]  # fmt: skip
    if not compared:
        raise ValueError("nothing to compare: no network has a program for the baseline")
    document = {
        "input": options.input, "batch": images, "width": options.width,
        "costs": {name: asdict(cost) for name, cost in COSTS.items()},
        "comparisons": [
            asdict(each) | {"faster": {s: each.wins(s) for s in "AB"}} for each in compared
        ],
        "efficiencies": [asdict(each) for each in efficient],
        "skipping": [asdict(each) for each in skipped],
        "left_out": {
            flow: [asdict(each) | {"error": each.error} for each in errors]
            for flow, errors in left_out.items()
        },
    }  # fmt: skip
    show(options, console, lines, missing, document)
    if options.plot:
        from .picture import plot_designs

        title = f"{options.input}, {images} images; speed-up B of variants"
        plot_designs(efficient, options.plot, title=title)
    return 0
