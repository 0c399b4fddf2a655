"""How a weight gradient is cut: ranges of its entries, pieces of the batch, results."""

from dataclasses import dataclass, replace
from math import gcd

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.errors import CompileError
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor

from .conv_geometry import Convolution
from .conv_tiling import MapTile

__all__ = ["Range", "WeightGradientPlan"]

#: Column tiles of which a bank of the accumulators collects the sums at the same time, at most.
_MOST_PER_BANK = 2
#: K tiles that a piece has at least: a command's first ``rows`` cycles bring no vector.
_FEW_TILES = 4
#: Words of a long run that are loaded in the time of a short one (8 bursts in flight, 30 cycles).
_RUN_WORDS = 6


@dataclass(frozen=True)
class Range:
    """Blocks of input channels and kernel rows, (begin, end) each."""

    blocks: tuple[int, int]
    rows: tuple[int, int]


def _flat(layer: Convolution, dy: Tensor) -> tuple[Convolution, Tensor]:
    """(layer, dy) as one image of all lines where no kernel reaches from line to line, so that
    pieces may begin anywhere."""
    height, lines = layer.input_map[0], layer.output_map[0]
    if layer.kernel[0] != 1 or layer.padding[0] or height != lines * layer.stride[0]:
        return layer, dy
    x, y, dy = (
        replace(tensor, shape=(1, tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]))
        for tensor in (layer.x, layer.y, dy)
    )
    return replace(layer, x=x, y=y), dy


