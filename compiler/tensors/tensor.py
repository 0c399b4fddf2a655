"""Where things lie: tensors in DRAM, regions in the on-chip memories."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from hw.config import BUFFER_ADDRESS_WIDTH
from hw.formats import FLOAT32, format_by_name

from .encoding import codes_of, storage
from .intervals import Interval, PixelBox

__all__ = [
    "IN_ORDER", "PREDICTOR_MEMORY", "Order", "Shape", "Tensor", "Transfer", "strides_of",
    "transfers",
]  # fmt: skip

#: (N, H, W, C), of weights (KH, KW, CI, CO).
Shape = tuple[int, int, int, int]
#: Of the axes N, H, W.
Order = tuple[int, int, int]
#: Images, in them rows, in these columns.
IN_ORDER: Order = (0, 1, 2)

#: Address bit that selects the predictor memory.
PREDICTOR_MEMORY = 1 << (BUFFER_ADDRESS_WIDTH - 1)


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor in DRAM, NHWC.

    Members
    -------
    name : unique in its program
    offset, size : bytes, from the start of the memory window
    shape : (N, H, W, C)
    pitch : channels stored for each pixel, the ones behind C being zero
    kind : name of the operand format, "float32" or "int32"
    stage : index of the stage that owns it, or None
    stride : channels from the first of a pixel to the first of the next where the tensor is some
        channels or columns of another one, whose ``size`` it has then; otherwise None: the pitch
    order : axes N, H, W (0, 1, 2) as pixels lie in DRAM, and in the buffer, the outermost first
    line_step : rows in DRAM from one to the next where the tensor is some rows of another one
    """

    name: str
    offset: int
    size: int
    shape: Shape
    pitch: int
    kind: str
    stage: int | None
    stride: int | None = None
    order: Order = IN_ORDER
    line_step: int = 1

    @classmethod
    def dense(
        cls, name: str, shape: Shape, *, kind: str, pitch: int, offset: int = 0,
        order: Order = IN_ORDER,
    ) -> Self:  # fmt: skip
        """A tensor (N, H, W, C) that belongs to no stage, of the size that its pitch makes."""
        tensor = cls(name=name, offset=offset, size=0, shape=shape, pitch=pitch, kind=kind,
                     stage=None, order=order)  # fmt: skip
        return replace(tensor, size=prod(shape[:3]) * pitch * tensor.dtype.itemsize)

    @property
    def distance(self) -> int:
        """Channels from a pixel to the next in DRAM."""
        return self.stride or self.pitch

    @cached_property
    def strides(self) -> Order:
        """Bytes from an image, a row, a column to the next in DRAM."""
        count, height, width, _ = self.shape
        sizes, pixel = (count, height * self.line_step, width), self.distance * self.dtype.itemsize
        images, rows, columns = strides_of(sizes, self.order, pixel)
        return images, rows * self.line_step, columns

    @property
    def extent(self) -> int:
        """Bytes from the first to the last of its own channels: some channels of another tensor end
        before the last pixel of that one does."""
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=False))
        return last + self.pitch * self.dtype.itemsize

    @property
    def pixels(self) -> PixelBox:
        """The box of all of them."""
        images, height, width, _ = self.shape
        return (0, images), (0, height), (0, width)

    @cached_property
    def dtype(self) -> np.dtype:
        """NumPy type of one element's code."""
        if self.kind in ("float32", "int32"):
            return np.dtype("<u4")
        return storage(format_by_name(self.kind).width)

    def pack(self, values: ArrayLike) -> bytes:
        """Bytes of an array of shape ``shape``: real values (converted), or codes (unsigned or
        of the operand's own integer type) as they are. Not for some channels of another tensor."""
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(f"{self.name} has shape {self.shape}, not {values.shape}")
        if values.dtype.kind == "f":
            if self.kind in ("float32", "int32"):
                values = values.astype(np.float32 if self.kind == "float32" else np.int32)
                values = values.view(np.uint32)
            else:
                values = codes_of(format_by_name(self.kind), values)
        if values.dtype.itemsize != self.dtype.itemsize:
            raise ValueError(f"{self.name} takes {self.dtype} codes, not {values.dtype}")
        full = np.zeros((*self.shape[:3], self.pitch), self.dtype)
        full[..., : self.shape[3]] = values.view(self.dtype)
        return full.transpose(*self.order, 3).tobytes()

    def unpack(self, memory: bytes | bytearray | memoryview) -> np.ndarray:
        """Codes (unsigned, shape ``shape``) from the bytes of the whole memory window."""
        item = self.dtype.itemsize
        data = np.frombuffer(memory, self.dtype, self.extent // item, self.offset)
        strides = *self.strides, item
        return np.lib.stride_tricks.as_strided(data, self.shape, strides).copy()

    def values(self, codes: ArrayLike) -> np.ndarray:
        """Real values (float64) of ``codes``."""
        codes = np.asarray(codes)
        if self.kind == "int32":
            return codes.astype(np.uint32).view(np.int32).astype(np.float64)
        fmt = FLOAT32 if self.kind == "float32" else format_by_name(self.kind)
        codes = codes.astype(np.int64)
        if not fmt.is_float:
            sign = codes >> (fmt.width - 1)
            return np.asarray(codes - (sign << fmt.width), np.float64)
        exponent = (codes >> fmt.mantissa_bits) & fmt.exponent_max
        mantissa = codes & ((1 << fmt.mantissa_bits) - 1)
        value = np.ldexp(
            (mantissa + (1 << fmt.mantissa_bits)).astype(np.float64),
            exponent - fmt.bias - fmt.mantissa_bits,
        )
        value = np.where(exponent == 0, 0.0, value)
        special = np.where(mantissa == 0, np.inf, np.nan)
        value = np.where(exponent == fmt.exponent_max, special, value)
        return np.where(codes >> (fmt.width - 1), -value, value)


def strides_of(sizes: Sequence[int], order: Order, step: int) -> Order:
    """What lies from one of an axis N, H, W to the next in a dense box of so many, whose pixels lie
    in ``order``, ``step`` each."""
    strides = [0, 0, 0]
    for axis in reversed(order):
        strides[axis], step = step, step * sizes[axis]
    images, rows, columns = strides
    return images, rows, columns


class Transfer(NamedTuple):
    """Fields of one LOAD or STORE but for the buffer address; ``word`` is the first word's
    distance from the region's start."""

    word: int
    words: int
    dram_address: int
    run_bytes: int
    run_count: int
    run_stride: int
    row_bytes: int


def transfers(
    tensor: Tensor,
    images: Interval,
    rows: Interval,
    columns: Interval,
    channels: Interval,
    word_bytes: int,
    order: Order | None = None,
) -> list[Transfer]:
    """LOADs or STOREs that move a box of ``tensor``.

    ``images``, ``rows``, ``columns`` and ``channels`` are (begin, end); ``channels`` are clipped to
    the pitch. In the buffer the box is dense: pixels in ``order``, that of the tensor if it is not
    given, each in whole words.
    """
    item, strides = tensor.dtype.itemsize, tensor.strides
    begin, end = channels[0], min(channels[1], tensor.pitch)
    start = tensor.offset + begin * item + images[0] * strides[0]
    start += rows[0] * strides[1] + columns[0] * strides[2]
    sizes = images[1] - images[0], rows[1] - rows[0], columns[1] - columns[0]
    moves = _moves(sizes, strides, order or tensor.order, (end - begin) * item, word_bytes)
    return [Transfer(*move[:2], start + move.dram_address, *move[3:]) for move in moves]


@lru_cache(maxsize=1 << 16)
def _moves(
    sizes: Order, strides: Order, order: Order, row_bytes: int, word_bytes: int
) -> tuple[Transfer, ...]:
    """The same for a box that begins with DRAM's first byte; boxes of one size are many."""
    row_words = -(-row_bytes // word_bytes)
    # Loops from the inside out as (count, bytes); the run takes in the inner ones that are dense.
    loops = [(sizes[axis], strides[axis]) for axis in reversed(order)]
    run = row_bytes
    while loops and (loops[0][1] == run or loops[0][0] == 1):
        run *= loops.pop(0)[0]
    merged: list[tuple[int, int]] = []
    for count, stride in loops:
        if count == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = (merged[-1][0] * count, merged[-1][1])
        else:
            merged.append((count, stride))
    merged = merged or [(1, 0)]
    count, stride = merged[0]
    run_words = run // row_bytes * row_words
    bases = [0]
    for outer, step in merged[1:]:
        bases = [index * step + base for index in range(outer) for base in bases]
    result, word = [], 0
    for base in bases:
        for first in range(0, count, 0xFFFF):
            part = min(count - first, 0xFFFF)
            result.append(
                Transfer(
                    word=word,
                    words=part * run_words,
                    dram_address=base + first * stride,
                    run_bytes=run,
                    run_count=part,
                    run_stride=stride,
                    row_bytes=row_bytes,
                )
            )
            word += part * run_words
    return tuple(result)
