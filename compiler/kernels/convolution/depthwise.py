"""Depthwise convolution on the vector engine, forward and backward, from DRAM to DRAM.

A layer is a :class:`~compiler.kernels.convolution.conv_geometry.Convolution` whose weights are
(KH, KW, 1, C) and whose bias is (1, 1, 1, C) float32.
"""

from collections.abc import Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.vector_commands import VectorCommands
from compiler.codegen.view import View
from compiler.kernels.tiling.image_tiling import ImageSums, image_parts, state_job
from compiler.kernels.tiling.row_tiling import Part, Role, RowTile, run_row_tiles
from compiler.kernels.tiling.windows import Lines, Windows
from compiler.tensors.intervals import ChannelBox, Channels
from compiler.tensors.tensor import Shape, Tensor
from hw.isa.vector import Factor

from .conv_geometry import Convolution
from .depthwise_bands import DepthwiseBands

__all__ = ["depthwise", "depthwise_input_gradient", "depthwise_weight_gradient"]


def depthwise(program: CoreProgram, layer: Convolution) -> None:
    """Commands that write ``layer.y``, rounded to operands or as float32, as its kind says.

    Raises
    ------
    CompileError
        if a row of outputs, one word per pixel, with what its windows have does not fit into the
        buffer.
    """
    windows, wide = _windows(layer), layer.y.kind == "float32"

    def work(tile: RowTile, y: View, x: View, *views: View) -> None:
        total, whole = (y, views) if wide else (views[0], views[1:])
        weights = whole[0]
        start = whole[1] if layer.bias is not None else 0.0
        terms = [
            (outputs, x[:, *lines], _tap(weights, place))
            for place, outputs, lines in windows.places(tile.outputs, tile.lines)
        ]
        _accumulate(program.vector, y, total, start, terms)

    parts = [Part(layer.y, False, Role.WRITE), Part(layer.x, True)]
    parts += [] if wide else [Part(layer.y, False, Role.SUMS)]
    fixed = [layer.weights] if layer.bias is None else [layer.weights, layer.bias]
    parts += [Part(tensor, False, Role.WHOLE) for tensor in fixed]
    run_row_tiles(program, windows, parts, work)


def depthwise_input_gradient(
    program: CoreProgram, layer: Convolution, dy: Tensor, dx: Tensor
) -> None:
    """Commands that write ``dx`` (like ``layer.x``), phase by phase of the stride.

    Raises
    ------
    CompileError
        if a row of the map, one word per pixel, with the windows that have it does not fit into
        the buffer.
    """
    windows = _windows(layer)

    def work(tile: RowTile, out: View, gradient: View, total: View, weights: View) -> None:
        terms: dict[tuple[int, int], list[tuple[Lines, View, View]]] = {}
        for place, outputs, lines in reversed(windows.places(tile.outputs, tile.lines)):
            (row, a), (column, b) = (
                divmod(line.start, step) for line, step in zip(lines, windows.stride, strict=True)
            )
            height, width = (part.stop - part.start for part in outputs)
            there = slice(row, row + height), slice(column, column + width)
            term = there, gradient[:, *outputs], _tap(weights, place)
            terms.setdefault((a, b), []).append(term)
        step_h, step_w = windows.stride
        for a in range(min(step_h, out.shape[1])):
            for b in range(min(step_w, out.shape[2])):
                phase = slice(None), slice(a, None, step_h), slice(b, None, step_w)
                found = terms.get((a, b), [])
                _accumulate(program.vector, out[phase], total[phase], 0.0, found)

    parts = [Part(dx, True, Role.WRITE), Part(dy, False), Part(dx, True, Role.SUMS)]
    parts.append(Part(layer.weights, False, Role.WHOLE))
    run_row_tiles(program, windows, parts, work, cut_map=True)


def depthwise_weight_gradient(
    program: CoreProgram,
    layer: Convolution,
    dy: Tensor,
    dw: Tensor | None,
    db: Tensor | None = None,
) -> None:
    """Commands that write float32 ``dw`` (like the weights) and ``db`` (like the bias), or the one
    of them that is not None.

    Raises
    ------
    CompileError
        if a row of outputs, one word per pixel, with what its windows have and the sums of all
        taps does not fit into the buffer.
    """
    _WeightGradient(program, layer, dy, dw, db).write()


