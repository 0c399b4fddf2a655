"""Weight and bias gradient of a depthwise convolution of which not even a word of all pixels of an
image fits into the buffer."""

from collections.abc import Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.image_tiling import state_job
from compiler.kernels.tiling.partial_sums import MapSums
from compiler.kernels.tiling.splitting import MOST_WORDS, channel_parts, channel_steps
from compiler.kernels.tiling.windows import Windows
from compiler.tensors.intervals import Channels, Interval, even_parts
from compiler.tensors.tensor import Tensor

__all__ = ["DepthwiseBands"]

#: Images that are added up beside each other, at most: a command handles eight pixels of each.
_MOST_IMAGES = 8


class DepthwiseBands:
    """Rows of outputs, one band after the other, for some images and part of the channels.

    Parameters
    ----------
    program : CoreProgram
    name : of the layer
    windows : of the convolution
    x, dy : maps, ``x`` only with ``dw``
    dw, db : float32 gradients, of which one may be None
    """

    def __init__(
        self,
        program: CoreProgram,
        name: str,
        windows: Windows,
        maps: Sequence[Tensor],
        dw: Tensor | None,
        db: Tensor | None,
    ) -> None:
        self.program, self.name, self.windows = program, name, windows
        *self.x, self.dy = maps
        self.dw, self.db = dw, db
        like = db if dw is None else dw
        assert like is not None
        self.like = like
        self.images, self.chunks = self.dy.shape[0], program.core.chunks_per_wide
        #: Taps that lie inside the map for some output, and these outputs; None: the bias.
        self.places: dict[int | None, Interval] = {}
        if dw is not None:
            for place, (rows, _), _ in windows.places():
                self.places[place] = rows.start, rows.stop
        if db is not None:
            self.places[None] = 0, windows.outputs[0]

    def write(self) -> None:
        parts, groups, bands = self._cut()
        size = max(end - begin for begin, end in groups)
        for channels in parts:
            state = Need(object(), self._state_words(channels, size))
            jobs: list[Job] = []
            for images in groups:
                for rows in bands:
                    maps = [self._need(tensor, images, rows, channels) for tensor in self._maps]
                    room = [Need(object(), self._product_words(images, rows, channels))]
                    run = partial(self._band, channels, images, rows, size)
                    more = room if self.x else []
                    jobs.append(state_job(state, maps, more, run, first=not jobs))
            results = Need(object(), self._result_rows * self.program.words(self.like, channels))
            last = partial(self._results, channels, size)
            self.program.run([*jobs, Job((state, results), last)])

    @property
    def _maps(self) -> list[Tensor]:
        return [*self.x, self.dy]

    @property
    def _result_rows(self) -> int:
        """Vectors of results: taps and bias."""
        return (self.windows.count if self.dw is not None else 0) + (self.db is not None)

    def _words(self, channels: Channels) -> int:
        return self.program.words(self.dy, channels)

    def _state_words(self, channels: Channels, group: int) -> int:
        rows = len(self.places) * MapSums.rows(self.images, group)
        return rows * self._words(channels) * self.chunks

    def _product_words(self, images: Interval, rows: Interval, channels: Channels) -> int:
        pixels = (images[1] - images[0]) * (rows[1] - rows[0]) * self.dy.shape[2]
        return pixels * self._words(channels) * self.chunks

    def _lines(self, tensor: Tensor, rows: Interval) -> Interval:
        return rows if tensor is self.dy else self.windows.lines(*rows)

    def _need(self, tensor: Tensor, images: Interval, rows: Interval, channels: Channels) -> Need:
        columns = 0, tensor.shape[2]
        return self.program.need(tensor, images, self._lines(tensor, rows), columns, channels)

    def _cut(self) -> tuple[list[Channels], list[Interval], list[Interval]]:
        """Channels, images, rows of outputs."""
        program, height = self.program, self.dy.shape[1]
        groups = sorted(
            {min(self.images, 1 << i) for i in range(_MOST_IMAGES.bit_length())}, reverse=True
        )
        for copies in (2, 1):
            for step in channel_steps(program, self.dy):
                parts = channel_parts(program, [self.dy, self.like], step)
                results = self._result_rows * max(program.words(self.like, part) for part in parts)
                for group in groups:
                    room = program.scratch.words - results - self._state_words(parts[0], group)
                    for lines in range(height, 0, -1):
                        bands = even_parts(0, height, lines)
                        if self._largest(group, bands, parts[0]) <= min(room // copies, MOST_WORDS):
                            return parts, even_parts(0, self.images, group), bands
        raise CompileError(
            f"layer {self.name}: what a row of outputs of one word per pixel needs for its weight "
            f"gradient does not fit into the buffer ({program.scratch.words} words)"
        )

    def _largest(self, group: int, bands: Sequence[Interval], channels: Channels) -> int:
        images = 0, group
        return max(
            sum(self._need(tensor, images, rows, channels).words for tensor in self._maps)
            + (self._product_words(images, rows, channels) if self.x else 0)
            for rows in bands
        )

    def _size(self, channels: Channels) -> int:
        """Channels of a part that exist."""
        begin, end = channels or (0, self.dy.pitch)
        return max(0, min(end, self.dy.shape[3]) - begin)

    def _sums(self, state: Block, channels: Channels, group: int) -> dict[int | None, MapSums]:
        """Sums of every tap, and of the bias."""
        rows, words = MapSums.rows(self.images, group), self._words(channels)
        found = {}
        for number, place in enumerate(self.places):
            view = View.dense(
                state, (rows, 1, 1, self._size(channels)), words, chunks=self.chunks,
                first=number * rows * words * self.chunks,
            )  # fmt: skip
            found[place] = MapSums(self.program, view, self.images, group)
        return found

    def _band(
        self, channels: Channels, images: Interval, rows: Interval, group: int, state: Block,
        *blocks: Block,
    ) -> None:  # fmt: skip
        program, sums = self.program, self._sums(state, channels, group)
        views = [
            program.view(block, t, images, self._lines(t, rows), (0, t.shape[2]), channels)
            for block, t in zip(blocks, self._maps, strict=False)
        ]
        dy = views[-1]
        if rows[0] == 0:
            for part in sums.values():
                part.begin(images)
        if self.x:
            lines = self.windows.lines(*rows)
            for place, outputs, pixels in self.windows.places(rows, lines):
                part = dy[:, *outputs]
                products = View.dense(blocks[-1], part.shape, part.words, chunks=self.chunks)
                program.vector.scale(products, views[0][:, *pixels], part)
                first = max(rows[0], self.places[place][0]) - self.places[place][0]
                sums[place].add(products.line, first * part.shape[2])
            program.scratch.drop([blocks[-1]])
        if self.db is not None:
            sums[None].add(dy.line, rows[0] * dy.shape[2])
        if rows[1] == self.dy.shape[1]:
            for part in sums.values():
                part.finish(images)

    def _results(self, channels: Channels, group: int, state: Block, results: Block) -> None:
        program, sums = self.program, self._sums(state, channels, group)
        row = program.words(self.like, channels)
        shape = (self._result_rows, 1, 1, self._size(channels))
        rows = View.dense(results, shape, row // self.chunks, chunks=self.chunks)
        places = [*range(self.windows.count if self.dw is not None else 0)]
        for number, place in enumerate([*places, *([None] if self.db is not None else [])]):
            o = rows.pixel(number, 0, 0)
            if place not in sums:
                program.vector.fill(o, 0.0)
                continue
            total = sums[place].total(o)
            if total is not o:
                program.vector.copy(o, total)
        if self.dw is not None:
            kh, kw = self.windows.kernel
            box = ((0, kh), (0, kw), (0, 1), channels or (0, self.dw.pitch))
            program.store(self.dw, box, results)
        if self.db is not None:
            box = ((0, 1), (0, 1), (0, 1), channels or (0, self.db.pitch))
            program.store(self.db, box, results, len(places) * row)
        program.scratch.drop([state, results])