class WeightGradientPlan:
    """Cuts a weight gradient, and knows the sizes of what it needs.

    Members
    -------
    layer, dy : as one image of all lines where no kernel reaches from line to line
    tiles : ColumnTiles of the output channels
    channels : [(begin, end)] of output channels that are stored together: those that fill whole
        words before the last column tile comes, and the rest; none without ``dw``
    ranges : list of :class:`Range`
    pieces : [(images, output rows)], all but the last whole K tiles
    whole : whether both maps stay in the memory
    """

    def __init__(
        self,
        program: CoreProgram,
        layer: Convolution,
        dy: Tensor,
        dw: Tensor | None,
        db: Tensor | None,
    ) -> None:
        self.program, self.core, self.dw, self.db = program, program.core, dw, db
        self.layer, self.dy = _flat(layer, dy)
        self.tiles = layer.output_tiles(self.core)
        self._blocks = -(-layer.inputs // self.core.rows)
        self._narrow = False  # as little of dY as possible
        self.channels = self._output_channels()
        self.ranges = self._ranges()
        self.pieces, self.whole = self._cut()

    def _output_channels(self) -> list[Interval]:
        if self.dw is None:
            return []
        edges = [self.tiles.range(tile)[0] for tile in range(1, self.tiles.count)]
        item = self.dw.dtype.itemsize
        edges = [edge for edge in edges if not edge * item % self.core.word_bytes]
        if not edges:
            return [(0, self.dw.pitch)]
        return [(0, edges[-1]), (edges[-1], self.dw.pitch)]

    def _ranges(self) -> list[Range]:
        """As much as the accumulators hold, and a quarter of the buffer the results."""
        if self.dw is None:
            return [Range((0, 1), (0, 1))]
        layer, core = self.layer, self.core
        kernel, width = layer.kernel
        line = width * core.rows  # entries of a kernel row and block
        row = sum(self.program.words(self.dw, channels) for channels in self.channels)
        room = self.program.scratch.words // 4 // row
        most = min(core.accumulator_depth - (self.db is not None), max(room, line)) // line
        if not most:
            raise CompileError(
                f"layer {layer.name}: the weight gradient of a row of its kernel does not fit into "
                f"the accumulators ({core.accumulator_depth} vectors)"
            )
        if most >= kernel:
            step = most // kernel
            return [Range((b, min(b + step, self._blocks)), (0, kernel))
                    for b in range(0, self._blocks, step)]  # fmt: skip
        return [Range((b, b + 1), (kh, min(kh + most, kernel)))
                for b in range(self._blocks) for kh in range(0, kernel, most)]  # fmt: skip

    def _cut(self) -> tuple[list[MapTile], bool]:
        """(pieces, whole)."""
        layer, rows = self.layer, self.core.rows
        height, width = layer.output_map
        room = self.program.scratch.words - max(self._out_size(part) for part in self.ranges)
        if self.x_need().words + self.dy_need().words <= room:
            return self._growing(self.ranges[0]), True
        cuts = []
        group = rows // gcd(rows, height * width)
        for count in range(-(-layer.images // group) * group, 0, -group):
            cuts.append([((n, min(n + count, layer.images)), (0, height))
                         for n in range(0, layer.images, count)])  # fmt: skip
        if group == 1 or layer.images == 1:
            unit = rows // gcd(rows, width)
            for lines in range(height // unit * unit, 0, -unit):
                cuts.append(
                    [
                        ((n, n + 1), (h, min(h + lines, height)))
                        for n in range(layer.images)
                        for h in range(0, height, lines)
                    ]
                )
        # Small pieces are soon there, and leave room to load ahead.
        wide = [(share, False) for share in (16, 8, 4, 2)]
        for share, self._narrow in (*wide, (2, True), (1, True)):
            for pieces in cuts:
                largest = max(
                    self.x_need(*piece, part).words
                    + self.dy_need(*piece, self.dy_channels(batch)).words
                    for piece in (pieces[0], pieces[-1])
                    for part in (self.ranges[0], self.ranges[-1])
                    for batch in self.batches(part)
                )
                if largest * share <= room:
                    return self._short_first(pieces), False
        raise CompileError(
            f"layer {layer.name}: {group} images of {layer.input_map} and their gradients, which "
            f"its weight gradient needs together, do not fit into the buffer "
            f"({self.program.scratch.words} words)"
        )

    def _short_first(self, pieces: list[MapTile]) -> list[MapTile]:
        """The same with little in the first piece, which is soon there."""
        (images, lines), *others = pieces
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

    def _growing(self, part: Range) -> list[MapTile]:
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
        growth, size, begin, pieces = min(2.0, vectors / words), unit, 0, []
        while begin < total:
            end = min(total, begin + int(size) // unit * unit)
            span = begin, end
            pieces.append((span, (0, height)) if layer.images > 1 else ((0, 1), span))
            begin, size = end, max(size * growth, unit)
        return pieces

    def entries(self, part: Range) -> int:
        """Accumulators of a column tile."""
        taps = (part.rows[1] - part.rows[0]) * self.layer.kernel[1]
        blocks = part.blocks[1] - part.blocks[0]
        return blocks * taps * self.core.rows + self.has_bias(part)

    def batch(self, part: Range, first: int) -> range:
        """Column tiles from ``first`` on whose sums both accumulator banks hold."""
        most = min(_MOST_PER_BANK, self.core.accumulator_depth // self.entries(part))
        return range(first, min(first + (1 if self._narrow else 2 * most), self.tiles.count))

    def batches(self, part: Range) -> list[range]:
        """All column tiles, in order."""
        size = len(self.batch(part, 0))
        return [self.batch(part, first) for first in range(0, self.tiles.count, size)]

    def _out_size(self, part: Range) -> int:
        bias = self.bias_words if self.has_bias(part) else 0
        if self.dw is None:
            return bias
        return bias + self.out_rows(part) * sum(
            self.program.words(self.dw, channels) for channels in self.channels
        )

    @property
    def bias_words(self) -> int:
        """Words of the bias gradient, a row for each column tile."""
        return 0 if self.db is None else self.tiles.count * self.program.words(self.db)

    def out_rows(self, part: Range) -> int:
        """Rows (kh, kw, ci) of the weights in a range."""
        first, last = self.inputs(part)
        return (part.rows[1] - part.rows[0]) * self.layer.kernel[1] * (last - first)

    def inputs(self, part: Range) -> Interval:
        """(begin, end) of the input channels of a range."""
        rows = self.core.rows
        return part.blocks[0] * rows, min(part.blocks[1] * rows, self.layer.inputs)

    def x_need(
        self,
        images: Interval | None = None,
        rows: Interval | None = None,
        part: Range | None = None,
    ) -> Need:
        """X of output ``rows`` of ``images``, as far as a range reads it; by default all of it."""
        layer = self.layer
        if part is None:
            lines, channels, images = (0, layer.input_map[0]), None, (0, layer.images)
        else:
            assert images is not None and rows is not None
            lines = layer.lines(0, *rows, part.rows)
            begin, end = part.blocks
            channels = begin * self.core.rows, end * self.core.rows
        return self.program.need(layer.x, images, lines, (0, layer.input_map[1]), channels)

    def dy_channels(self, tiles: range) -> Interval:
        """(begin, end) of channels to load for column tiles: in whole words, or all of them where
        short runs would not be faster."""
        begin, end = self.tiles.range(tiles[0])[0], self.tiles.range(tiles[-1])[1]
        channels, everything = self.program.whole_words((begin, end)), (0, self.dy.pitch)
        words = [self.program.words(self.dy, part) for part in (channels, everything)]
        short = words[1] <= max(words[0], _RUN_WORDS)
        return everything if short and not self._narrow else channels

    def dy_need(
        self,
        images: Interval | None = None,
        rows: Interval | None = None,
        channels: Channels = None,
    ) -> Need:
        """dY there, of ``channels``; by default all of it."""
        height, width = self.layer.output_map
        if channels is None:
            images, rows = (0, self.layer.images), (0, height)
        assert images is not None and rows is not None
        return self.program.need(self.dy, images, rows, (0, width), channels)

    def has_bias(self, part: Range) -> bool:
        """Whether a range brings the bias gradient, one more accumulator per column tile."""
        return self.db is not None and part.blocks[0] == 0 and part.rows[0] == 0
