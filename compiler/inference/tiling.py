"""Tiling of a fused product: output tiles, the input windows they need, blocks of K tiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.convolution_walk import input_range, window_range
from compiler.tensors.intervals import Interval, even_parts
from hw.config import CoreConfig

from .fused_product import FusedProduct

__all__ = [
    "Box",
    "Geometry",
    "Tile",
    "k_boxes",
    "split_tile",
    "tile_grid",
]


@dataclass(frozen=True)
class Tile:
    """Outputs [n0, n1) x rows [h0, h1) x columns [w0, w1), after pooling."""

    n0: int
    n1: int
    h0: int
    h1: int
    w0: int
    w1: int

    @property
    def images(self) -> int:
        return self.n1 - self.n0

    @property
    def pixels(self) -> int:
        return self.images * (self.h1 - self.h0) * (self.w1 - self.w0)


@dataclass(frozen=True)
class Box:
    """K tiles with block of channels [cb0, cb1), kernel rows [kh0, kh1), columns [kw0, kw1).

    ``first`` is the number of K tiles before it.
    """

    first: int
    cb0: int
    cb1: int
    kh0: int
    kh1: int
    kw0: int
    kw1: int

    @property
    def tiles(self) -> int:
        return (self.cb1 - self.cb0) * (self.kh1 - self.kh0) * (self.kw1 - self.kw0)


class Geometry:
    """Sizes of one product on one core."""

    def __init__(self, product: FusedProduct, core: CoreConfig) -> None:
        self.product = product
        self.core = core
        self.kernel_h, self.kernel_w = product.kernel
        self.blocks = -(-product.inputs // core.rows)
        self.k_tiles = self.blocks * self.kernel_h * self.kernel_w
        self.column_tiles = -(-product.outputs // core.columns)
        self.bias_words = core.bias_words if product.bias else 0
        self.whole = Box(0, 0, self.blocks, 0, self.kernel_h, 0, self.kernel_w)

    def conv_rows(self, tile: Tile) -> Interval:
        """[begin, end) of the convolution's output rows that the tile needs."""
        return self._pooled(0, tile.h0, tile.h1)

    def conv_columns(self, tile: Tile) -> Interval:
        return self._pooled(1, tile.w0, tile.w1)

    def _pooled(self, axis: int, begin: int, end: int) -> Interval:
        taps = 0, self.product.pool_kernel[axis]
        return window_range((begin, end), taps, stride=self.product.pool_stride[axis])

    def vectors(self, tile: Tile) -> int:
        """Output vectors of the convolution, one accumulator entry each."""
        (r0, r1), (c0, c1) = self.conv_rows(tile), self.conv_columns(tile)
        return tile.images * (r1 - r0) * (c1 - c0)

    def input_window(self, tile: Tile, box: Box) -> tuple[Interval, Interval]:
        """Input rows (begin, end) and columns (begin, end) that ``tile`` reads in ``box``.

        At least one row and one column, also where all that is read is padding.
        """
        rows, columns = (
            input_range(
                conv,
                taps,
                stride=self.product.stride[axis],
                padding=self.product.padding[axis],
                dilation=self.product.dilation[axis],
                size=self.product.input_map[axis],
            )
            for axis, conv, taps in (
                (0, self.conv_rows(tile), (box.kh0, box.kh1)),
                (1, self.conv_columns(tile), (box.kw0, box.kw1)),
            )
        )
        return rows, columns

    def input_window_words(self, tile: Tile, box: Box) -> int:
        (h0, h1), (w0, w1) = self.input_window(tile, box)
        return tile.images * (h1 - h0) * (w1 - w0) * (box.cb1 - box.cb0)


