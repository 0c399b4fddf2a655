"""A layer's output as the predictor sees it: averaged over the batch, pooled to S × S cells."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, channel_parts, channel_steps
from compiler.kernels.tiling.state import held
from compiler.tensors.intervals import ChannelBox, Channels, Interval, even_parts, regular_parts
from compiler.tensors.tensor import Order, Tensor
from hw.config import CoreConfig

__all__ = ["Reorganizer", "pool_windows", "reorganize"]


def pool_windows(size: int, pooled: int) -> list[tuple[int, int]]:
    """Windows of adaptive pooling along an axis, (begin, end) each; they may overlap."""
    return [(i * size // pooled, -(-(i + 1) * size // pooled)) for i in range(pooled)]


def reorganize(program: CoreProgram, y: Tensor, cells: Tensor) -> None:
    """Commands that read the map ``y`` (N, H, W, O) and write float32 ``cells`` (1, S, S, O).

    Sums run over images, then over the columns of a window, then over its rows, so it makes no
    difference in how many pieces the map comes.

    Raises
    ------
    CompileError
        if a row of the map, one word per pixel, with its sums does not fit into the buffer.
    """
    Reorganizer(program, y, cells).write()


@dataclass(frozen=True)
class _Cut:
    """Words per pixel, rows of the map, images that are in the buffer together; ``banded``: rows
    are added to the cells band by band."""

    words: int
    lines: int
    images: int
    banded: bool


class Reorganizer:
    """The sums of one map.

    A product that writes the map adds its parts up while they are on chip (``hold``, ``observe`` as
    often as needed, ``finish``), all channels at a time; or the map is read again, in parts of any
    size (``write``).

    Parameters
    ----------
    program : CoreProgram
    y, cells : see :func:`reorganize`
    """

    def __init__(self, program: CoreProgram, y: Tensor, cells: Tensor) -> None:
        self.program, self.vector = program, program.vector
        self.y, self.cells = y, cells
        self.images, self.height, self.width, _ = y.shape
        self.pooled = cells.shape[1]
        self.chunks = program.core.chunks_per_wide
        self.windows = [pool_windows(size, self.pooled) for size in (self.height, self.width)]
        self._sums: Block | None = None  # while they are held

    @staticmethod
    def held_words(core: CoreConfig, y: Tensor) -> int:
        """Words that the sums of a map take in the memory of ``core``."""
        _, height, width, _ = y.shape
        return height * width * -(-y.pitch // core.rows) * core.chunks_per_wide

    @property
    def _held(self) -> Block:
        assert self._sums is not None, "hold() comes first"
        return self._sums

    def can_hold(self) -> bool:
        """Whether all sums fit into the memory beside what they become."""
        program, size = self.program, self.held_words(self.program.core, self.y)
        folded = size // self.width * self.pooled
        cells = self.pooled**2 * program.words(self.cells)
        return size + folded + cells <= program.scratch.words

    def hold(self) -> Need:
        """Room for all sums, as a need of jobs that come before ``finish``."""
        sums = self.program.scratch.hold(self.held_words(self.program.core, self.y))
        self._sums = sums
        return Need(object(), sums.words, place=sums)

    def observe(self, images: Interval, rows: Interval, block: Block, order: Order) -> None:
        """Add ``block``, which holds whole lines of some images, pixels in ``order``."""
        box = images, rows, (0, self.width), None
        total = self._view(self._held, box, (1, self.height, self.width))
        maps = self.program.view(block, replace(self.y, order=order), *box[:3])
        self._sum(total[:, slice(*rows)], maps, images[0])

    def let_go(self) -> None:
        """The end of ``hold``."""
        self.program.scratch.let_go(self._held)

    def finish(self) -> None:
        """Sums of all images into cells."""
        sums = self._held
        words = sums.words // (self.height * self.width)
        rows = Need(object(), self.height * self.pooled * words)
        box = (0, 1), (0, self.pooled), (0, self.pooled), None
        lines = (0, self.height)

        def fold(rows: Block, out: Block) -> None:
            shape = (1, self.height, self.width)
            self._fold_columns(box, lines, rows, self._view(sums, box, shape))
            self._finish(box, rows, out)

        self.program.run([Job((rows, self.program.result(self.cells, *box)), fold)])
        self.let_go()

    def write(self) -> None:
        program, cut = self.program, self._cut()
        wide = self.chunks * cut.words
        lines = cut.lines if cut.banded else self.height
        sizes = [lines * self.pooled * wide, cut.lines * self.width * wide]
        if cut.banded:
            sizes.append(self._cell_words(cut.words))
        maps = cut.images * cut.lines * self.width * self._word_chunks * cut.words
        if not cut.banded and 2 * (sum(sizes) + maps) <= program.scratch.words:
            program.run(self._jobs(cut, [Need(object(), words) for words in sizes]))
            return
        with held(program, *sizes) as needs:
            program.run(self._jobs(cut, needs))

    def _jobs(self, cut: "_Cut", needs: Sequence[Need]) -> list[Job]:
        """Jobs that have their sums, by lines and by columns of windows, and perhaps the cells, in
        blocks of ``needs``, which have the sizes of the largest part."""
        jobs, wide = [], self.chunks * cut.words
        for channels in channel_parts(self.program, [self.y, self.cells], cut.words):
            rows = needs[0]._replace(key=object())
            for band in even_parts(0, self.height, cut.lines):
                size = (band[1] - band[0]) * self.width * wide
                sums = needs[1]._replace(key=object(), words=size)
                groups = regular_parts(0, self.images, cut.images)
                for group in groups:
                    box = group, band, (0, self.width), channels
                    state = [rows, sums, *needs[2:]]
                    last = group == groups[-1]
                    run = partial(self._add, box, last)
                    like = group[1] - group[0], band, channels, group[0] == 0, last
                    jobs.append(
                        Job((*state, self.program.need(self.y, *box)), run, like=like,
                            at=(group[0],))
                    )  # fmt: skip
            box = (0, 1), (0, self.pooled), (0, self.pooled), channels
            out = needs[2] if cut.banded else self.program.result(self.cells, *box)
            jobs.append(Job((rows, out), partial(self._finish, box, folded=cut.banded)))
        return jobs

    def _cut(self) -> "_Cut":
        """As many words per pixel, rows of the map and images as fit; the sums over columns of all
        rows, or else of a band."""
        program, chunks = self.program, self._word_chunks
        for banded in (False, True):
            for words in channel_steps(program, self.y):
                wide = self.chunks * words
                for lines in range(self.height, 0, -1):
                    rows = (lines if banded else self.height) * self.pooled * wide
                    fixed = rows + self._cell_words(words)
                    pixels = lines * self.width
                    room = program.scratch.words - fixed - pixels * wide
                    most = min(room // 2, MOST_WORDS) // (pixels * chunks * words)
                    if most >= 1 and pixels * wide <= MOST_WORDS:
                        # Several pieces: the first images are added up while others are computed.
                        images = min(most, -(-self.images // PIECES))
                        return _Cut(words, lines, images, banded)
        raise CompileError(
            f"layer of {self.y.name}: a row of its map, one word per pixel, and its sums for the "
            f"predictor do not fit into the buffer ({program.scratch.words} words)"
        )

    def _cell_words(self, words: int) -> int:
        """Words of the cells where a pixel of the map has so many words of operands; the pitch of
        float32 tensors may be longer."""
        program = self.program
        longer = (
            program.words(self.cells) - self.chunks * program.words(self.y) // self._word_chunks
        )
        return self.pooled**2 * (self.chunks * words + longer)

    @property
    def _word_chunks(self) -> int:
        """Words of the map for one of operands: a last layer's map is float32 itself."""
        return self.chunks if self.y.kind == "float32" else 1

    def _view(self, block: Block, box: ChannelBox, shape: tuple[int, int, int]) -> View:
        """Float32 sums of the channels of ``box``."""
        begin, end = box[3] or (0, self.y.pitch)
        words = -(-(min(end, self.y.pitch) - begin) // self.program.core.rows)
        # A part of the channels may be one of the pitch alone.
        size = max(0, min(end, self.y.shape[3]) - begin)
        return View.dense(block, (*shape, size), words, chunks=self.chunks)

    def _add(self, box: ChannelBox, last: bool, *blocks: Block) -> None:
        """The images of a group into the sums of a band of rows, and those into windows."""
        rows, sums, *cells, maps = blocks
        (first, _), (h0, h1) = box[0], box[1]
        total = self._view(sums, box, (1, h1 - h0, self.width))
        self._sum(total, self.program.view(maps, self.y, *box), first)
        if last and cells:
            source = self._view(rows, box, (1, h1 - h0, self.pooled))
            self._fold(source, total, 2)
            self._fold_band(box, cells[0], source)
        elif last:
            self._fold_columns(box, (h0, h1), rows, total)
        if last:
            self.program.scratch.drop([sums])

    def _sum(self, total: View, maps: View, first: int) -> None:
        """Images from number ``first`` on, one after the other, but two in a command: what takes
        time are the sums, which are float32."""
        count = maps.shape[0]
        images = [maps[n : n + 1] for n in range(count)]
        if first == 0:
            if count == 1:
                self.vector.copy(total, images[0])
            else:
                self.vector.add(total, *images[:2])
            images = images[2:]
        for n in range(0, len(images) - 1, 2):
            self.vector.add_both(total, total, *images[n : n + 2])
        if len(images) % 2:
            self.vector.add(total, total, images[-1])

    def _fold_columns(self, box: ChannelBox, lines: Interval, rows: Block, total: View) -> None:
        target = self._view(rows, box, (1, self.height, self.pooled))[:, slice(*lines)]
        self._fold(target, total, 2)

    def _fold_band(self, box: ChannelBox, out: Block, source: View) -> None:
        """Rows of a band, which are added up by columns, to the windows that they lie in."""
        (begin, end), channels = box[1], box[3]
        target = self._cells(out, channels)
        for number, window in enumerate(self.windows[0]):
            o = target[:, number : number + 1]
            for line in range(max(begin, window[0]), min(end, window[1])):
                x = source[:, line - begin : line - begin + 1]
                if line == window[0]:
                    self.vector.copy(o, x)
                else:
                    self.vector.add(o, o, x)

    def _cells(self, out: Block, channels: Channels) -> View:
        whole = (0, self.pooled)
        return self.program.view(out, self.cells, (0, 1), whole, whole, channels)

    def _finish(self, box: ChannelBox, rows: Block, out: Block, *, folded: bool = False) -> None:
        """Sums over columns, unless they are ``folded``, into cells."""
        target = self._cells(out, box[3])
        if not folded:
            self._fold(target, self._view(rows, box, (1, self.height, self.pooled)), 1)
        heights, widths = ([b - a for a, b in windows] for windows in self.windows)
        if len(set(heights)) == len(set(widths)) == 1:
            self._scale(target, heights[0] * widths[0])
        else:
            for i, height in enumerate(heights):
                for j, width in enumerate(widths):
                    self._scale(target.pixel(0, i, j), height * width)
        channels = box[3] or (0, self.cells.pitch)
        self.program.store(self.cells, (*box[:3], channels), out)
        self.program.scratch.drop([rows, out])

    def _scale(self, view: View, pixels: int) -> None:
        self.vector.scale(view, view, 1.0 / (self.images * pixels))

    def _fold(self, target: View, source: View, axis: int) -> None:
        """Sums over the windows along an axis (1: rows, 2: columns), their lines in order."""
        windows = self.windows[axis - 1]
        starts, sizes = [a for a, _ in windows], {b - a for a, b in windows}
        steps = {b - a for a, b in pairwise(starts)}
        if len(sizes) == 1 and len(steps) <= 1 and steps != {0}:
            step = (steps or {1}).pop()
            parts = [(slice(None), slice(0, starts[-1] + 1, step), sizes.pop())]
        else:
            parts = [
                (slice(i, i + 1), slice(begin, begin + 1, 1), end - begin)
                for i, (begin, end) in enumerate(windows)
            ]
        for out, first, size in parts:
            o = target[_along(axis, out)]
            for place in range(size):
                lines = slice(first.start + place, first.stop + place, first.step)
                x = source[_along(axis, lines)]
                if place:
                    self.vector.add(o, o, x)
                else:
                    self.vector.copy(o, x)


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)
