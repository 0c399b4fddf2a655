"""Layers with windows that do not fit: a row of outputs, and bands of the rows of its windows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.tensors.intervals import Channels, regular_parts

from .row_tiling import Part, Role, RowTile, store_tile, tile_need, tile_views
from .splitting import MOST_WORDS, channel_parts, channel_steps
from .state import held
from .windows import Windows

__all__ = ["run_window_bands"]


def run_window_bands(
    program: CoreProgram,
    windows: Windows,
    parts: Sequence[Part],
    begin: Callable[..., None],
    go_on: Callable[..., None],
    end: Callable[..., None] | None = None,
) -> None:
    """Call ``begin`` before the first band of a row of outputs, ``go_on`` for every band, and
    ``end`` behind the last one, with (tile, *views of parts); what is written is stored then.

    Places of a window come in order, whatever the bands are.

    Parameters
    ----------
    parts : of :func:`~compiler.kernels.tiling.row_tiling.run_row_tiles`; the last one is the map,
        which alone is cut into bands

    Raises
    ------
    CompileError
        if a row of the map with one word per pixel does not fit into the buffer.
    """
    *kept, map_part = parts
    images = map_part.tensor.shape[0]
    channels, most = _cut(program, windows, parts)

    def do(band: int, bands: Sequence[RowTile], *blocks: Block) -> None:
        tile = bands[band]
        views = tile_views(program, tile, parts, blocks)
        if band == 0:
            begin(tile, *views)
        go_on(tile, *views)
        if band == len(bands) - 1:
            if end is not None:
                end(tile, *views)
            store_tile(program, tile, parts, blocks)

    def tiles(image: int, row: int, part: Channels) -> list[RowTile]:
        whole = RowTile(
            images=(image, image + 1), outputs=(row, row + 1), lines=windows.lines(row, row + 1),
            channels=part,
        )  # fmt: skip
        return [replace(whole, lines=lines) for lines in regular_parts(*whole.lines, most)]

    first = RowTile(images=(0, 1), outputs=(0, 1), lines=(0, 1))
    largest = [
        max(tile_need(program, replace(first, channels=part), own).words for part in channels)
        for own in kept
    ]
    jobs = []
    with held(program, *largest) as places:
        for part in channels:
            for image in range(images):
                for row in range(windows.outputs[0]):
                    bands = tiles(image, row, part)
                    state = [_own(program, bands[0], *pair) for pair in zip(kept, places)]
                    for number, tile in enumerate(bands):
                        like = replace(tile, images=(0, 1)), number == 0, number == len(bands) - 1
                        needs = (*state, tile_need(program, tile, map_part))
                        jobs.append(Job(needs, partial(do, number, bands), like=like, at=(image,)))
        program.run(jobs)


def _own(program: CoreProgram, tile: RowTile, part: Part, place: Need) -> Need:
    """What a part needs, at the beginning of its place."""
    return tile_need(program, tile, part)._replace(place=place.place)


def _cut(
    program: CoreProgram, windows: Windows, parts: Sequence[Part]
) -> tuple[list[Channels], int]:
    """Parts of the channels, and rows of the map in a band, of which two have room, or one."""
    *kept, map_part = parts
    tensors = [part.tensor for part in parts]
    for copies in (2, 1):
        for step in channel_steps(program, tensors[0]):
            channels = channel_parts(program, tensors, step)
            rows = []
            for part in channels:
                tile = RowTile(images=(0, 1), outputs=(0, 1), lines=(0, 1), channels=part)
                fixed = sum(tile_need(program, tile, own).words for own in kept)
                line = tile_need(program, tile, map_part).words
                rows.append(min((program.scratch.words - fixed) // copies, MOST_WORDS) // line)
            if min(rows) >= 1:
                return channels, min(*rows, windows.size[0])
    written = next(part.tensor.name for part in parts if part.role is Role.WRITE)
    raise CompileError(
        f"layer of {written}: a row of its map with one word per pixel, and a row of outputs, do "
        f"not fit into the buffer ({program.scratch.words} words)"
    )