def k_boxes(geometry: Geometry, limits: Sequence[int]) -> list[Box]:
    """Cut the K tiles, in order, into boxes.

    ``limits`` yields the most tiles of the first, second, ... box; its last value repeats.
    """
    kernel = geometry.kernel_h * geometry.kernel_w
    boxes, first, position = [], 0, 0
    while first < geometry.k_tiles:
        limit = max(1, limits[min(position, len(limits) - 1)])
        cb, rest = divmod(first, kernel)
        kh, kw = divmod(rest, geometry.kernel_w)
        if rest == 0 and limit >= kernel:
            cbs = min(limit // kernel, geometry.blocks - cb)
            box = Box(first, cb, cb + cbs, 0, geometry.kernel_h, 0, geometry.kernel_w)
        elif kw == 0 and limit >= geometry.kernel_w:
            khs = min(limit // geometry.kernel_w, geometry.kernel_h - kh)
            box = Box(first, cb, cb + 1, kh, kh + khs, 0, geometry.kernel_w)
        else:
            kws = min(limit, geometry.kernel_w - kw)
            box = Box(first, cb, cb + 1, kh, kh + 1, kw, kw + kws)
        boxes.append(box)
        first += box.tiles
        position += 1
    return boxes


def _largest(limit: int, kernel: int, stride: int, count: int) -> int:
    """Pooled outputs whose windows span at most ``limit``; at most ``count``."""
    return min(count, max(0, (limit - kernel) // stride + 1))


def tile_grid(geometry: Geometry, images: Interval, vectors: int) -> list[Tile] | None:
    """Tiles of at most ``vectors`` accumulator entries that cover the output of ``images``.

    Whole images if they fit, else whole rows, else parts of a row. Returns ``None`` when not even
    one pooling window fits.
    """
    product = geometry.product
    height, width = product.output_map
    kernel_h, kernel_w = product.pool_kernel
    stride_h, stride_w = product.pool_stride
    span_h = (height - 1) * stride_h + kernel_h
    span_w = (width - 1) * stride_w + kernel_w
    per_image = max(1, vectors // (span_h * span_w))
    if span_h * span_w <= vectors:
        rows, columns = [(0, height)], [(0, width)]
    else:
        tall = _largest(vectors // span_w, kernel_h, stride_h, height)
        if tall:
            rows, columns = even_parts(0, height, tall), [(0, width)]
        else:
            wide = _largest(vectors // kernel_h, kernel_w, stride_w, width)
            if not wide:
                return None
            rows, columns = even_parts(0, height, 1), even_parts(0, width, wide)
    return [Tile(*n, *h, *w) for n in even_parts(*images, per_image) for h in rows for w in columns]


def split_tile(geometry: Geometry, tile: Tile, vectors: int, *, small_first: bool) -> list[Tile]:
    """Cut ``tile`` in two, one part having about ``vectors`` entries; [tile] if it cannot be."""
    for begin, end, rebuild in (
        ("n0", "n1", lambda a, b: Tile(a, b, *_fields(tile)[2:])),
        ("h0", "h1", lambda a, b: Tile(*_fields(tile)[:2], a, b, *_fields(tile)[4:])),
        ("w0", "w1", lambda a, b: Tile(*_fields(tile)[:4], a, b)),
    ):
        low, high = getattr(tile, begin), getattr(tile, end)
        if high - low < 2:
            continue
        unit = geometry.vectors(rebuild(low, low + 1))
        if unit > vectors and begin == "n0":
            # A single image is still too much: separate it and cut it further.
            edge = low + 1 if small_first else high - 1
            parts = [rebuild(low, edge), rebuild(edge, high)]
            index = 0 if small_first else 1
            inner = split_tile(geometry, parts[index], vectors, small_first=small_first)
            return [*parts[:index], *inner, *parts[index + 1 :]]
        size = min(high - low - 1, max(1, vectors // unit))
        edge = low + size if small_first else high - size
        return [rebuild(low, edge), rebuild(edge, high)]
    return [tile]


def _fields(tile: Tile) -> tuple[int, int, int, int, int, int]:
    return (tile.n0, tile.n1, tile.h0, tile.h1, tile.w0, tile.w1)
