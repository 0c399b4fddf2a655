"""Parts of a weight gradient: which entries the accumulators hold together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.tensors.intervals import Channels, Interval, even_parts
from compiler.tensors.tensor import Tensor

from .conv_geometry import Convolution

__all__ = ["Output", "Range", "WeightGradientRanges"]


@dataclass(frozen=True)
class Range:
    """Blocks of input channels, rows and columns of the kernel, and column tiles of the output
    channels, (begin, end) each."""

    blocks: Interval
    rows: Interval
    columns: Interval
    tiles: Interval

    @property
    def taps(self) -> tuple[Interval, Interval]:
        """Rows and columns of the kernel."""
        return self.rows, self.columns

    @property
    def tap_count(self) -> int:
        (top, bottom), (left, right) = self.taps
        return (bottom - top) * (right - left)


@dataclass(frozen=True)
class Output:
    """Results that are stored together: of channels (begin, end), None: the biases, a row for each
    column tile. ``last`` is the last column tile among them."""

    channels: Channels
    last: int
    need: Need


class WeightGradientRanges:
    """Cuts the entries of a weight gradient, and knows how much room they take.

    Members
    -------
    tiles : ColumnTiles of the output channels
    """

    def __init__(
        self, program: CoreProgram, layer: Convolution, dw: Tensor | None, db: Tensor | None
    ) -> None:
        self.program, self.core, self.dw, self.db = program, program.core, dw, db
        self.layer = layer
        self.tiles = layer.output_tiles(self.core)
        self._blocks = -(-layer.inputs // self.core.rows)
        self._held: Block | None = None  # room for results

    def tile_groups(self, most: int) -> list[Interval]:
        """Column tiles, at most so many where results of a part of them are whole words."""
        if self.dw is None:
            return [(0, self.tiles.count)]
        return self.tiles.groups(most, self.dw.dtype.itemsize, self.core.word_bytes)

    def channels(self, part: Range) -> list[Interval]:
        """[(begin, end)] of a range's output channels that are stored together: those that fill
        whole words before its last column tile comes, and the rest; none without ``dw``."""
        if self.dw is None:
            return []
        begin, end = self.tiles.range(part.tiles[0])[0], self.tiles.range(part.tiles[1] - 1)[1]
        end = self.dw.pitch if end == self.tiles.channels else end
        edges = self.tiles.edges(part.tiles, self.dw.dtype.itemsize, self.core.word_bytes)[-1:]
        edges = [self.tiles.range(tile)[0] for tile in edges]
        return list(pairwise([begin, *edges, end]))

    def ranges_of(self, tiles: Interval, limit: int | None = None) -> list[Range]:
        """As much as the accumulators hold, and a quarter of the buffer the results; at most
        ``limit`` kernel rows of a word of input channels."""
        (kernel, width), rows = self.layer.kernel, self.core.rows
        everything = Range((0, 1), (0, 1), (0, 1), tiles)
        if self.dw is None:
            return [everything]
        depth = self._depth
        if depth < rows:
            raise CompileError(
                f"layer {self.layer.name}: the weight gradient of a tap of its kernel does not fit "
                f"into the accumulators ({self.core.accumulator_depth} vectors)"
            )
        parts = [(0, width)] if depth >= width * rows else even_parts(0, width, depth // rows)
        line = max(b - a for a, b in parts) * rows  # entries of a part of a kernel row and block
        most = min(depth, max(self._result_rows(tiles), line)) // line
        most = min(most, limit or most)
        if most >= kernel and len(parts) == 1:
            step = most // kernel
            return [Range((b, min(b + step, self._blocks)), (0, kernel), parts[0], tiles)
                    for b in range(0, self._blocks, step)]  # fmt: skip
        return [Range((b, b + 1), (kh, min(kh + most, kernel)), part, tiles)
                for b in range(self._blocks) for kh in range(0, kernel, most)
                for part in parts]  # fmt: skip

    @property
    def _depth(self) -> int:
        """Entries of a column tile that the accumulators hold."""
        return self.core.accumulator_depth - (self.db is not None)

    def _result_rows(self, tiles: Interval) -> int:
        """Rows of the results of column tiles that a quarter of the buffer holds."""
        assert self.dw is not None
        channels = self.channels(Range((0, 1), (0, 1), (0, 1), tiles))
        row = sum(self.program.words(self.dw, part) for part in channels)
        return self.program.scratch.words // 4 // row

    def has_taps(self, tiles: Interval) -> bool:
        """Whether ranges of these column tiles have all taps of a word of input channels, if the
        accumulators hold them."""
        if self.dw is None:
            return True
        kernel, width = self.layer.kernel
        line = width * self.core.rows
        return kernel * line > self._depth or kernel * line <= max(self._result_rows(tiles), line)

    def entries(self, part: Range) -> int:
        """Accumulators of a column tile."""
        blocks = part.blocks[1] - part.blocks[0]
        return blocks * part.tap_count * self.core.rows + self.has_bias(part)

    def outputs(self, part: Range) -> list[Output]:
        """All results of a range."""
        rows, first, result = self.out_rows(part), 0, []

        def room(words: int) -> Need:
            nonlocal first
            place, held = None, self._held
            if held is not None:
                place = Block(held.memory, held.address + first, words, fixed=True)
                first += words
            return Need(object(), words, place=place)

        for channels in self.channels(part):
            assert self.dw is not None
            last = -(-min(channels[1], self.tiles.channels) // self.tiles.width) - 1
            need = room(rows * self.program.words(self.dw, channels))
            result.append(Output(channels, last, need))
        if self.has_bias(part):
            result.append(Output(None, part.tiles[1] - 1, room(self.bias_words(part))))
        return result

    @contextmanager
    def held_outputs(self, ranges: Iterable[Range]) -> Iterator[None]:
        """A context in which the results of ``ranges`` are in turn the first words of the memory,
        so that what is left is in one piece."""
        scratch = self.program.scratch
        self._held = scratch.hold(max(map(self.out_size, ranges)))
        yield
        scratch.let_go(self._held)
        self._held = None

    def out_size(self, part: Range) -> int:
        bias = self.bias_words(part) if self.has_bias(part) else 0
        if self.dw is None:
            return bias
        return bias + self.out_rows(part) * sum(
            self.program.words(self.dw, channels) for channels in self.channels(part)
        )

    def bias_words(self, part: Range) -> int:
        """Words of the bias gradient of a range, a row for each column tile."""
        if self.db is None:
            return 0
        return (part.tiles[1] - part.tiles[0]) * self.program.words(self.db)

    def out_rows(self, part: Range) -> int:
        """Rows (kh, kw, ci) of the weights in a range."""
        first, last = self.inputs(part)
        return part.tap_count * (last - first)

    def inputs(self, part: Range) -> Interval:
        """(begin, end) of the input channels of a range."""
        rows = self.core.rows
        return part.blocks[0] * rows, min(part.blocks[1] * rows, self.layer.inputs)

    def has_bias(self, part: Range) -> bool:
        """Whether a range brings the bias gradient, one more accumulator per column tile."""
        first = part.blocks[0], part.rows[0], part.columns[0]
        return self.db is not None and not any(first)
