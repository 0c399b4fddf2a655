"""Weights in DRAM and in a buffer: which part a LOAD brings, and where WEIGHTS finds a tile."""

from dataclasses import dataclass, replace
from functools import cached_property

from compiler.codegen.cost import Fields
from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Tensor, Transfer, transfers

from .tiling import Box, Geometry

__all__ = ["WeightSlice"]


@dataclass(frozen=True)
class WeightSlice:
    """The weights of column tiles [first, end) and a box of K tiles, in a buffer.

    In DRAM the weights are (KH, KW, CI, CO), the output channels padded to granules. The slice is
    the box of it with the output channels of its column tiles, in whole granules. In the buffer it
    has the same order, every (kh, kw, ci) being a *row* of :attr:`row_words` words.

    Parameters
    ----------
    tensor : Tensor
        the weights, or the part of them that ``geometry`` computes with
    geometry : Geometry
    unit : operands in a granule
    box : Box
    first, end : column tiles
    """

    tensor: Tensor
    geometry: Geometry
    unit: int
    box: Box
    first: int
    end: int

    @cached_property
    def channels(self) -> Interval:
        """(begin, end) of the output channels."""
        columns = self.geometry.core.columns
        begin = self.first * columns // self.unit * self.unit
        end = -(-min(self.end * columns, self.tensor.shape[3]) // self.unit) * self.unit
        return begin, min(end, self.tensor.pitch)

    @cached_property
    def row_words(self) -> int:
        begin, end = self.channels
        return -(-(end - begin) * self.tensor.dtype.itemsize // self.geometry.core.word_bytes)

    def _inputs(self, box: Box) -> Interval:
        """(begin, end) of the input channels of ``box``."""
        rows = self.geometry.core.rows
        return box.cb0 * rows, min(box.cb1 * rows, self.tensor.shape[2])

    @cached_property
    def words(self) -> int:
        begin, end = self._inputs(self.box)
        kernel = (self.box.kh1 - self.box.kh0) * (self.box.kw1 - self.box.kw0)
        return kernel * (end - begin) * self.row_words

    def _strides(self) -> tuple[int, int, int]:
        """Words from one kh, kw, ci to the next."""
        begin, end = self._inputs(self.box)
        kw = (end - begin) * self.row_words
        return (self.box.kw1 - self.box.kw0) * kw, kw, self.row_words

    def _offset(self, box: Box) -> int:
        """Words before the first one of ``box``."""
        kh, kw, ci = self._strides()
        rows = self.geometry.core.rows
        return (
            (box.kh0 - self.box.kh0) * kh
            + (box.kw0 - self.box.kw0) * kw
            + (box.cb0 - self.box.cb0) * rows * ci
        )

    def moves(self, box: Box) -> list[Transfer]:
        """Transfers of the part of the slice that ``box`` needs."""
        inputs = self._inputs(box)
        heights, widths = [(box.kh0, box.kh1)], [(box.kw0, box.kw1)]
        # Only what lies together in the buffer can be one transfer.
        whole = inputs == self._inputs(self.box)
        if not whole:
            widths = [(kw, kw + 1) for kw in range(box.kw0, box.kw1)]
        if not whole or widths != [(self.box.kw0, self.box.kw1)]:
            heights = [(kh, kh + 1) for kh in range(box.kh0, box.kh1)]
        result = []
        for height in heights:
            for width in widths:
                offset = self._offset(replace(box, kh0=height[0], kw0=width[0]))
                result += [
                    move._replace(word=move.word + offset)
                    for move in transfers(
                        self.tensor, height, width, inputs, self.channels,
                        self.geometry.core.word_bytes,
                    )
                ]  # fmt: skip
        return result

    def fields(
        self, column_tile: int, box: Box, *, address: int, bias_address: int | None
    ) -> Fields:
        """WEIGHTS of ``box`` for ``column_tile``; the slice lies at ``address``, the tile's biases
        (if not None) at ``bias_address``."""
        core = self.geometry.core
        channel = column_tile * core.columns
        word, skip = divmod(channel - self.channels[0], core.rows)
        valid = min(core.columns, self.tensor.shape[3] - channel)
        kh, kw, ci = self._strides()
        return {
            "address": address + self._offset(box) + word,
            "row_stride": ci,
            "kw_count": box.kw1 - box.kw0,
            "kh_count": box.kh1 - box.kh0,
            "cb_count": box.cb1 - box.cb0,
            "kw_stride": kw,
            "kh_stride": kh,
            "cb_stride": core.rows * ci,
            "row_limit": min(self.tensor.shape[2] - box.cb0 * core.rows, 0xFFFF),
            "transpose": 1,
            "block_count": -(-(skip + valid) // core.rows),
            "skip": skip,
            "bias": int(bias_address is not None),
            "bias_address": bias_address or 0,
        }
