"""Tiles of the map that a product writes in training."""

from collections.abc import Callable, Sequence

from compiler.codegen.core_builder import CoreProgram
from compiler.errors import CompileError
from compiler.tensors.intervals import Interval, regular_parts

__all__ = ["LineTooLarge", "MapTile", "cut_map"]

#: Images and rows.
MapTile = tuple[Interval, Interval]

#: A map is cut into this many tiles at least, so that loads hide behind products and products
#: before stores; but not into tiles of fewer vectors.
_FEW_TILES, _FEW_VECTORS = 4, 128
#: The first and the last tile have about so many: nothing hides their loads, and their stores.
_END_VECTORS = 64


class LineTooLarge(CompileError):
    """Not even a line of a map has room, with what belongs to it."""


def cut_map(
    program: CoreProgram,
    images: int,
    height: int,
    columns: int,
    *,
    size: Callable[[Interval, Interval], int],
    weights: int,
    what: str,
    step: int = 1,
    lines: int = 1,
    constant: int = 0,
    copies: Sequence[int] = (2, 1),
) -> list[MapTile]:
    """[(images, rows)], (begin, end) each: whole images, else rows of one, that fit accumulators
    and buffer.

    Parameters
    ----------
    program : CoreProgram
    images, height : of the map
    columns : vectors that a line takes
    step : lines that share accumulators one after the other: the phases of a strided gradient
    lines : of which every tile has a multiple
    size : words of a tile and of what it reads, a function of images and rows
    weights, constant : words of a column tile's weights, and of what stays in the buffer
    what : does not fit, for the message
    copies : of everything that should have room, the best first: with two, loads hide

    Raises
    ------
    LineTooLarge
        if a line does not fit.
    """
    if lines > 1:
        tiles = cut_map(
            program, images, height // lines, columns * lines,
            size=lambda images, rows: size(*_in_lines((images, rows), lines)),
            weights=weights, what=what, constant=constant, copies=copies,
        )  # fmt: skip
        return [_in_lines(tile, lines) for tile in tiles]
    depth = program.core.accumulator_depth
    units = -(-height // step)
    for copy in copies:
        room = (program.scratch.words - constant) // copy - weights
        most = depth
        while most >= columns:
            if most >= columns * units:
                count = most // (columns * units)
                parts = [(n, (0, height)) for n in regular_parts(0, images, count)]
            else:
                cuts = regular_parts(0, units, most // columns)
                rows = [(a * step, min(b * step, height)) for a, b in cuts]
                parts = [((n, n + 1), r) for n in range(images) for r in rows]
            enough = len(parts) >= _FEW_TILES or most < 2 * _FEW_VECTORS
            if enough and all(size(*part) <= room for part in parts):
                return _tapered(parts, columns, step)
            most //= 2
    raise LineTooLarge(
        f"{what} does not fit into the accumulators ({depth} vectors) or the buffer "
        f"({program.scratch.words} words)"
    )


def _in_lines(tile: MapTile, lines: int) -> MapTile:
    """A tile of groups of so many lines."""
    images, (begin, end) = tile
    return images, (begin * lines, end * lines)


def _tapered(parts: list[MapTile], columns: int, step: int) -> list[MapTile]:
    """``parts`` with a short tile cut off at both ends, of whole images or ``step`` lines."""
    lines = max(1, _END_VECTORS // columns) * step
    first = parts[0]
    if first is not parts[-1]:
        parts = [*_split(first, lines), *parts[1:]]
    return [*parts[:-1], *reversed(_split(parts[-1], lines, last=True))]


def _split(part: MapTile, lines: int, *, last: bool = False) -> list[MapTile]:
    """``part`` in up to three, from its beginning or, ``last``, its end on: ``lines``, the rest of
    their image, other images. It stays whole if it has less than twice as many lines."""
    (n0, n1), (h0, h1) = part
    if (n1 - n0) * (h1 - h0) < 2 * lines:
        return [part]
    few = max(1, lines // (h1 - h0))
    image, others = ((n1 - few, n1), (n0, n1 - few)) if last else ((n0, n0 + few), (n0 + few, n1))
    result = [(others, (h0, h1))] if others[1] > others[0] else []
    if h1 - h0 < 2 * lines:
        return [(image, (h0, h1)), *result]
    # Cuts are where those of whole steps from the first line on are.
    edge = h0 + ((h1 - h0 - 1) // lines * lines if last else lines)
    ends = [(image, (h0, edge)), (image, (edge, h1))]
    return [*(reversed(ends) if last else ends), *result]