class _WeightGradient:
    def __init__(
        self,
        program: CoreProgram,
        layer: Convolution,
        dy: Tensor,
        dw: Tensor | None,
        db: Tensor | None,
    ) -> None:
        self.program, self.layer, self.dy, self.dw, self.db = program, layer, dy, dw, db
        self.windows, self.images = _windows(layer), layer.images
        self.taps = 0 if dw is None else self.windows.count
        self.rows = self.taps + (db is not None)
        #: A gradient; both have its pitch.
        like = db if dw is None else dw
        assert like is not None
        self.like = like
        self.maps = (dy,) if dw is None else (layer.x, dy)
        #: Results of images, and their sum.
        self.results = ImageSums.rows(self.images, turns=True)
        self.blocks = self.results + (self.images > 1)

    def write(self) -> None:
        program, layer = self.program, self.layer
        pixels = sum(t.shape[1] * t.shape[2] for t in self.maps)
        more = program.words(self.like) - program.words(self.dy) * program.core.chunks_per_wide

        def fixed(words: int) -> int:
            return self.blocks * self.rows * (words * program.core.chunks_per_wide + more)

        # An image is added up while the next one is loaded; more of them need not be there.
        cut = image_parts(
            program, min(self.images, 2), [self.dy, self.like],
            size=lambda words: pixels * words, fixed=fixed,
        )  # fmt: skip
        if cut is None:
            bands = DepthwiseBands(program, layer.name, self.windows, self.maps, self.dw, self.db)
            bands.write()
            return
        jobs = []
        for part in cut[0]:
            state = Need(object(), self.blocks * self.rows * program.words(self.like, part))
            for n in range(self.images):
                maps = [program.need(t, *self._box(t, n, part)) for t in self.maps]
                run = partial(self._image, part, n)
                begin, end = part or (0, self.like.pitch)
                like = (n == 0, n == self.images - 1, ImageSums.phase((n, n + 1), turns=True),
                        end - begin, min(end, self.like.shape[3]) - begin)  # fmt: skip
                jobs.append(state_job(state, maps, (), run, first=n == 0, like=like, at=(n, begin)))
        program.run(jobs)

    def _box(self, tensor: Tensor, n: int, channels: Channels) -> ChannelBox:
        return (n, n + 1), (0, tensor.shape[1]), (0, tensor.shape[2]), channels

    def _image(self, channels: Channels, n: int, state: Block, *blocks: Block) -> None:
        program, vector = self.program, self.program.vector
        *x, dy = (
            program.view(block, tensor, *self._box(tensor, n, channels))
            for block, tensor in zip(blocks, self.maps, strict=True)
        )
        chunks = program.core.chunks_per_wide
        words = program.words(self.like, channels) // chunks
        # (images and their sum, taps and bias, 1, channels)
        shape = (self.blocks, self.rows, 1, dy.shape[3])
        results = View.dense(state, shape, words, chunks=chunks)
        lanes = self.rows * words * program.core.rows
        # All lanes of all taps are added up in one command.
        flat = View.dense(state, (self.blocks, 1, 1, lanes), self.rows * words, chunks=chunks)
        sums = ImageSums(vector, flat[: self.results], self.images, turns=True)
        inside = {place: parts for place, *parts in self.windows.places()} if x else {}
        if n == 0:
            for place in set(range(self.taps)) - set(inside):
                vector.fill(results[: self.results, place : place + 1], 0.0)
        row = sums.row(n)
        for place, (outputs, lines) in inside.items():
            vector.sum(
                results.pixel(row, place, 0), x[0][:, *lines], y=dy[:, *outputs], factor=Factor.Y
            )
        if self.db is not None:
            vector.sum(results.pixel(row, self.taps, 0), dy)
        sums.done(n)
        if n == self.images - 1:
            if self.images > 1:
                sums.total(flat[self.results :])
            self._store(channels, state, words * chunks)

    def _store(self, channels: Channels, state: Block, row: int) -> None:
        program = self.program
        first = (self.blocks - 1) * self.rows * row
        kh, kw = self.windows.kernel
        if self.dw is not None:
            box = ((0, kh), (0, kw), (0, 1), channels or (0, self.dw.pitch))
            program.store(self.dw, box, state, first)
        if self.db is not None:
            box = ((0, 1), (0, 1), (0, 1), channels or (0, self.db.pitch))
            program.store(self.db, box, state, first + self.taps * row)
        program.scratch.drop([state])


def _windows(layer: Convolution) -> Windows:
    return Windows(
        size=layer.input_map, outputs=layer.output_map, kernel=layer.kernel, stride=layer.stride,
        padding=layer.padding, dilation=layer.dilation,
    )  # fmt: skip


def _tap(weights: View, place: int) -> View:
    """Vector of a place of the kernel."""
    return weights.pixel(*divmod(place, weights.shape[1]), 0)


def _accumulate(
    vector: VectorCommands,
    y: View,
    total: View,
    start: View | float,
    terms: Sequence[tuple[Lines, View, View]],
) -> None:
    """``start`` and the products of all terms, added up in float32, one term after the other.

    The first product meets ``start`` without a pass that stores it, and the last sum goes to ``y``
    without one that rounds it; only what these two leave out takes commands of its own.

    Parameters
    ----------
    y : map of results, as operands, or ``total`` itself
    total : float32 map of the same shape, for what is in between
    start : vector or number
    terms : [(lines of y, map, vector)]; lines are two slices of step 1
    """
    if not terms:
        vector.fill(y, start)
    for number, (lines, x, factor) in enumerate(terms):
        first, last = number == 0, number == len(terms) - 1
        before, after = start if first else total[:, *lines], y if last else total
        vector.scale_add(after[:, *lines], x, factor, before)
        if first or (last and y is not total):
            for rest in _outside(y.shape, lines):
                vector.copy(after[:, *rest], start if first else total[:, *rest])


def _outside(shape: Shape, lines: Lines) -> list[Lines]:
    """Rectangles (rows, columns) of a map (N, H, W, C) that ``lines`` leave out."""
    (rows, columns), (height, width) = lines, shape[1:3]
    parts = (
        (slice(0, rows.start), slice(0, width)),
        (slice(rows.stop, height), slice(0, width)),
        (rows, slice(0, columns.start)),
        (rows, slice(columns.stop, width)),
    )
    return [part for part in parts if all(p.start < p.stop for p in part)]
