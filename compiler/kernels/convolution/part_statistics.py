"""Statistics of the parts of a map, which batch normalisation needs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.cost import REDUCTION_CYCLES, VECTOR_CYCLES
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.image_tiling import state_job
from compiler.kernels.tiling.late_work import Late
from compiler.kernels.tiling.partial_sums import MapSums
from compiler.kernels.tiling.pixel_bands import PixelBands, flat, pixel_bands
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, channel_parts, channel_steps
from compiler.tensors.intervals import Channels, Interval, even_parts, regular_parts
from compiler.tensors.tensor import IN_ORDER, Order, Tensor
from hw.isa.vector import Factor, Term

__all__ = ["SQUARES", "PartStatistics", "part_lines", "statistics_shape"]

#: Fields of a command that makes squares of deviations from ``y``.
SQUARES = {"term": Term.SUBTRACT, "factor": Factor.U}
#: Pixels of a part at most, if a line has no more.
_PART_PIXELS = 256
#: Words of a piece at least: every command takes some cycles besides.
_LEAST_WORDS = 2
#: Each pixel beside the same ones of other images; commands look at all images at once, in so many
#: pieces.
_HWNC: Order = (1, 2, 0)
_PIECES = 8
#: Channels of a VECTOR at most.
_MOST_CHANNELS = 0xFFFF


def part_lines(height: int, width: int) -> int:
    """Lines of a part of an image: the most that divide its height and have 256 pixels or fewer, or
    one."""
    most = max(1, _PART_PIXELS // width)
    return next(lines for lines in range(min(most, height), 0, -1) if height % lines == 0)


def statistics_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Shape of the statistics of a map (N, H, W, C): means and squares, images, parts, channels."""
    images, height, width, channels = shape
    return 2, images, height // part_lines(height, width), channels


