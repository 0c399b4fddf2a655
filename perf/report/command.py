"""``python -m perf report``: the paper's evaluation with our numbers."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from cli.build_directory import build_root
from cli.progress import progress_bar
from compiler.networks.registry import LARGE_BATCH, SMALL_BATCH
from hw.config import PRESETS, VARIANTS
from hw.config.selection import DEFAULT_PRESET, add_settings
from perf.analytic.evaluation import DATA
from perf.counted import Count, Store
from perf.counted.command import add_store, fill, store_of

from .costs import figure_21, same_cost
from .document import write_report
from .estimates import Estimates
from .figure_16 import figure_16
from .figure_20 import figure_20
from .figures_17_19 import figures_17_19
from .formulas import Formulas
from .rooflines import rooflines
from .tables_2_3 import tables_2_3
from .tables_4_5 import tables_4_5
from .wanted import BATCHES, Wanted, paper_networks

__all__ = ["add_report"]

#: What --quick asks for.
_QUICK = {
    "networks": ("vgg13",), "data": ("cifar10",), "variants": ("baseline", "max"), "batches": (16,),
    "channels": (4,), "images": (16, 4, 16), "others": False, "rivals": False,
}  # fmt: skip


def add_report(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "report",
        help="the paper's evaluation with our numbers: Markdown, JSON, pictures",
        description="Count what is missing of the paper's networks and of baselines of the same "
        "cost, and write Figures 16 to 21 and Tables 2 to 5 with the paper's figures beside ours. "
        "Every count is kept, so a report that was ended goes on where it was. All networks take "
        "hours to days; --kept counts nothing, and shows what has not been counted as not run.",
        epilog="example: python -m perf report --kept --output docs/evaluation.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_report)
    add = command.add_argument
    add("--quick", action="store_true",
        help="VGG13 on CIFAR-10, 16 images, baseline and max, within 10 minutes")  # fmt: skip
    add("--kept", action="store_true", help="count nothing")
    add("--network", nargs="+", metavar="NAME", help="default: the paper's 13")
    add("--data", nargs="+", choices=tuple(DATA), help="default: all")
    add("--variant", nargs="+", choices=tuple(VARIANTS), metavar="NAME",
        help="besides baseline (default: all)")  # fmt: skip
    add("--batch", nargs=3, type=int,
        metavar=("CIFAR", "LARGE", "SENTENCES"), help="images of a batch of CIFAR and of ImageNet "
        "and YOLO-v3, sentences of a batch of Transformer, of what is counted (default: "
        f"{SMALL_BATCH}, or as many as fit into a memory window; {LARGE_BATCH}; {LARGE_BATCH}); "
        "the formulas have the paper's 128 and 32")  # fmt: skip
    add("--sweep", nargs="*", metavar="NAME", default=["vgg13"],
        help=f"networks to sweep over predictors and over batches {' '.join(map(str, BATCHES))} "
        "(default: vgg13)")  # fmt: skip
    add("--preset", choices=tuple(PRESETS), default=DEFAULT_PRESET, help="default: %(default)s")
    add("--width", type=float, default=1.0, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)")  # fmt: skip
    add("--output", type=Path, metavar="FILE.md",
        help="pictures and JSON are written beside it (default: report/evaluation.md in the build "
        "directory)")  # fmt: skip
    add_settings(command)
    add_store(command)


def _report(options) -> int:
    wanted = _wanted(options)
    cells = list(dict.fromkeys(wanted.cells()))
    cells[0].config  # noqa: B018  wrong settings show before anything is counted
    console, store = Console(highlight=False), store_of(options)
    if not options.kept:
        fill(store, cells, options, console)
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("formulas", total=None)
        formulas, estimates = Formulas(), Estimates()
        sections = [
            figure_16(wanted, store),
            *figures_17_19(wanted, store, formulas, estimates),
            *(tables_2_3(wanted, store, estimates) if wanted.others else []),
            figure_20(wanted, store),
            *tables_4_5(),
            *figure_21(wanted, store),
            *same_cost(wanted, store),
            rooflines(wanted, store),
        ]
        bar.update(task, advance=1, description="pictures")
        path = options.output or build_root() / "report" / "evaluation.md"
        written = write_report(sections, _used(store, cells), path, _command(options))
    missing = len(store.missing(cells))
    console.print(f"{len(cells)} batches, {missing} of them not run", markup=False)
    for file in written:
        console.print(f"wrote {file}", markup=False, soft_wrap=True)
    return 0


def _wanted(options) -> Wanted:
    names = paper_networks()
    for option, given in (("network", options.network or []), ("sweep", options.sweep)):
        if unknown := [name for name in given if name not in names]:
            raise ValueError(f"{option} must be one of {', '.join(names)}, not {unknown[0]!r}")
    if wrong := [number for number in options.batch or [] if number < 1]:
        raise ValueError(f"batch must be at least 1, not {wrong[0]}")
    asked = {
        "networks": options.network or names, "data": options.data or tuple(DATA),
        "variants": options.variant or tuple(VARIANTS),
        "images": tuple(options.batch) if options.batch else None,
        "swept": options.sweep, "preset": options.preset, "width": options.width,
        "settings": tuple(options.settings),
    }  # fmt: skip
    return Wanted(**asked | (_QUICK if options.quick else {}))


def _used(store: Store, cells) -> Iterable[Count]:
    return [found for cell in cells if (found := store.get(cell)) is not None]


def _command(options) -> str:
    """As it was asked for, without where the counts are kept."""
    found = ["report"] + ["--quick"] * options.quick + ["--kept"] * options.kept
    for name in ("network", "data", "variant"):
        if getattr(options, name):
            found += [f"--{name}", *getattr(options, name)]
    if options.batch:
        found += ["--batch", *map(str, options.batch)]
    if options.sweep != ["vgg13"]:
        found += ["--sweep", *options.sweep]
    if options.preset != DEFAULT_PRESET:
        found += ["--preset", options.preset]
    if options.width != 1:
        found += ["--width", f"{options.width:g}"]
    for setting in options.settings:
        found += ["--set", setting]
    if options.output:
        found += ["--output", str(options.output)]
    return " ".join(found)
