"""Maps in a core's buffer, as operands of VECTOR commands."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler.tensors.tensor import IN_ORDER, Order, Shape, strides_of

from .scratchpad import Block

if TYPE_CHECKING:
    from .dependencies import Region

__all__ = ["Coefficient", "Operand", "View"]


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """The number in a coefficient register."""

    index: int


@dataclass(kw_only=True, slots=True)
class View:
    """Pixels of a map in a block; a vector is a map of one pixel. It does not change.

    Members
    -------
    block : where it lies
    first : word of the block with the first pixel
    shape : (N, H, W, C)
    strides : words from an image, a row, a column to the next
    words : of ``rows`` operands that a pixel has; as float32 each takes ``chunks`` words
    chunks : 1 for operands, ``chunks_per_wide`` of the core for float32
    """

    block: Block
    first: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    words: int
    chunks: int = 1

    @classmethod
    def dense(
        cls, block: Block, shape: Shape, words: int, *, chunks: int = 1, first: int = 0,
        order: Order = IN_ORDER,
    ) -> "View":  # fmt: skip
        """A map whose pixels lie one after the other in ``order``."""
        strides = strides_of(shape[:3], order, words * chunks)
        return cls(
            block=block, first=first, shape=shape, strides=strides, words=words,
            chunks=chunks,
        )  # fmt: skip

    @property
    def address(self) -> int:
        """Word of the first pixel."""
        return self.block.address + self.first

    @property
    def size(self) -> int:
        """Words of a dense map of this shape."""
        return self.shape[0] * self.shape[1] * self.shape[2] * self.words * self.chunks

    @property
    def region(self) -> "Region":
        """From the first to the last word that belongs to a pixel."""
        images, rows, columns, _ = self.shape
        by_image, by_row, by_column = self.strides
        words = by_image * (images - 1) + by_row * (rows - 1) + by_column * (columns - 1)
        return self.block.region(self.first, words + self.words * self.chunks)

    def __getitem__(self, index: slice | tuple[slice, ...]) -> "View":
        """Images, rows and columns, as slices with steps of at least 1; a slice alone is images."""
        index = (index,) if isinstance(index, slice) else index
        sizes, strides, first = list(self.shape[:3]), list(self.strides), self.first
        for axis, part in enumerate(index):
            lines = range(sizes[axis])[part]
            first += lines.start * strides[axis]
            sizes[axis], strides[axis] = len(lines), strides[axis] * lines.step
        (n, h, w), (by_n, by_h, by_w) = sizes, strides
        shape = n, h, w, self.shape[3]
        return View(block=self.block, first=first, shape=shape, strides=(by_n, by_h, by_w),
                    words=self.words, chunks=self.chunks)  # fmt: skip

    @property
    def line(self) -> "View":
        """The same of a dense map, with all pixels of an image in one line."""
        images, height, width, channels = self.shape
        shape = images, 1, height * width, channels
        return View.dense(self.block, shape, self.words, chunks=self.chunks, first=self.first)

    @property
    def lines(self) -> "View":
        """Those of the first image, as images of one line."""
        _, lines, columns, channels = self.shape
        _, by_line, by_column = self.strides
        shape = lines, 1, columns, channels
        return replace(self, shape=shape, strides=(by_line, by_line, by_column))

    def pixel(self, n: int, h: int, w: int) -> "View":
        """One pixel, as a vector."""
        return self[n : n + 1, h : h + 1, w : w + 1]

    def part(self, words: tuple[int, int], rows: int) -> "View":
        """Words [begin, end) of every pixel, each of ``rows`` operands, and their channels."""
        begin, end = words
        channels = max(0, min(self.shape[3], end * rows) - begin * rows)
        return replace(
            self,
            first=self.first + begin * self.chunks,
            words=end - begin,
            shape=(*self.shape[:3], channels),
        )

    def tail(self, words: int) -> "View":
        """What lies behind the first ``words`` words of every pixel; no channel may be there."""
        return replace(
            self,
            first=self.first + words * self.chunks,
            words=self.words - words,
            shape=(*self.shape[:3], 0),
        )


#: What VECTOR computes with.
Operand = View | Coefficient | float
