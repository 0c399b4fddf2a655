"""``python -m boards layout``: a picture of where the blocks of a design were placed."""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from boards.catalogue import BoardError
from cli.atomic_files import replacing, write_whole
from synth.fpga.placement import read_placement

__all__ = ["BLOCKS", "PLACEMENT", "add_arguments", "block_of", "keep_placement", "run"]

#: In the folder of a build.
PLACEMENT = "placement.json"

#: What is shown: name -> what names of cells begin with. The first that fits counts.
BLOCKS = {
    "PE array": r"system\.accelerator\.core\d\.matrix\.array",
    "weights, accumulators, MATMUL": r"system\.accelerator\.core\d\.matrix",
    "VECTOR": r"system\.accelerator\.core\d\.vector\.",
    "LOSS": r"system\.accelerator\.core\d\.loss\.",
    "POST": r"system\.accelerator\.core\d\.post\.",
    "buffer, LOAD, STORE": r"system\.accelerator\.core\d\.(buffer|load|store)\.",
    "registers": r"system\.accelerator\.registers\.",
    "commands, queues, bus": r"system\.accelerator",
    "SDRAM controller": r"(system\.controller|sdram)",
    "host link, clocks, pins": r"",
}


def block_of(cell: str) -> str:
    """Which of :data:`BLOCKS` a cell belongs to, by its name."""
    return next(name for name, start in BLOCKS.items() if re.match(start, cell))


def keep_placement(placed: Path, directory: Path, device: str) -> None:
    """Write :data:`PLACEMENT`: the device, and how many cells of which block are in which tile,
    ([block, column, row, count] each); take away the large file that nextpnr has written."""
    tiles = Counter((block_of(name), x, y) for name, _, x, y in read_placement(placed))
    content = {"device": device, "tiles": [[*key, count] for key, count in sorted(tiles.items())]}
    write_whole(directory / PLACEMENT, json.dumps(content))
    placed.unlink()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: python -m boards layout build/boards/ulx3s-e9bc89067ff8"
    add = parser.add_argument
    add("build", type=Path, help="folder that `python -m boards build` has written")
    add("-o", "--output", type=Path, metavar="FILE.png", help="default: layout.png in that folder")


def run(arguments: argparse.Namespace) -> int:
    """The exit status, 0."""
    found = arguments.build / PLACEMENT
    if not found.is_file():
        raise BoardError(f"{found} does not exist: `python -m boards build` writes it")
    content = json.loads(found.read_text())
    output = arguments.output or arguments.build / "layout.png"
    draw(content["device"], content["tiles"], output)
    cells = Counter()
    for block, _, _, count in content["tiles"]:
        cells[block] += count
    for block in BLOCKS:
        if cells[block]:
            print(f"{block:30} {cells[block]:7,} cells")
    print(f"wrote {output}, {output.stat().st_size:,} bytes")
    return 0


def draw(device: str, tiles: Iterable[tuple[str, int, int, int]], path: Path) -> None:
    """A square for every tile of the FPGA in the colour of the block that has most cells in it, the
    fuller the stronger."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    places: dict[tuple[int, int], Counter] = defaultdict(Counter)
    for block, x, y, count in tiles:
        places[x, y][block] += count
    used = [block for block in BLOCKS if any(block in place for place in places.values())]
    colours = dict(zip(used, pyplot.get_cmap("tab10").colors, strict=False))
    width, height = (max(place[axis] for place in places) + 1 for axis in (0, 1))
    picture = np.ones((height, width, 3))
    for (x, y), counts in places.items():
        # A logic tile has eight look-up tables and eight flip-flops.
        strength = 0.25 + 0.75 * min(counts.total() / 16, 1)
        colour = np.array(colours[counts.most_common(1)[0][0]])
        picture[y, x] = 1 - strength * (1 - colour)
    figure, axes = pyplot.subplots(figsize=(10, 6), layout="constrained")
    axes.imshow(picture, interpolation="nearest")
    axes.set(title=f"Cells on the {device}, by tile", xlabel="column", ylabel="row")
    figure.legend(
        handles=[Patch(color=colours[block], label=block) for block in used],
        loc="outside right center", frameon=False,
    )  # fmt: skip
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
