"""Sizes of a convolution in training, and how its maps are cut into tiles."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from compiler.codegen.convolution_walk import input_range, matmul_walk, window_range
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.tensors.column_tiles import ColumnTiles
from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Tensor
from hw.config import CoreConfig

__all__ = ["Convolution", "Phase"]


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution between two maps in DRAM; all pairs are (vertical, horizontal).

    A linear layer is one whose kernel and stride are its input map.

    Members
    -------
    name : of the layer
    x : (N, H, W, CI) input
    y : (N, HO, WO, CO) output, float32 where it is the network's
    weights : (KH, KW, CI, CO) operand copy, in any order
    bias : (1, 1, column tiles, columns) float32, or None
    groups : weights between different groups are zero, and their words are skipped where a whole
        column tile has no other
    """

    name: str
    x: Tensor
    y: Tensor
    weights: Tensor
    bias: Tensor | None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def images(self) -> int:
        return self.x.shape[0]

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weights.shape[:2]

    @property
    def inputs(self) -> int:
        return self.x.shape[3]

    @property
    def outputs(self) -> int:
        return self.y.shape[3]

    @property
    def input_map(self) -> tuple[int, int]:
        return self.x.shape[1:3]

    @property
    def output_map(self) -> tuple[int, int]:
        return self.y.shape[1:3]

    def without_idle_pixels(self) -> "Convolution":
        """The same convolution of a map without the lines and columns that no output reads: where a
        kernel of one pixel has strides. It has a name of its own then, as its boxes are others."""
        pairs = zip(self.input_map, self.output_map, self.stride, strict=True)
        whole = all(size == count * step for size, count, step in pairs)
        if self.stride == (1, 1) or self.kernel != (1, 1) or any(self.padding) or not whole:
            return self
        x, (lines, columns) = self.x, self.stride
        shape = self.images, *self.output_map, self.inputs
        x = replace(x, name=f"{x.name}, every {lines} x {columns}", shape=shape, line_step=lines,
                    stride=columns * x.distance)  # fmt: skip
        return replace(self, x=x, stride=(1, 1))

    def output_tiles(self, core: CoreConfig) -> ColumnTiles:
        """:class:`ColumnTiles` of the output channels, forward and for the weight gradient; a row
        of ``bias`` has the biases of each."""
        return ColumnTiles.of(self.outputs, core, self.groups)

    def input_tiles(self, core: CoreConfig) -> ColumnTiles:
        """The same of the input channels, for the input gradient."""
        return ColumnTiles.of(self.inputs, core, self.groups)

    def input_blocks(self, begin: int, end: int, rows: int) -> Interval:
        """(first, last + 1) word of ``rows`` input channels with one of a group of outputs
        [begin, end)."""
        return _blocks(begin, end, self.outputs // self.groups, self.inputs // self.groups, rows)

    def output_blocks(self, begin: int, end: int, rows: int) -> Interval:
        """The same for output channels with a group of inputs [begin, end)."""
        return _blocks(begin, end, self.inputs // self.groups, self.outputs // self.groups, rows)

    def lines(self, axis: int, begin: int, end: int, taps: Interval | None = None) -> Interval:
        """[begin, end) of the input lines that outputs [begin, end) read with ``taps`` (first,
        last + 1); at least one line, also where all of them lie in the padding."""
        return input_range(
            (begin, end),
            taps or (0, self.kernel[axis]),
            stride=self.stride[axis],
            padding=self.padding[axis],
            dilation=self.dilation[axis],
            size=self.input_map[axis],
        )

    def walk(
        self,
        x: Block,
        pixel: int,
        images: Interval,
        rows: Interval,
        *,
        taps: Interval,
        input_lines: Interval,
        columns: Interval | None = None,
        block: int = 0,
    ) -> Fields:
        """MATMUL's fields for the loops over outputs and taps, forward or for the weight gradient.

        Parameters
        ----------
        x : block with ``input_lines`` (begin, end) of ``images``
        pixel : words of a pixel there, of which ``block`` is the first one read
        images, rows : of the outputs, (begin, end)
        taps, columns : rows and columns of the kernel, (begin, end); by default all columns
        """
        return matmul_walk(
            x.address + block,
            pixel,
            images=images[1] - images[0],
            outputs=(rows, (0, self.output_map[1])),
            taps=(taps, columns or (0, self.kernel[1])),
            lines=(input_lines, (0, self.input_map[1])),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    @cached_property
    def phases(self) -> tuple[list["Phase"], list["Phase"]]:
        """(vertical, horizontal) lists of :class:`Phase`."""
        vertical, horizontal = (
            [self._phase(axis, phase) for phase in range(min(self.stride[axis], size))]
            for axis, size in enumerate(self.input_map)
        )
        return vertical, horizontal

    def _phase(self, axis: int, phase: int) -> "Phase":
        stride, padding, dilation = (
            part[axis] for part in (self.stride, self.padding, self.dilation)
        )
        taps = [
            tap
            for tap in range(self.kernel[axis])
            if (phase + padding - tap * dilation) % stride == 0
        ]
        if not taps:
            return Phase(offset=phase)
        common = gcd(stride, dilation)
        return Phase(
            offset=phase,
            line=(phase + padding - taps[-1] * dilation) // stride,
            tap=taps[-1],
            taps=len(taps),
            tap_step=stride // common,
            line_step=dilation // common,
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Input lines offset, offset + stride, ... and the taps that bring them a gradient.

    Members
    -------
    offset : first line
    line : of dY that the highest tap brings to it; may lie outside
    tap, taps : the highest tap, and how many there are; 0: none
    tap_step, line_step : taps down, lines of dY up from one of them to the next
    """

    offset: int
    line: int = 0
    tap: int = 0
    taps: int = 0
    tap_step: int = 1
    line_step: int = 1

    def lines(self, begin: int, end: int) -> Interval:
        """First line of dY, and the one behind the last, for input lines number [begin, end)."""
        taps = 0, self.taps
        return window_range((begin, end), taps, padding=-self.line, dilation=self.line_step)


def _blocks(begin: int, end: int, size: int, other: int, rows: int) -> Interval:
    first, last = begin // size * other, ((end - 1) // size + 1) * other
    return first // rows, -(-last // rows)
