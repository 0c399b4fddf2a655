"""Sizes of a product that is computed in boxes: those that take the least time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.cost import SUM_CYCLES, Fields, tile_cycles
from compiler.errors import CompileError
from compiler.tensors.column_tiles import ColumnTiles
from compiler.tensors.intervals import Interval, even_parts
from compiler.tensors.tensor import Tensor

from .blocked_cut import Axis, Cut, cuts

__all__ = ["JOB_CYCLES", "BlockedSizes", "Phase"]

#: Cycles that a job costs besides: commands, and a gap before the first vector.
JOB_CYCLES = 60
#: One part of the buffer in so many is not counted on: what is in use leaves room in pieces.
_SPARE = 4
#: Rows and columns.
Phase = tuple[Axis, Axis]


class BlockedSizes(ABC):
    """Tiles of outputs, groups of column tiles, phases, and boxes of the contraction, whose sums go
    on in the accumulators.

    Parameters
    ----------
    program : CoreProgram
    name : of the layer, for messages
    source, target : maps that it reads and writes
    weights : (KH, KW, CI, CO), in any order
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
        phases: Sequence[Phase],
        step: tuple[int, int],
    ) -> None:
        self.program, self.core, self.name = program, program.core, name
        self.source, self.target, self.weights = source, target, weights
        self.tiles, self.phases, self.step = tiles, phases, step
        self._loads: dict[Any, int] = {}  # cycles of LOADs by what is loaded
        self._known_groups: dict[int, list[Interval]] = {}
        self._most_weights: dict[int, int] = {}  # words of a tap by words of source channels

    # What differs between the directions -------------------------------------------------------

    @abstractmethod
    def blocks(self, channels: Interval) -> Interval:
        """Words of source channels (first, last + 1) that a column tile reads."""

    @abstractmethod
    def weights_box(self, tile: int, blocks: Interval) -> tuple[Interval, Interval]:
        """(CI, CO) of the weights for a column tile and words of source channels."""

    @abstractmethod
    def weights_fields(self, tile: int, blocks: Interval, row: int) -> Fields:
        """WEIGHTS' fields but for the taps; ``row`` words from a row (ci) to the next."""

    @abstractmethod
    def post_fields(self) -> Fields:
        """What POST does with sums."""

    def can_look(self, cut: Cut) -> bool:
        """Whether somebody wants something of the results that can be had while the product goes
        on."""
        return False

    def looking(self, cut: Cut, cost: float) -> float:
        """Cycles by which this takes longer than the product, which takes ``cost``, about."""
        return 0.0

    def bias_need(self, tile: int) -> Need | None:
        """The biases of a column tile, if there are some."""
        return None

    # Sizes -----------------------------------------------------------------------------------

    @staticmethod
    @cache
    def _parts(size: int, most: int, step: int) -> Sequence[Interval]:
        """Of at most so many lines, which begin with the first phase if they have all."""
        step = step if most >= step else 1
        parts = even_parts(0, -(-size // step), max(1, most // step))
        return [(a * step, min(b * step, size)) for a, b in parts]

    def _groups(self, most: int) -> list[Interval]:
        """Column tiles, at most so many where a part of them is whole words."""
        if most not in self._known_groups:
            item, word = self.target.dtype.itemsize, self.core.word_bytes
            self._known_groups[most] = self.tiles.groups(most, item, word)
        return self._known_groups[most]

    def _channels(self, group: Interval) -> Interval:
        """Of the target, as they are stored for column tiles."""
        end = self.tiles.range(group[1] - 1)[1]
        begin = self.tiles.range(group[0])[0]
        return begin, self.target.pitch if end == self.tiles.channels else end

    def _taps(self) -> tuple[int, int]:
        """The most rows and columns of taps that a phase has."""
        rows, columns = (max(len(phase[axis].taps) for phase in self.phases) for axis in (0, 1))
        return max(1, rows), max(1, columns)

    def plan(self, again: int = 0) -> tuple[Cut, float]:
        """The cut that takes the least time, of those that fit with the source and the weights of
        the next box; and how many cycles it takes, about. Those that do not :meth:`can_look` cost
        ``again`` more, which is not among them, the others what :meth:`looking` says.

        Raises
        ------
        CompileError
            if one output with one word of channels does not fit.
        """
        images, height, width, _ = self.target.shape
        blocks = max(
            b - a for a, b in (self.blocks(self.tiles.range(t)) for t in range(self.tiles.count))
        )
        best, least, found = None, float("inf"), 0.0
        taps = self._taps()
        vectors = self.core.accumulator_depth
        for cut in cuts(images, height, width, self.step, self.tiles.count, blocks, taps, vectors):
            cost = self._cost(cut, blocks, taps)
            if cost >= least:
                continue
            more: float = again
            if again and self.can_look(cut):
                more = self.looking(cut, cost)
            if cost + more < least:
                best, least, found = cut, cost + more, cost
        if best is None:
            raise CompileError(
                f"layer {self.name}: one of its outputs, with one word of its input and its "
                f"weights, does not fit into the accumulators ({self.core.accumulator_depth} "
                f"vectors) or the buffer ({self.program.scratch.words} words)"
            )
        return best, found

    def _cost(self, cut: Cut, blocks: int, taps: tuple[int, int]) -> float:
        """Cycles, about; infinite if it does not fit."""
        room = self.program.scratch.words
        images, height, width, _ = self.target.shape
        rows, columns = -(-cut.rows // self.step[0]), -(-cut.columns // self.step[1])
        vectors = cut.images * rows * columns
        if vectors > self.core.accumulator_depth:
            return float("inf")
        spans = self.spans(cut)
        out, source, weights, inputs = self.box_words(cut, spans)
        if out + 2 * inputs > room:
            return float("inf")
        parts = -(-blocks // cut.blocks) * -(-taps[0] // cut.tap_rows)
        parts *= -(-taps[1] // cut.tap_columns)
        pieces = -(-images // cut.images) * len(self._parts(height, cut.rows, self.step[0]))
        pieces *= len(self._parts(width, cut.columns, self.step[1]))
        # Phases have fewer taps than the one that has most, or none.
        phases = min(cut.rows, self.step[0]) * min(cut.columns, self.step[1]) * self._tap_share
        jobs = pieces * self.tiles.count * phases * parts
        sure = room - room // _SPARE
        stays = out + parts * source + 2 * weights <= sure
        loads = jobs * self._weights_cycles(cut.blocks, cut.tap_rows, cut.tap_columns)
        loads += (jobs / self.tiles.count if stays else jobs) * self._source_cycles(
            cut.images, spans, cut.blocks
        )
        # The last box of the contraction is smaller.
        tiles = blocks * taps[0] * taps[1] / parts
        alone = jobs * tiles * max(vectors, self.pace)
        others: float = jobs * JOB_CYCLES
        if 2 * (out + inputs) > sure and parts <= 3:
            # Between groups, one of them has to be stored before the next one has room.
            others += pieces * len(self._groups(cut.group)) * (loads / jobs + out)
        return (max(loads, alone) if out + 2 * inputs <= sure else loads + alone) + others

    def spans(self, cut: Cut) -> tuple[int, int]:
        """Lines and columns of the source that a box reads."""
        vertical, horizontal = max(self.phases, key=lambda p: len(p[0].taps) * len(p[1].taps))
        rows, columns = -(-cut.rows // self.step[0]), -(-cut.columns // self.step[1])
        _, lines, line, _ = self.source.shape
        return (
            vertical.span(rows, cut.tap_rows, lines),
            horizontal.span(columns, cut.tap_columns, line),
        )

    def largest(self, cut: Cut) -> Interval:
        """Channels of the largest group of column tiles."""
        group = max(self._groups(cut.group), key=lambda group: group[1] - group[0])
        return self._channels(group)

    def box_words(self, cut: Cut, spans: tuple[int, int]) -> tuple[int, int, int, int]:
        """Words of the results of the largest box, of its source, of its weights, and of all that
        it reads; ``spans`` are those of the cut."""
        words = self.program.words(self.target, self.largest(cut))
        source = cut.images * spans[0] * spans[1] * cut.blocks
        if cut.blocks not in self._most_weights:
            self._most_weights[cut.blocks] = max(
                self._tap_words(tile, (0, cut.blocks)) for tile in self._unlike_tiles
            )
        weights = cut.tap_rows * cut.tap_columns * self._most_weights[cut.blocks]
        bias = self.bias_need(0)
        out = cut.images * cut.rows * cut.columns * words
        return out, source, weights, source + weights + (bias.words if bias else 0)

    @cached_property
    def _tap_share(self) -> float:
        """Taps of all phases, of those there would be if each had as many as any."""
        rows, columns = self._taps()
        taps = sum(
            len(vertical.taps) * len(horizontal.taps) for vertical, horizontal in self.phases
        )
        return taps / (len(self.phases) * rows * columns)

    @cached_property
    def _unlike_tiles(self) -> range:
        """Column tiles that lie in words in all ways there are."""
        return range(min(self.tiles.count, self.core.rows))

    @cached_property
    def pace(self) -> float:
        """Cycles that a K tile takes at least, on the average."""
        blocks, found = (0, 1), []
        for tile in self._unlike_tiles:
            found.append(tile_cycles(self.weights_fields(tile, blocks, 1), self.core))
        return max(SUM_CYCLES, sum(found) / len(found))

    def _weights_cycles(self, blocks: int, rows: int, columns: int) -> int:
        """How long the weights of a box take to load, at most."""
        key = blocks, rows, columns
        if key not in self._loads:
            self._loads[key] = max(
                self.program.load_cycles(
                    self.weights, ((0, rows), (0, columns), *self.weights_box(tile, (0, blocks)))
                )
                for tile in self._unlike_tiles
            )
        return self._loads[key]

    def _source_cycles(self, images: int, spans: tuple[int, int], blocks: int) -> int:
        """How long the source of a box takes to load."""
        key = images, spans, blocks
        if key not in self._loads:
            box = (0, images), (0, spans[0]), (0, spans[1]), (0, blocks * self.core.rows)
            self._loads[key] = self.program.load_cycles(self.source, box)
        return self._loads[key]

    def _tap_words(self, tile: int, blocks: Interval) -> int:
        inputs, outputs = self.weights_box(tile, blocks)
        return (inputs[1] - inputs[0]) * self.program.words(self.weights, outputs)
