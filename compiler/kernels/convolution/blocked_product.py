"""Product of a convolution, forward or for its input gradient, in boxes of any size."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import product

from compiler.codegen.convolution_walk import clip, matmul_walk, window_range
from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.tensors.column_tiles import ColumnTiles
from compiler.tensors.intervals import Interval, PixelBox, even_parts
from compiler.tensors.tensor import Tensor
from hw.isa.encoding import Init

from .blocked_cut import Axis, Box, Cut, contraction_boxes, cuts

__all__ = ["BlockedProduct"]

#: Cycles that a job costs besides: commands, and a gap before the first vector.
_JOB_CYCLES = 60
#: Rows and columns.
_Phase = tuple[Axis, Axis]


class BlockedProduct(ABC):
    """Tiles of outputs, groups of column tiles, phases, and boxes of the contraction, whose sums go
    on in the accumulators: for what is too large for one box.

    Parameters
    ----------
    program : CoreProgram
    name : of the layer, for messages
    source, target : maps that it reads and writes
    weights : (KH, KW, CI, CO)
    tiles : of the target's channels
    phases : (vertical, horizontal) axes
    step : lines of the target from one of a phase to the next
    """

    def __init__(
        self,
        program: CoreProgram,
        name: str,
        source: Tensor,
        target: Tensor,
        weights: Tensor,
        tiles: ColumnTiles,
        phases: Sequence[_Phase],
        step: tuple[int, int],
    ) -> None:
        self.program, self.core, self.name = program, program.core, name
        self.source, self.target, self.weights = source, target, weights
        self.tiles, self.phases, self.step = tiles, phases, step

    # What differs between the directions -------------------------------------------------------

    @abstractmethod
    def blocks(self, channels: Interval) -> Interval:
        """Words of source channels (first, last + 1) that a column tile reads."""

    @abstractmethod
    def weights_box(self, tile: int, blocks: Interval) -> tuple[Interval, Interval]:
        """(CI, CO) of the weights for a column tile and words of source channels."""

    @abstractmethod
    def weights_fields(self, tile: int, blocks: Interval, row: int) -> Fields:
        """WEIGHTS' fields but for the taps; ``row`` words for each row (kh, kw, ci)."""

    @abstractmethod
    def post_fields(self) -> Fields:
        """What POST does with sums."""

    def bias_need(self, tile: int) -> Need | None:
        """The biases of a column tile, if there are some."""
        return None

    # Sizes -----------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """Jobs that write all of the target.

        Raises
        ------
        CompileError
            if one output with one word of channels does not fit.
        """
        cut = self._cut()
        images, height, width, _ = self.target.shape
        jobs = []
        groups = self._groups(cut.group)
        columns = self._parts(width, cut.columns, self.step[1])
        rows = self._parts(height, cut.rows, self.step[0])
        for box in product(even_parts(0, images, cut.images), rows, columns):
            for group in groups:
                jobs += self._group_jobs(cut, box, group)
        return jobs

    @staticmethod
    def _parts(size: int, most: int, step: int) -> list[Interval]:
        """Of at most so many lines, which begin with the first phase if they have all."""
        step = step if most >= step else 1
        parts = even_parts(0, -(-size // step), max(1, most // step))
        return [(a * step, min(b * step, size)) for a, b in parts]

    def _groups(self, most: int) -> list[Interval]:
        """Column tiles, at most so many where a part of them is whole words."""
        return self.tiles.groups(most, self.target.dtype.itemsize, self.core.word_bytes)

    def _channels(self, group: Interval) -> Interval:
        """Of the target, as they are stored for column tiles."""
        end = self.tiles.range(group[1] - 1)[1]
        begin = self.tiles.range(group[0])[0]
        return begin, self.target.pitch if end == self.tiles.channels else end

    def _taps(self) -> tuple[int, int]:
        """The most rows and columns of taps that a phase has."""
        rows, columns = (max(len(phase[axis].taps) for phase in self.phases) for axis in (0, 1))
        return max(1, rows), max(1, columns)

    def _cut(self) -> Cut:
        """The one that takes the least time, of those that fit with the source and the weights of
        the next box."""
        images, height, width, _ = self.target.shape
        blocks = max(
            b - a for a, b in (self.blocks(self.tiles.range(t)) for t in range(self.tiles.count))
        )
        best, least = None, float("inf")
        taps = self._taps()
        for cut in cuts(images, height, width, self.step, self.tiles.count, blocks, taps):
            cost = self._cost(cut, blocks, taps)
            if cost < least:
                best, least = cut, cost
        if best is None:
            raise CompileError(
                f"layer {self.name}: one of its outputs, with one word of its input and its "
                f"weights, does not fit into the accumulators ({self.core.accumulator_depth} "
                f"vectors) or the buffer ({self.program.scratch.words} words)"
            )
        return best

    def _cost(self, cut: Cut, blocks: int, taps: tuple[int, int]) -> float:
        """Cycles, about; infinite if it does not fit."""
        program, room = self.program, self.program.scratch.words
        images, height, width, _ = self.target.shape
        vertical, horizontal = max(self.phases, key=lambda p: len(p[0].taps) * len(p[1].taps))
        rows, columns = -(-cut.rows // self.step[0]), -(-cut.columns // self.step[1])
        vectors = cut.images * rows * columns
        if vectors > self.core.accumulator_depth:
            return float("inf")
        group = max(self._groups(cut.group), key=lambda group: group[1] - group[0])
        out = cut.images * cut.rows * cut.columns * program.words(
            self.target, self._channels(group)
        )  # fmt: skip
        _, lines, line, _ = self.source.shape
        spans = (
            vertical.span(rows, cut.tap_rows, lines),
            horizontal.span(columns, cut.tap_columns, line),
        )
        source = cut.images * spans[0] * spans[1] * cut.blocks
        most = max(
            self._tap_words(tile, (0, cut.blocks))
            for tile in range(min(self.tiles.count, self.core.rows))
        )
        weights = cut.tap_rows * cut.tap_columns * most
        bias = self.bias_need(0)
        inputs = source + weights + (bias.words if bias else 0)
        if out + 2 * inputs > room:
            return float("inf")
        parts = -(-blocks // cut.blocks) * -(-taps[0] // cut.tap_rows)
        parts *= -(-taps[1] // cut.tap_columns)
        pieces = -(-images // cut.images) * len(self._parts(height, cut.rows, self.step[0]))
        pieces *= len(self._parts(width, cut.columns, self.step[1]))
        phases = min(cut.rows, self.step[0]) * min(cut.columns, self.step[1])
        jobs = pieces * self.tiles.count * phases * parts
        stays = out + parts * source + 2 * weights <= room
        loads = jobs * weights + (jobs // self.tiles.count if stays else jobs) * source
        tiles = cut.blocks * cut.tap_rows * cut.tap_columns
        return max(loads, jobs * tiles * max(vectors, self.core.rows)) + jobs * _JOB_CYCLES

    # Jobs ------------------------------------------------------------------------------------

    def _group_jobs(self, cut: Cut, box: PixelBox, group: Interval) -> list[Job]:
        channels = self._channels(group)
        pixels = 1
        for begin, end in box:
            pixels *= end - begin
        output = Need(object(), pixels * self.program.words(self.target, channels))
        found: list[tuple[tuple[Need, ...], partial[None]]] = []
        for tile in range(*group):
            for phase in self.phases:
                numbers = tuple(
                    axis.numbers(part) for axis, part in zip(phase, box[1:], strict=True)
                )
                if all(end > begin for begin, end in numbers):
                    found += self._phase(cut, box, group, tile, phase, output)
        jobs = []
        for number, (needs, run) in enumerate(found, 1):
            jobs.append(Job(needs, partial(run, box, channels, number == len(found))))
        return jobs

    def _phase(
        self, cut: Cut, box: PixelBox, group: Interval, tile: int, phase: _Phase, output: Need
    ) -> list[tuple[tuple[Need, ...], partial[None]]]:
        """(needs, work) of the boxes of a column tile and phase."""
        taps = len(phase[0].taps), len(phase[1].taps)
        found: list[tuple[tuple[Need, ...], partial[None]]] = []
        if not all(taps):
            run = partial(self._run, group, tile, phase, None, True, True)
            return [((output,), run)]
        boxes = contraction_boxes(cut, self.blocks(self.tiles.range(tile)), taps)
        for part in boxes:
            needs = [
                output,
                self._source_need(box, phase, part),
                self._weights_need(tile, phase, part),
            ]
            bias = self.bias_need(tile) if part is boxes[0] else None
            needs += [bias] if bias else []
            first, last = part is boxes[0], part is boxes[-1]
            found.append((tuple(needs), partial(self._run, group, tile, phase, part, first, last)))
        return found

    def _lines(self, box: PixelBox, phase: _Phase, part: Box) -> list[Interval]:
        """Rows and columns of the source for a box of outputs and taps."""
        found = []
        for number, axis in enumerate(phase):
            lines = window_range(
                axis.numbers(box[1 + number]), part[1 + number], stride=axis.stride,
                padding=-axis.origin, dilation=axis.advance,
            )  # fmt: skip
            found.append(clip(*lines, self.source.shape[1 + number]))
        return found

    def _source_need(self, box: PixelBox, phase: _Phase, part: Box) -> Need:
        rows, columns = self._lines(box, phase, part)
        begin, end = part[0]
        channels = begin * self.core.rows, end * self.core.rows
        return self.program.need(self.source, box[0], rows, columns, channels)

    def _tap_words(self, tile: int, blocks: Interval) -> int:
        inputs, outputs = self.weights_box(tile, blocks)
        return (inputs[1] - inputs[0]) * self.program.words(self.weights, outputs)

    @staticmethod
    def _kernel(phase: _Phase, part: Box) -> tuple[range, range]:
        """Rows and columns of the kernel in a box."""
        rows, columns = (axis.taps[slice(*p)] for axis, p in zip(phase, part[1:], strict=True))
        return rows, columns

    def _weights_need(self, tile: int, phase: _Phase, part: Box) -> Need:
        """Its taps, in order of the kernel if they are neighbours, or else of the contraction."""
        program, (rows, columns) = self.program, self._kernel(phase, part)
        inputs, outputs = self.weights_box(tile, part[0])
        size = self._tap_words(tile, part[0])
        if _neighbours(rows) and _neighbours(columns):
            box = (min(rows), max(rows) + 1), (min(columns), max(columns) + 1), inputs, outputs
            return program.need(self.weights, *box)

        def load(block: Block) -> None:
            for number, (kh, kw) in enumerate(product(rows, columns)):
                box = (kh, kh + 1), (kw, kw + 1), inputs, outputs
                program.load(self.weights, box, block, number * size)

        return Need(object(), len(rows) * len(columns) * size, load)

    def _run(
        self, group: Interval, tile: int, phase: _Phase, part: Box | None, first: bool, last: bool,
        box: PixelBox, channels: Interval, ends: bool, output: Block, *blocks: Block,
    ) -> None:  # fmt: skip
        program = self.program
        if first:
            self._bank = program.next_bank()
        begin, end = self.tiles.range(tile)
        if part is None:
            self._nothing(box, phase, end - begin, output)
        else:
            source, weights, *bias = blocks
            self._weights(tile, phase, part, weights, *bias)
            init = (Init.BIAS if bias else Init.ZERO) if first else Init.ACCUMULATOR
            self._matmul(box, phase, part, init, end - begin, source)
        if last:
            self._post(box, channels, group, tile, phase, output)
        if ends:
            program.store(self.target, (*box, channels), output)
            program.scratch.drop([output])

    def _nothing(self, box: PixelBox, phase: _Phase, valid: int, block: Block) -> None:
        """Zeros for a phase without taps."""
        fields = {"address": block.address, "row_stride": 0, "row_limit": 0, "transpose": 0}
        self.program.weights(fields, block)
        part = (0, 1), (0, 1), (0, 1)
        walk = self._walk(box, phase, part, block, 1) | {"h_limit": 0}
        self.program.matmul(walk | {"accumulator_bank": self._bank, "channels": valid}, block)

    def _weights(
        self, tile: int, phase: _Phase, part: Box, weights: Block, bias: Block | None = None
    ) -> None:
        rows, columns = self._kernel(phase, part)
        _, outputs = self.weights_box(tile, part[0])
        size = self._tap_words(tile, part[0])
        down, right, place = len(columns) * size, size, 0
        if _neighbours(rows) and _neighbours(columns):
            place = (rows[0] - min(rows)) * down + (columns[0] - min(columns)) * size
            down, right = (-n if r.step < 0 else n for n, r in ((down, rows), (right, columns)))
        row = self.program.words(self.weights, outputs)
        fields = self.weights_fields(tile, part[0], row)
        fields |= {
            "address": weights.address + place + fields.get("address", 0),
            "kw_count": len(columns), "kh_count": len(rows), "kw_stride": right, "kh_stride": down,
            "cb_count": part[0][1] - part[0][0],
        }  # fmt: skip
        if bias is None:
            self.program.weights(fields, weights)
        else:
            fields |= {"bias": 1, "bias_address": bias.address}
            self.program.weights(fields, weights, bias)

    def _walk(self, box: PixelBox, phase: _Phase, part: Box, x: Block, words: int) -> Fields:
        vertical, horizontal = phase
        rows, columns = self._lines(box, phase, part)
        return matmul_walk(
            x.address,
            words,
            images=box[0][1] - box[0][0],
            outputs=(vertical.numbers(box[1]), horizontal.numbers(box[2])),
            taps=(part[1], part[2]),
            lines=(rows, columns),
            stride=(vertical.stride, horizontal.stride),
            padding=(-vertical.origin, -horizontal.origin),
            dilation=(vertical.advance, horizontal.advance),
        )

    def _matmul(
        self, box: PixelBox, phase: _Phase, part: Box, init: Init, valid: int, x: Block
    ) -> None:
        begin, end = part[0]
        words = self.program.words(self.source, (begin * self.core.rows, end * self.core.rows))
        self.program.matmul(
            self._walk(box, phase, part, x, words)
            | {
                "accumulator_bank": self._bank,
                "init": init,
                "channels": valid,
                "cb_count": end - begin,
            },
            x,
        )

    def _post(
        self, box: PixelBox, channels: Interval, group: Interval, tile: int, phase: _Phase,
        output: Block,
    ) -> None:  # fmt: skip
        program = self.program
        begin, end = self.tiles.range(tile)
        stop = channels[1] if tile == group[1] - 1 else end
        wide = self.target.kind == "float32"
        place, fields = program.column_place(
            (begin - channels[0], end - channels[0]), stop - channels[0], wide=wide
        )
        images, height, width = (b - a for a, b in box)
        numbers = [axis.numbers(part) for axis, part in zip(phase, box[1:], strict=True)]
        rows, columns = (b - a for a, b in numbers)
        word = program.words(self.target, channels)
        top, left = (
            axis.offset + n[0] * axis.step - part[0]
            for axis, n, part in zip(phase, numbers, box[1:], strict=True)
        )
        program.post(
            fields
            | self.post_fields()
            | {
                "accumulator_bank": self._bank,
                "wo_count": columns,
                "ho_count": rows,
                "n_count": images,
                "wo_stride": 1,
                "ho_stride": columns,
                "n_stride": columns * rows,
                "out_address": output.address + (top * width + left) * word + place,
                "out_wo_stride": phase[1].step * word,
                "out_ho_stride": phase[0].step * width * word,
                "out_n_stride": height * width * word,
            },
            output,
        )


def _neighbours(taps: range) -> bool:
    return len(taps) == 1 or abs(taps.step) == 1
