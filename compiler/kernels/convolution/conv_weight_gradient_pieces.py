"""Pieces of a batch that pass through the array one after the other for a weight gradient."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from math import gcd
from typing import NamedTuple

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.tensors.intervals import Channels, Interval, regular_parts
from compiler.tensors.tensor import Tensor

from .conv_geometry import Convolution
from .conv_tiling import MapTile
from .conv_weight_gradient_ranges import Range, WeightGradientRanges
from .gathered_pixels import Gathered

__all__ = ["Piece", "Room", "WeightGradientPieces", "unlike"]

#: Images and output rows, or pixels that are no such box.
Piece = MapTile | Gathered

#: Column tiles of which a bank of the accumulators collects the sums at the same time, at most.
_MOST_PER_BANK = 2
#: K tiles that a piece has at least: a command's first ``rows`` cycles bring no vector.
_FEW_TILES = 4
#: Fewer leave no time for the results of others: better larger pieces, of which fewer are there.
_LONG_TILES = 5
#: Words of a long run that are loaded in the time of a short one (8 bursts in flight, 30 cycles).
_RUN_WORDS = 6


class Room(NamedTuple):
    """Pieces have room ``share`` times. ``narrow``: as little of dY as possible is with them.
    ``late``: beside them is room for results twice, so that they may be stored late."""

    share: int
    narrow: bool = False
    late: bool = False

    @property
    def tight(self) -> bool:
        """Whether pieces have room once only, so that nothing may lie between them."""
        return self.share == 1


#: The best first: small pieces are soon there, and leave room to load ahead.
_ROOMS = (
    Room(4, late=True), Room(3, late=True), Room(2, late=True), Room(2), Room(2, narrow=True),
    Room(1, narrow=True),
)  # fmt: skip


class WeightGradientPieces(WeightGradientRanges):
    """Cuts a batch into pieces for ranges, and knows what these need.

    Members
    -------
    dy : like the output
    owner : first part of the keys of gathered pixels
    room : how the pieces lie in the buffer
    """

    def __init__(
        self, program: CoreProgram, layer: Convolution, dy: Tensor, dw: Tensor | None,
        db: Tensor | None,
    ) -> None:  # fmt: skip
        super().__init__(program, layer, dw, db)
        self.dy, self.owner = dy, object()
        self.room = Room(2)
        self._most_dy: dict[tuple[Interval, int, bool], int] = {}

    def stay(self, words: int) -> bool:
        """Whether both maps stay in so many words."""
        return self.x_need().words + self.dy_need().words <= words

    def whole_or_boxes(self, ranges: list[Range], words: int) -> tuple[list[Piece], bool] | None:
        """Both maps, or else images or lines of one that are whole K tiles."""
        layer, rows = self.layer, self.core.rows
        height, width = layer.output_map
        self.room = Room(2)
        if self.stay(words):
            return self._growing(ranges[0]), True
        cuts: list[tuple[int, int]] = []  # images and lines
        group, unit = (rows // gcd(rows, pixels) for pixels in (height * width, width))
        cuts += [(count, height) for count in range(-(-layer.images // group) * group, 0, -group)]
        if group == 1 or layer.images == 1:
            cuts += [(1, lines) for lines in range(height // unit * unit, 0, -unit)]

        def ends(images: int, lines: int) -> list[Piece]:
            """The first and the last piece."""
            last = (layer.images - 1) // images * images, (height - 1) // lines * lines
            return [
                ((0, min(images, layer.images)), (0, min(lines, height))),
                ((last[0], layer.images), (last[1], height)),
            ]

        parts = [ranges[0], ranges[-1]]
        if parts[0].tiles != (0, self.tiles.count):
            parts = unlike(ranges)
        for self.room in _ROOMS:
            if self.room.tight:
                # Rows of the kernel in the middle may read more lines than the first and the last.
                parts = unlike(ranges)
            # The first pieces are the smaller, the later their cut comes.
            begin = bisect_left(
                cuts, True, key=lambda cut: self._has_room(ends(*cut)[:1], parts, words)
            )
            for images, lines in cuts[begin:]:
                if not self._has_room(ends(images, lines), parts, words):
                    continue
                if self.room.share > 2 and images * lines * width < _LONG_TILES * rows:
                    break
                return list(
                    product(
                        _regular(layer.images, images, group if lines == height else 1),
                        _regular(height, lines, unit),
                    )
                ), False
        return None

    def line_cuts(self, ranges: list[Range], words: int) -> tuple[list[Piece], bool] | None:
        """Lines of an image that are whole K tiles; those between two images gathered."""
        layer, rows = self.layer, self.core.rows
        height, width = layer.output_map
        unit = rows // gcd(rows, width)
        parts = unlike(ranges)
        for self.room in _ROOMS:
            for most in range(max(unit, height // unit * unit), 0, -unit):
                # The same lines of images come again and again.
                for images in sorted({min(layer.images, unit + 1), layer.images}):
                    pieces = self._lines(images, most, unit)
                    if not self._has_room(pieces, parts, words):
                        break
                else:
                    return pieces, False
        return None

    def _lines(self, images: int, most: int, unit: int) -> list[Piece]:
        """Some images, at most so many lines in each piece; ``unit`` lines are whole K tiles."""
        height, width = self.layer.output_map
        end, line = images * height, 0
        pieces: list[Piece] = []
        while line < end:
            n, h = divmod(line, height)
            count = min(most, height - h)
            if line + count < end:
                count -= count % unit
            if count:
                pieces.append(((n, n + 1), (h, h + count)))
            else:
                count = min(unit, end - line)
                pieces.append(self._gathered(line * width, (line + count) * width, width))
            line += count
        return pieces

    def pixel_cuts(self, ranges: list[Range], words: int) -> tuple[list[Piece], bool] | None:
        """Some K tiles of single pixels: a line is too long."""
        height, width = self.layer.output_map
        total, parts = self.layer.images * height * width, unlike(ranges)
        for self.room in _ROOMS[-2:]:
            for count in (16, 8, 4, 2, 1):
                size = count * self.core.rows
                if self._has_room([self._gathered(0, min(size, total), 1)], parts, words):
                    return [
                        self._gathered(begin, min(begin + size, total), 1)
                        for begin in range(0, total, size)
                    ], False
        return None

    def _gathered(self, begin: int, end: int, width: int) -> Gathered:
        return Gathered(self.owner, self.layer, begin, end, width)

    def _has_room(self, pieces: Sequence[Piece], parts: Sequence[Range], words: int) -> bool:
        """Whether any of ``pieces`` has its :attr:`room` for one of ``parts`` in so many words,
        those that results leave which are there once."""
        results = self.program.scratch.words - words
        late = results if self.room.late else 0
        return self._largest(pieces, parts) * self.room.share <= words - late

    def _largest(self, pieces: Sequence[Piece], parts: Sequence[Range]) -> int:
        """Words of what the largest of ``pieces`` needs for one of ``parts``."""
        shapes = {self.shape(piece): piece for piece in pieces}
        most = 0
        for part in parts:
            dy = self.dy_words(part)
            for piece in shapes.values():
                most = max(most, self.x_words(piece, part) + self.pixels(piece) * dy)
        return most

    @staticmethod
    def shape(piece: Piece) -> tuple[int, ...]:
        """What pieces have in common that need as much."""
        if isinstance(piece, Gathered):
            return piece.pixels, piece.width
        images, lines = piece
        return images[1] - images[0], *lines

    def dy_words(self, part: Range) -> int:
        """Words of a pixel of dY, at most."""
        key = part.tiles, len(self.batch(part, part.tiles[0])), self.room.narrow
        if key not in self._most_dy:
            self._most_dy[key] = max(
                self.program.words(self.dy, self.dy_channels(batch)) for batch in self.batches(part)
            )
        return self._most_dy[key]

    def pixels(self, piece: Piece) -> int:
        """Output pixels of a piece."""
        if isinstance(piece, Gathered):
            return piece.pixels
        images, lines = piece
        return (images[1] - images[0]) * (lines[1] - lines[0]) * self.layer.output_map[1]

    def x_words(self, piece: Piece, part: Range) -> int:
        words = self.program.words(self.layer.x, self._x_channels(part))
        if isinstance(piece, Gathered):
            return piece.x_words(self.program, part.taps, words)
        images, (begin, end) = piece[0], self.layer.lines(0, *piece[1], part.rows)
        return (images[1] - images[0]) * (end - begin) * self.layer.input_map[1] * words

    def short_first(self, pieces: list[Piece]) -> list[Piece]:
        """The same with little in the first piece, which is soon there."""
        first, *others = pieces
        if isinstance(first, Gathered):
            return pieces
        images, lines = first
        height, width = self.layer.output_map
        axis, (begin, end), pixels = (
            (0, images, height * width) if images[1] - images[0] > 1 else (1, lines, width)
        )
        cut = begin + self._few(pixels)
        if cut >= end:
            return pieces
        parts = (begin, cut), (cut, end)
        return [*((images, part) if axis else (part, lines) for part in parts), *others]

    def _few(self, pixels: int) -> int:
        """Lines or images of so many pixels in as few whole K tiles as a piece should have."""
        rows = self.core.rows
        unit = rows // gcd(rows, pixels)
        return unit * -(-_FEW_TILES * rows // (unit * pixels))

    def _growing(self, part: Range) -> list[Piece]:
        """Pieces, the first one small, the next ones as much larger as they can be loaded while
        those before are computed."""
        layer, rows = self.layer, self.core.rows
        height, width = layer.output_map
        total, pixels = layer.images, height * width
        if total == 1:
            total, pixels = height, width
        unit = self._few(pixels)
        words = (self.x_need().words + self.dy_need().words) / (total * pixels)
        vectors = self.entries(part) * len(self.batch(part, 0)) / rows
        growth, size, begin = min(2.0, vectors / words), unit, 0
        pieces: list[Piece] = []
        while begin < total:
            end = min(total, begin + int(size) // unit * unit)
            span = begin, end
            pieces.append((span, (0, height)) if layer.images > 1 else ((0, 1), span))
            begin, size = end, max(size * growth, unit)
        return pieces

    def batch(self, part: Range, first: int) -> range:
        """Column tiles from ``first`` on whose sums both accumulator banks hold."""
        most = min(_MOST_PER_BANK, self.core.accumulator_depth // self.entries(part))
        return range(first, min(first + (1 if self.room.narrow else 2 * most), part.tiles[1]))

    def batches(self, part: Range) -> list[range]:
        """All column tiles of a range, in order."""
        size = len(self.batch(part, part.tiles[0]))
        return [self.batch(part, first) for first in range(*part.tiles, size)]

    def _x_channels(self, part: Range) -> Interval:
        """Those that are loaded: whole words."""
        begin, end = part.blocks
        return begin * self.core.rows, end * self.core.rows

    def x_need(self, piece: Piece | None = None, part: Range | None = None) -> Need:
        """X of a piece, as far as a range reads it; by default all of it."""
        layer, program = self.layer, self.program
        columns = 0, layer.input_map[1]
        if piece is None or part is None:
            lines = 0, layer.input_map[0]
            return program.need(layer.x, (0, layer.images), lines, columns)
        channels = self._x_channels(part)
        if isinstance(piece, Gathered):
            return piece.x_need(program, part.taps, channels)
        images, rows = piece
        return program.need(layer.x, images, layer.lines(0, *rows, part.rows), columns, channels)

    def dy_channels(self, tiles: range) -> Interval:
        """(begin, end) of channels to load for column tiles: in whole words, or all of them where
        short runs would not be faster."""
        begin, end = self.tiles.range(tiles[0])[0], self.tiles.range(tiles[-1])[1]
        first, last = self.program.whole_words((begin, end))
        channels, everything = (first, min(last, self.dy.pitch)), (0, self.dy.pitch)
        words = [self.program.words(self.dy, part) for part in (channels, everything)]
        short = words[1] <= max(words[0], _RUN_WORDS)
        return everything if short and not self.room.narrow else channels

    def dy_need(self, piece: Piece | None = None, channels: Channels = None) -> Need:
        """dY there, of ``channels``; by default all of it."""
        height, width = self.layer.output_map
        if piece is None:
            return self.program.need(self.dy, (0, self.layer.images), (0, height), (0, width))
        if isinstance(piece, Gathered):
            return piece.dy_need(self.program, self.dy, channels)
        images, rows = piece
        return self.program.need(self.dy, images, rows, (0, width), channels)


def _regular(size: int, most: int, unit: int) -> list[Interval]:
    """Parts of whole units, at most so many each, but for the end of the last one: a short one
    would leave no time for the results of the one before."""
    if most >= size:
        return [(0, size)]
    parts = regular_parts(0, -(-size // unit), most // unit)
    return [(begin * unit, min(end * unit, size)) for begin, end in parts]


def unlike(ranges: Sequence[Range]) -> list[Range]:
    """The first one of each size: it has the bias if one of them has, and no ragged word."""
    sizes: dict[object, Range] = {}
    for part in ranges:
        sizes.setdefault((part.blocks[1] - part.blocks[0], part.taps, part.tiles), part)
    return list(sizes.values())
