"""What the commands share that count networks and show tables of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from cli.atomic_files import write_whole
from compiler.networks.registry import network_names

from .cells import Cell
from .command import add_store, fill
from .store import Store

__all__ = ["NETWORKS", "add_batch", "add_documents", "fill_unless_kept", "show"]

#: What is shown unless the command line says otherwise.
NETWORKS = ("vgg13", "resnet18", "mobilenet-v2")


def add_batch(command) -> None:
    """Add the options that say which batches of which networks."""
    add = command.add_argument
    add("--network", nargs="+", metavar="NAME",
        help=f"of {', '.join(network_names())} (default: {', '.join(NETWORKS)})")  # fmt: skip
    add("--input", default="3x32x32", metavar="CxHxW", help="default: %(default)s")
    add("--batch", type=int, default=16, metavar="IMAGES", help="default: %(default)s")
    add("--width", type=float, default=1.0, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)")  # fmt: skip


def add_documents(command) -> None:
    """Add the options of what is written, and those of :func:`~perf.counted.command.add_store`."""
    add = command.add_argument
    add("--kept", action="store_true", help="only what has been counted before")
    add("--markdown", metavar="FILE", help="write all tables")
    add("--json", metavar="FILE", help="write all figures")
    add_store(command)


def fill_unless_kept(store: Store, cells: Sequence[Cell], options, console: Console) -> list[Cell]:
    """Count cells, unless ``--kept``; returns those that nobody has counted, each once."""
    if not options.kept:
        fill(store, list(cells), options, console)
    return [cell for cell in dict.fromkeys(cells) if store.get(cell) is None]


def show(
    options,
    console: Console,
    lines: Sequence[str],
    missing: Sequence[Cell],
    document: Mapping[str, Any],
) -> None:
    """Print the lines and what is missing, and write them and ``document`` as the options of
    :func:`add_documents` say."""
    lines = list(lines)
    if missing:
        lines += ["## Not counted", "", *(f"- {cell.text}" for cell in missing), ""]
    text = "\n".join(lines)
    console.print(text, markup=False, soft_wrap=True)
    if options.markdown:
        write_whole(options.markdown, text)
    if options.json:
        values = {**document, "not_counted": [asdict(cell) for cell in missing]}
        write_whole(Path(options.json), json.dumps(values, indent=1) + "\n")