class PartStatistics:
    """Of each part of a map's images the mean of its pixels and the sum of the squares of
    deviations from it, in every channel (docs/training.md, Batch normalisation).

    A product that writes the map has its blocks, where these are whole parts, looked at while it
    goes on (:meth:`late`); else the map is read for it (:meth:`write`). Parts are numbered from
    image to image.

    Parameters
    ----------
    program : CoreProgram
    x : the map (N, H, W, C)
    statistics : float32 of :func:`statistics_shape`, which is written
    """

    def __init__(self, program: CoreProgram, x: Tensor, statistics: Tensor) -> None:
        self.program, self.vector = program, program.vector
        self.lines = part_lines(*x.shape[1:3])
        self.images, height, self.width, channels = x.shape
        #: Of an image.
        self.parts = height // self.lines
        self.count = self.images * self.parts
        #: The map with parts in place of images, and their statistics.
        self.x = replace(x, shape=(self.count, self.lines, self.width, channels))
        self.statistics = replace(statistics, shape=(2, self.count, 1, channels))
        self.pixels = self.lines * self.width
        self.chunks = program.core.chunks_per_wide
        #: Words by which a vector of all channels may be longer than a pixel of the map.
        self._extra = max(0, program.words(statistics) - self.chunks * program.words(x))

    def numbers(self, images: Interval, rows: Interval) -> Interval | None:
        """Parts that lines of some images are; None if they are no whole parts, one after the
        other."""
        whole = rows == (0, self.parts * self.lines)
        if (
            rows[0] % self.lines
            or rows[1] % self.lines
            or not (whole or images[1] - images[0] == 1)
        ):
            return None
        if whole:
            return images[0] * self.parts, images[1] * self.parts
        first = images[0] * self.parts
        return first + rows[0] // self.lines, first + rows[1] // self.lines

    def room(self, parts: Interval, channels: Channels = None) -> int:
        """Words behind parts in their block, for their statistics."""
        count = parts[1] - parts[0]
        return 2 * count * self.program.words(self.statistics, self._channels(channels))

    def cycles(self, parts: Interval, channels: Channels = None) -> int:
        """How long the vector engine looks at parts, about."""
        count, groups = parts[1] - parts[0], self.program.core.groups_per_word
        words = count * self.program.words(self.x, channels)
        again = 1 if self.order(parts, channels) == _HWNC else count
        word = self.pixels * groups + REDUCTION_CYCLES + 7 * groups
        return 2 * (words * word + again * VECTOR_CYCLES)

    def order(self, parts: Interval, channels: Channels = None) -> Order:
        """Axes of the map as pixels of parts lie in their block: where that takes fewer commands,
        those of many small images in HWNC. Each pixel is stored by itself then, but a reduction
        makes the sums of all of them."""
        count = parts[1] - parts[0]
        words = count * self.program.words(self.x, channels)
        fits = (
            words * self.program.core.rows <= _MOST_CHANNELS and self.pixels * words <= MOST_WORDS
        )
        fewer = self.pixels + 3 * _PIECES < 2 * count
        return _HWNC if fewer and fits and self._is_even(channels) else IN_ORDER

    def _is_even(self, channels: Channels) -> bool:
        """Whether parts are images, of which each has as many words as its statistics."""
        words = self.program.words(self.statistics, self._channels(channels))
        return self.parts == 1 and words == self.chunks * self.program.words(self.x, channels)

    def late(
        self, parts: Interval, maps: Need, count: int, *, channels: Channels = None,
        store: Callable[[Block], None] | None = None, holds: bool = False,
    ) -> list[Late]:  # fmt: skip
        """What looks at parts in the block of ``maps``, in their :meth:`order`, with :meth:`room`
        behind them, in at most ``count`` pieces; the last one stores the statistics and drops that
        block, which may be the last of so many if it ``holds`` it: nothing is loaded there then
        before the vector engine is done. The first one calls ``store(block)`` before: where that
        takes many commands, they do not keep those of the product waiting for its end. Where others
        need the vector engine, too, a piece may be a part of the words of a part."""
        found = []
        size = parts[1] - parts[0]
        words = self.program.words(self.x, channels)
        columns = [(0, words)]
        if self.order(parts, channels) == _HWNC:
            count = min(count, _PIECES)
        elif self.program.shares_vector and count >= 2 * size:
            columns = even_parts(0, words, max(_LEAST_WORDS, -(-words // (count // size))))
        rows = even_parts(*parts, -(-size // count))
        pieces = [(row, column) for row in rows for column in columns]
        waits = count - len(pieces) if holds else 0
        for piece in pieces:
            begins = store if piece == pieces[0] else None
            ends = piece == pieces[-1] and not waits
            run = partial(self._add, parts, *piece, channels, begins, ends)
            (begin, end), column = piece
            like = "parts", size, words, begin - parts[0], end - parts[0], column, ends
            found.append(Late((maps,), run, like, parts[:1]))
        for number in range(waits):
            ends = number == waits - 1
            run = partial(self._end, parts, channels) if ends else _wait
            found.append(Late((maps,), run, ("parts", size, words, ends), parts[:1]))
        return found

    def write(self) -> None:
        """Commands that read the map.

        Raises
        ------
        CompileError
            if one word of a pixel does not fit into the buffer beside its sums.
        """
        found = self._parts()
        if found is None:
            self._write_bands()
        else:
            self.program.run([self._job(*part) for part in found])

    # Whole parts -----------------------------------------------------------------------------

    def _channels(self, channels: Channels) -> Interval:
        """Those of the statistics for channels of the map: where these are the last ones, all that
        are left of the pitch, which may differ."""
        begin, end = channels or (0, self.x.pitch)
        last = end >= min(self.x.pitch, self.statistics.pitch)
        return begin, self.statistics.pitch if last else end

    def _box(
        self, parts: Interval, channels: Channels
    ) -> tuple[Interval, Interval, Interval, Interval]:
        return (0, 2), parts, (0, 1), self._channels(channels)

    def _results(self, block: Block, first: int, parts: Interval, channels: Channels) -> View:
        """Statistics in a block."""
        view = self.program.view(block, self.statistics, *self._box(parts, channels))
        return replace(view, first=first)

    def _add(
        self, parts: Interval, piece: Interval, words: Interval, channels: Channels,
        store: Callable[[Block], None] | None, last: bool, maps: Block,
    ) -> None:  # fmt: skip
        if store:
            store(maps)
        box = parts, (0, self.lines), (0, self.width), channels
        view = self.program.view(maps, self.x, *box)
        first = maps.words - self.room(parts, channels)
        results = self._results(maps, first, parts, channels)
        if self.order(parts, channels) == _HWNC:
            self._add_hwnc(view, results, (piece[0] - parts[0], piece[1] - parts[0]))
        else:
            # Statistics may have more words than the map.
            end = results.words if words[1] == view.words else words[1]
            results = results.part((words[0], end), self.program.core.rows)
            view = view.part(words, self.program.core.rows)
            self._add_each(view, results, (piece[0] - parts[0], piece[1] - parts[0]))
        if last:
            self._end(parts, channels, maps)

    def _end(self, parts: Interval, channels: Channels, maps: Block) -> None:
        """Store the statistics, and drop the block."""
        first = maps.words - self.room(parts, channels)
        self.program.store(self.statistics, self._box(parts, channels), maps, first)
        self.program.scratch.drop([maps])

    def _add_each(self, view: View, results: View, piece: Interval) -> None:
        """Images [begin, end) one by one."""
        vector, (begin, end) = self.vector, piece
        means, squares = results[0:1], results[1:2]
        for number in range(begin, end):
            one = slice(number, number + 1)
            vector.sum(means[:, one], view[one])
        vector.scale(*(means[:, begin:end],) * 2, 1.0 / self.pixels)
        for number in range(begin, end):
            one = slice(number, number + 1)
            vector.sum(squares[:, one], view[one], y=means[:, one], **SQUARES)

    def _add_hwnc(self, view: View, results: View, piece: Interval) -> None:
        """Images [begin, end) at once: a pixel of each is some of the channels of one pixel."""
        vector, (begin, end), rows = self.vector, piece, self.program.core.rows
        count, height, width, _ = view.shape
        whole = View.dense(
            view.block, (1, height, width, count * view.words * rows), count * view.words,
            chunks=view.chunks,
        )  # fmt: skip
        words = begin * view.words, end * view.words
        means, squares = (
            replace(part, shape=(1, 1, 1, whole.shape[3]), words=whole.words).part(words, rows)
            for part in (results[0:1], results[1:2])
        )
        whole = whole.part(words, rows)
        vector.sum(means, whole)
        vector.scale(means, means, 1.0 / self.pixels)
        vector.sum(squares, whole, y=means, **SQUARES)

    def _parts(self) -> list[tuple[Interval, Channels]] | None:
        """Parts and channels that are looked at together, if a part fits: all channels, whose
        pixels lie together in DRAM, rather than many parts."""
        program, room = self.program, self.program.scratch.words
        for share in (2, 1):
            for step in channel_steps(program, self.x):
                size = self.pixels * step + 2 * (self.chunks * step + self._extra)
                count = min(room // share // size, -(-self.count // PIECES))
                if count and self.pixels * step <= MOST_WORDS:
                    parts = channel_parts(program, [self.x, self.statistics], step)
                    pieces = regular_parts(0, self.count, count)
                    return [(piece, channels) for channels in parts for piece in pieces]
        return None

    def _job(self, parts: Interval, channels: Channels) -> Job:
        box = parts, (0, self.lines), (0, self.width), channels or (0, self.x.pitch)
        words = self.program.need(self.x, *box).words + self.room(parts, channels)
        load = partial(self.program.load, self.x, box, order=self.order(parts, channels))
        maps = Need(object(), words, load)
        (late,) = self.late(parts, maps, 1, channels=channels)
        begin, end = self._channels(channels)
        like = *late.like, end - begin, min(end, self.x.shape[3]) - begin
        return Job(late.needs, late.run, like=like, at=(*late.at, begin))

    # Bands of parts --------------------------------------------------------------------------

    def _write_bands(self) -> None:
        """Groups of parts, each of which is read twice, a band of pixels after the other."""
        program = self.program

        def fixed(words: int, group: int) -> int:
            vectors = MapSums.rows(1, group) * self.chunks * words
            return vectors + 2 * group * (self.chunks * words + self._extra)

        name = f"{self.x.name} (batch normalisation)"
        bands = pixel_bands(program, name, self.x, [self.statistics], pixel=1, fixed=fixed)
        for channels in bands.channels:
            jobs: list[Job] = []
            for parts in bands.groups:
                for squares in (False, True):
                    for pixels in bands.pixels:
                        box = parts, (0, 1), pixels, channels
                        maps = program.need(flat(self.x), *box)._replace(key=object())
                        run = partial(self._add_band, bands, channels, parts, pixels, squares)
                        state = self._state(bands, channels)
                        jobs.append(state_job(state, [maps], (), run, first=not jobs))
            program.run(jobs)
        program.scratch.forget(self)

    def _state(self, bands: PixelBands, channels: Channels) -> Need:
        words = MapSums.rows(1, bands.group) * self.chunks * self.program.words(self.x, channels)
        return Need((self, channels), words + self.room((0, bands.group), channels))

    def _add_band(
        self, bands: PixelBands, channels: Channels, parts: Interval, pixels: Interval,
        squares: bool, state: Block, maps: Block,
    ) -> None:  # fmt: skip
        x = bands.view(self.program, maps, self.x, (parts, pixels), channels)
        size = MapSums.rows(1, bands.group), 1, 1, x.shape[3]
        view = View.dense(state, size, x.words, chunks=self.chunks)
        sums = MapSums(self.program, view, 1, bands.group)
        if pixels[0] == 0:
            sums.begin(parts)
        results = self._results(state, view.size, parts, channels)
        means, squared = results[0:1].lines, results[1:2].lines
        if squares:
            sums.add(x, pixels[0], means, **SQUARES)
        else:
            sums.add(x, pixels[0])
        if pixels[1] < self.pixels:
            return
        sums.finish(parts)
        if squares:
            self.vector.copy(squared, sums.results(parts))
            self.program.store(self.statistics, self._box(parts, channels), state, view.size)
        else:
            self.vector.scale(means, sums.results(parts), 1.0 / self.pixels)


def _wait(maps: Block) -> None:
    """The block stays."""
