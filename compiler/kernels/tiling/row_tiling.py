"""Layers with windows, piece by piece: images, and rows with the rows of windows around them.

Channels are cut only where not even a row of all of them fits.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.tensors.intervals import ChannelBox, Channels, Interval, even_parts, regular_parts
from compiler.tensors.tensor import Tensor

from .splitting import MOST_WORDS, channel_parts, channel_steps
from .windows import Windows

__all__ = [
    "Part",
    "Role",
    "RowTile",
    "run_row_tiles",
    "store_tile",
    "tile_need",
    "tile_views",
]


class Role(enum.Enum):
    """What a layer does with a tensor: reads rows of it, writes them, uses room of their shape in
    float32, or of a float32 vector of the channels; or reads all of it, whatever the rows."""

    READ = 0
    WRITE = 1
    SUMS = 2
    VECTOR = 3
    WHOLE = 4


@dataclass(frozen=True)
class Part:
    """A tensor that has the rows of the map, or those of the outputs."""

    tensor: Tensor
    on_map: bool
    role: Role = Role.READ


@dataclass(frozen=True, kw_only=True)
class RowTile:
    """Images, and rows of outputs and of the map that belong to each other; (begin, end) each.
    ``channels`` are None for all."""

    images: tuple[int, int]
    outputs: tuple[int, int]
    lines: tuple[int, int]
    channels: Channels = None

    def box(self, part: Part) -> ChannelBox:
        """Images, rows, columns and channels of a part."""
        if part.role is Role.VECTOR:
            return (0, 1), (0, 1), (0, 1), self.channels
        if part.role is Role.WHOLE:
            return *part.tensor.pixels, self.channels
        rows = self.lines if part.on_map else self.outputs
        return self.images, rows, (0, part.tensor.shape[2]), self.channels


def run_row_tiles(
    program: CoreProgram,
    windows: Windows,
    parts: Sequence[Part],
    work: Callable[..., None],
    *,
    cut_map: bool = False,
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Call ``work(tile, *views of parts)`` for every tile; what is written is stored.

    Tiles cut the outputs and have what their windows need of the map; with ``cut_map`` they cut the
    map and have the outputs whose windows reach them.

    Parameters
    ----------
    parts : list of :class:`Part`
    otherwise : what to do if a tile of a single row and one word per pixel does not fit

    Raises
    ------
    CompileError
        if such a tile does not fit into the buffer and there is nothing else to do.
    """

    def do(tile: RowTile, *blocks: Block) -> None:
        work(tile, *tile_views(program, tile, parts, blocks))
        store_tile(program, tile, parts, blocks)

    tiles = _cut(program, windows, parts, cut_map)
    if tiles is None and otherwise is not None:
        otherwise()
        return
    if tiles is None:
        written = next(part.tensor.name for part in parts if part.role is Role.WRITE)
        raise CompileError(
            f"layer of {written}: a row of it with one word per pixel, and what belongs to it, do "
            f"not fit into the buffer ({program.scratch.words} words)"
        )
    jobs = []
    for tile in tiles:
        needs = tuple(tile_need(program, tile, part) for part in parts)
        (first, last), run = tile.images, partial(do, tile)
        like = replace(tile, images=(0, last - first))
        jobs.append(Job(needs, run, like=like, at=(first,)))
    program.run(jobs)


def tile_views(
    program: CoreProgram, tile: RowTile, parts: Sequence[Part], blocks: Sequence[Block]
) -> list[View]:
    """What of each part belongs to a tile, in its block."""
    return [
        program.view(block, part.tensor, *tile.box(part), wide=part.role in _WIDE)
        for part, block in zip(parts, blocks, strict=True)
    ]


def store_tile(
    program: CoreProgram, tile: RowTile, parts: Sequence[Part], blocks: Sequence[Block]
) -> None:
    """Store what a tile has written; nothing but what was loaded is needed any longer."""
    for part, block in zip(parts, blocks, strict=True):
        if part.role is Role.WRITE:
            images, rows, columns, channels = tile.box(part)
            box = images, rows, columns, channels or (0, part.tensor.pitch)
            program.store(part.tensor, box, block)
        if part.role not in _LOADED:
            program.scratch.drop([block])


_WIDE = (Role.SUMS, Role.VECTOR)
_LOADED = (Role.READ, Role.WHOLE)


def tile_need(program: CoreProgram, tile: RowTile, part: Part) -> Need:
    """What a part needs for a tile."""
    box = tile.box(part)
    if part.role in _LOADED:
        return program.need(part.tensor, *box)
    return program.result(part.tensor, *box, wide=part.role in _WIDE)


def _cut(
    program: CoreProgram, windows: Windows, parts: Sequence[Part], cut_map: bool
) -> list[RowTile] | None:
    """Tiles of as many images, or else rows, as leave room for the next one, or at least fit; None
    if a row with one word per pixel does not."""
    tensors = [part.tensor for part in parts]
    for step in channel_steps(program, tensors[0]):
        channels = channel_parts(program, tensors, step)
        for share in (2, 1):
            # The last part may be larger: the pitch of float32 tensors may be longer.
            sizes = channels[:1] if share > 1 else list(dict.fromkeys((channels[0], channels[-1])))
            tiles = _cut_rows(program, windows, parts, cut_map, sizes, share)
            if tiles:
                return [replace(tile, channels=part) for part in channels for tile in tiles]
    return None


def _cut_rows(
    program: CoreProgram,
    windows: Windows,
    parts: Sequence[Part],
    cut_map: bool,
    channels: Sequence[Channels],
    share: int,
) -> list[RowTile] | None:
    """Row tiles of which ``share`` fit at once with any of ``channels``; None for none."""
    images = next(part.tensor.shape[0] for part in parts if part.role is Role.WRITE)
    height = windows.size[0] if cut_map else windows.outputs[0]

    def tile(group: Interval, rows: Interval, part: Channels = None) -> RowTile:
        if cut_map:
            lines = {"outputs": windows.readers(*rows), "lines": rows}
        else:
            lines = {"outputs": rows, "lines": windows.lines(*rows)}
        return RowTile(images=group, channels=part, **lines)

    def fits(group: Interval, rows: Interval) -> bool:
        return all(has_room(tile(group, rows, part)) for part in channels)

    def has_room(tile: RowTile) -> bool:
        fixed, sizes = 0, []
        for part in parts:
            words = tile_need(program, tile, part).words
            if part.role is Role.WHOLE:
                fixed += words
            else:
                sizes.append(words)
        # With blocks of others between them, the next tile's have room if there is some to spare.
        spare = max(sizes) if share > 1 else 0
        words = sum(sizes) * share + fixed + spare
        return words <= program.scratch.words and max(sizes) <= MOST_WORDS

    for count in range(images, 0, -1):
        groups = regular_parts(0, images, count)
        largest = max(groups, key=lambda group: group[1] - group[0])
        if fits(largest, (0, height)):
            return [tile(group, (0, height)) for group in groups]
    for most in range(height - 1, 0, -1):
        cuts = even_parts(0, height, most)
        if all(fits((0, 1), rows) for rows in cuts):
            return [tile((n, n + 1), rows) for n in range(images) for rows in cuts]
    return None
