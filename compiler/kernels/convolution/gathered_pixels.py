"""Output pixels of a convolution that are no box of a map, and the input that they read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.codegen.convolution_walk import matmul_walk
from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor

from .conv_geometry import Convolution

__all__ = ["Gathered"]

#: Input lines and columns of a window, in order; None: all columns of the map.
_Window = tuple[int, range, range | None]


@dataclass(frozen=True)
class Gathered:
    """Output pixels [begin, end) in order of n, h, w, in items of ``width`` pixels: lines of the
    map, of any images, or single pixels.

    Every item has the input that it reads for itself in the buffer, with zeros where that lies
    above or below the map (of single pixels also beside it). So a MATMUL walks over the items as
    over images, and K tiles may begin and end anywhere.

    ``owner`` is part of the keys of the blocks: stores into the maps do not find these.
    """

    owner: object
    layer: Convolution
    begin: int
    end: int
    width: int

    @property
    def pixels(self) -> int:
        return self.end - self.begin

    @property
    def _lines(self) -> bool:
        """Whether items are whole lines; pixels of a map of one column are lines, too."""
        return self.width == self.layer.output_map[1]

    def _size(self, taps: tuple[Interval, Interval]) -> tuple[int, int]:
        """Lines and columns of an item's input."""
        (top, bottom), (left, right) = taps
        columns = self.layer.input_map[1] if self._lines else right - left
        return bottom - top, columns

    def x_words(self, program: CoreProgram, taps: tuple[Interval, Interval], blocks: int) -> int:
        """Words of the input of all items, ``blocks`` for each pixel."""
        height, width = self._size(taps)
        return self.pixels // self.width * height * width * blocks

    def _windows(self, taps: tuple[Interval, Interval]) -> Iterator[_Window]:
        """(image, lines, columns) of every item's input; some may lie outside."""
        layer = self.layer
        height, width = layer.output_map

        def along(axis: int, output: int) -> range:
            first, last = taps[axis]
            start = output * layer.stride[axis] - layer.padding[axis]
            step = layer.dilation[axis]
            return range(start + first * step, start + last * step, step)

        for pixel in range(self.begin, self.end, self.width):
            line, w = divmod(pixel, width)
            n, h = divmod(line, height)
            yield n, along(0, h), None if self._lines else along(1, w)

    def x_need(
        self, program: CoreProgram, taps: tuple[Interval, Interval], channels: Channels
    ) -> Need:
        """The input of all items for ``taps`` (rows and columns of the kernel, (begin, end))."""
        x = self.layer.x
        words = program.words(x, channels)
        total = self.x_words(program, taps, words)
        key = (self.owner, x.name, self.begin, self.end, self.width, taps, channels)
        return Need(key, total, lambda block: self._load(program, taps, channels, block))

    def _load(
        self,
        program: CoreProgram,
        taps: tuple[Interval, Interval],
        channels: Channels,
        block: Block,
    ) -> None:
        x, (height, width) = self.layer.x, self.layer.input_map
        words, size = program.words(x, channels), self._size(taps)
        loads, inside = [], 0
        for item, (n, lines, columns) in enumerate(self._windows(taps)):
            across = [(0, (0, width))] if columns is None else list(_runs(columns, width))
            # What is missing of a line lies between it and the next one.
            whole = [right - left for _, (left, right) in across] == [size[1]]
            for row, (top, bottom) in _runs(lines, height, single=not whole):
                for column, (left, right) in across:
                    place = ((item * size[0] + row) * size[1] + column) * words
                    loads.append((((n, n + 1), (top, bottom), (left, right)), place))
                    inside += (bottom - top) * (right - left)
        pixels = block.words // words
        if inside < pixels:
            everything = View.dense(block, (1, 1, pixels, words * program.core.rows), words)
            program.vector.fill(everything, 0.0)
        for box, place in loads:
            program.load(x, (*box, channels or (0, x.pitch)), block, place)

    def dy_need(self, program: CoreProgram, dy: Tensor, channels: Channels) -> Need:
        """dY of all pixels, one after the other."""
        words = self.pixels * program.words(dy, channels)
        images, height, width, size = dy.shape
        flat = replace(dy, shape=(1, 1, images * height * width, size))
        box = (0, 1), (0, 1), (self.begin, self.end), channels or (0, dy.pitch)
        key = (self.owner, dy.name, self.begin, self.end, channels)
        return Need(key, words, lambda block: program.load(flat, box, block))

    def walk(self, x: Block, words: int, taps: tuple[Interval, Interval]) -> Fields:
        """MATMUL's fields for the loops over pixels and taps; ``words`` for each input pixel."""
        layer = self.layer
        height, width = self._size(taps)
        outputs = (0, 1), (0, self.width)
        if self._lines:
            horizontal = layer.stride[1], layer.padding[1], layer.dilation[1]
            columns = taps[1]
        else:
            horizontal, columns = (1, 0, 1), (0, width)
        stride, padding, dilation = horizontal
        return matmul_walk(
            x.address,
            words,
            images=self.pixels // self.width,
            outputs=outputs,
            taps=((0, height), columns),
            lines=((0, height), (0, width)),
            stride=(1, stride),
            padding=(0, padding),
            dilation=(1, dilation),
        )


def _runs(lines: range, size: int, *, single: bool = False) -> Iterator[tuple[int, Interval]]:
    """(index of the first, [begin, end)) of those of ``lines`` that lie in [0, size), in runs of
    neighbours or each for itself."""
    inside = [(index, line) for index, line in enumerate(lines) if 0 <= line < size]
    if inside and lines.step == 1 and not single:
        yield inside[0][0], (inside[0][1], inside[-1][1] + 1)
        return
    for index, line in inside:
        yield index, (line, line + 1)
