"""How a weight gradient is cut: ranges of its entries, pieces of the batch, results."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.cost import WEIGHT_CYCLES
from compiler.errors import CompileError
from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Tensor

from .conv_geometry import Convolution
from .conv_weight_gradient_pieces import Piece, Room, WeightGradientPieces, unlike
from .conv_weight_gradient_ranges import Range
from .gathered_pixels import Gathered

__all__ = ["Piece", "WeightGradientPlan"]

#: Cycles that a K tile waits for banks from which dY is read, and where results of other column
#: tiles lie; those of a word that is loaded; times that it takes to post results until all of them
#: are on their way.
_DY, _OTHERS, _LOADS, _RESULTS = 2, 4, 0.1, 4
#: What cuts the batch for ranges, with so many words for a piece: pieces, and whether both maps
#: stay.
_Cut = Callable[[list[Range], int], tuple[list[Piece], bool] | None]


def _flat(layer: Convolution, dy: Tensor) -> tuple[Convolution, Tensor]:
    """(layer, dy) as one image of all lines where no kernel reaches from line to line, so that
    pieces may begin anywhere."""
    layer = layer.without_idle_pixels()
    height, lines = layer.input_map[0], layer.output_map[0]
    if layer.kernel[0] != 1 or layer.padding[0] or height != lines * layer.stride[0]:
        return layer, dy
    x, y, dy = (
        replace(tensor, shape=(1, tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]))
        for tensor in (layer.x, layer.y, dy)
    )
    return replace(layer, x=x, y=y), dy


class _Plan(NamedTuple):
    """Ranges and pieces, whether both maps stay, and how pieces lie in the buffer."""

    ranges: list[Range]
    pieces: list[Piece]
    whole: bool
    room: Room


class WeightGradientPlan(WeightGradientPieces):
    """Cuts a weight gradient, and knows the sizes of what it needs.

    Members
    -------
    layer, dy : as one image of all lines where no kernel reaches from line to line
    ranges : list of :class:`Range`
    pieces : list of :data:`Piece`, all but the last whole K tiles
    whole : whether both maps stay in the memory

    Raises
    ------
    CompileError
        if the entries of a tap do not fit into the accumulators, or what a K tile needs into the
        buffer.
    """

    def __init__(
        self,
        program: CoreProgram,
        layer: Convolution,
        dy: Tensor,
        dw: Tensor | None,
        db: Tensor | None,
    ) -> None:
        super().__init__(program, *_flat(layer, dy), dw, db)
        self.ranges, self.pieces, self.whole = self._plan()

    @property
    def jobs(self) -> int:
        """How many there are, at least: one for each piece and column tile, or for each range."""
        if self.whole:
            return len(self.ranges)
        return len(self.pieces) * sum(part.tiles[1] - part.tiles[0] for part in self.ranges)

    def _plan(self) -> tuple[list[Range], list[Piece], bool]:
        """Ranges of all column tiles if pieces of lines fit beside them, else of fewer; of fewer
        kernel rows, of which more lines fit; of single pixels if nothing else fits."""
        choices: list[list[Interval]] = []
        count = self.tiles.count
        while count:
            groups = self.tile_groups(count)
            if groups not in choices:
                choices.append(groups)
            count //= 2
        everything = self.ranges_of((0, self.tiles.count))
        if not self.stay(self.program.scratch.words - max(map(self.out_size, everything))):
            # Maps come again for each range.
            choices.sort(key=lambda groups: not all(map(self.has_taps, groups)))
        lines = self.line_cuts
        tries: list[tuple[int | None, tuple[_Cut, ...]]] = [(None, (self.whole_or_boxes, lines))]
        if self.dw is not None:
            (first, last), (top, bottom) = everything[0].blocks, everything[0].rows
            limit = (last - first) * (bottom - top)
            while limit := limit // 2:
                tries.append((limit, (lines,)))
        tries.append((None, (self.pixel_cuts,)))
        for most, cuts in tries:
            found = (plan for groups in choices for plan in self._cuts(groups, most, cuts))
            plan = next(found, None)
            if plan and not plan.whole:
                plan = min((plan, *found), key=self._cycles)
            if plan:
                self.room = plan.room
                return plan.ranges, plan.pieces, plan.whole
        raise CompileError(
            f"layer {self.layer.name}: {self.core.rows} pixels of its maps and the part of its "
            f"weight gradient that they add to do not fit into the buffer "
            f"({self.program.scratch.words} words)"
        )

    def _cuts(
        self, groups: list[Interval], most: int | None, cuts: tuple[_Cut, ...]
    ) -> Iterator[_Plan]:
        """The batch cut for ranges of these ``groups`` of column tiles: by the first of ``cuts``
        that can do so, and by others while those before make narrow pieces."""
        ranges = [part for tiles in groups for part in self.ranges_of(tiles, most)]
        words = self.program.scratch.words - max(map(self.out_size, unlike(ranges)))
        for cut in cuts:
            found = cut(ranges, words)
            if found is not None:
                yield _Plan(ranges, *found, self.room)
                if not self.room.narrow:
                    return

    def _cycles(self, plan: _Plan) -> float:
        """How long a plan takes, about: the array or loads, where a word takes a cycle, and what
        nothing hides of results."""
        self.room, rows, total = plan.room, self.core.rows, 0.0
        pixels = [self.pixels(piece) for piece in plan.pieces]
        last = pixels[-1] / rows
        shapes = {self.shape(piece): piece for piece in plan.pieces}
        counts = Counter(map(self.shape, plan.pieces))
        for part in plan.ranges:
            entries, count = self.entries(part), part.tiles[1] - part.tiles[0]
            again = len(self.batches(part))
            tile = max(entries, self.core.columns + WEIGHT_CYCLES) + _DY + _OTHERS * (again > 1)
            array = count * sum(-(-size // rows) * tile + rows for size in pixels)
            x = sum(self.x_words(shapes[shape], part) * n for shape, n in counts.items())
            loads = (
                x * (again if len(pixels) > 1 else 1) + sum(pixels) * self.dy_words(part) * again
            )
            total += array + loads if plan.room.tight else max(array, loads) + _LOADS * loads
            # POST of a column tile beside the last piece of another one.
            post = self.core.groups_per_vector - (last if plan.room.late else 0)
            total += _RESULTS * count * entries * max(0, post)
        return total

    def likeness(
        self, piece: Piece, part: Range, channels: Interval, tile: int
    ) -> tuple[tuple[object, ...], tuple[int, ...]]:
        """What a piece of a range has in common with others that differ in where they lie in DRAM
        alone, and where that is; of ``channels`` of dY, for a column tile."""
        (first, last), (begin, end) = self.inputs(part), self.tiles.range(tile)
        at, shape = self._phase(piece, part)
        like = (
            shape,
            channels[1] - channels[0], begin - channels[0], end - begin,
            part.blocks[1] - part.blocks[0], last - first, part.taps,
            part.tiles[1] - tile, tile - part.tiles[0], part.tiles[1] == self.tiles.count,
            self.has_bias(part),
        )  # fmt: skip
        return like, (*at, part.blocks[0], begin)

    def _phase(self, piece: Piece, part: Range) -> tuple[tuple[int, int], tuple[object, ...]]:
        """Where a piece begins, image and line, and what is the same for pieces that begin
        elsewhere."""
        height, width = self.layer.output_map
        if isinstance(piece, Gathered):
            image, pixel = divmod(piece.begin, height * width)
            return (image, 0), (piece.pixels, piece.width, pixel)
        images, rows = piece
        begin, end = self.layer.lines(0, *rows, part.rows)
        origin = rows[0] * self.layer.stride[0]
        shape = images[1] - images[0], rows[1] - rows[0], begin - origin, end - begin
        return (images[0], rows[0]), shape
