"""Forward product of a convolution in training."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.kernels.tiling.late_work import Late, behind, run_around
from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Order, Tensor, strides_of
from hw.isa.encoding import Init

from .blocked_cut import Axis
from .blocked_product import BlockedProduct
from .conv_geometry import Convolution
from .conv_tiling import LineTooLarge, MapTile, cut_map
from .part_statistics import PartStatistics
from .product_cost import blocked_jobs, tiled_cycles
from .reorganize import Reorganizer

__all__ = ["forward"]


def forward(
    program: CoreProgram,
    layer: Convolution,
    *,
    relu: bool = False,
    cells: Tensor | None = None,
    statistics: Tensor | None = None,
    beside: Callable[[CoreProgram, Any], None] | None = None,
    tensors: Any = None,
) -> None:
    """Commands that write ``layer.y``, rounded to operands or as float32, as its kind says.

    Output tiles outermost, then column tiles; weights stay in the memory while there is room. Where
    a line or the weights of a column tile have none, or so little that the array would wait for
    weights, boxes of them as
    :class:`~compiler.kernels.convolution.blocked_product.BlockedProduct` cuts them. With
    ``cells`` the map is reorganized, too
    (:class:`~compiler.kernels.convolution.reorganize.Reorganizer`): as it leaves, or behind it
    where twice what a tile needs has no room beside its sums. With ``statistics`` those of its
    parts are taken (:class:`~compiler.kernels.convolution.part_statistics.PartStatistics`):
    while the product goes on, or behind it where tiles or boxes are no whole parts.
    ``beside(program, tensors)`` emits commands that have nothing to do with it, in its middle, so
    that they are executed beside it.
    """
    reorganizer = None if cells is None else Reorganizer(program, layer.y, cells)
    parts = None if statistics is None else PartStatistics(program, layer.y, statistics)
    product = _Forward(program, layer, relu, reorganizer, parts)
    tiles = product.cut()
    again = 2 * product.observing_cycles if parts else 0  # means, then squares
    cycles = None if tiles is None else product.cycles(tiles)
    if cycles and not product.looks:
        cycles = cycles[0], cycles[1] + again
    more = product.observing_cycles if product.held else 0
    count = len(tiles or ()) * product.tiles.count
    blocked = _Blocked(program, layer, relu, parts)
    boxes = blocked_jobs(blocked, cycles, count, more, again=again, looks=product.looks)
    if boxes is not None:
        product.let_go()
    jobs = product.jobs(tiles or ()) if boxes is None else boxes
    if beside:
        run_around(program, jobs, partial(beside, program, tensors))
    else:
        program.run(jobs)
    if parts and not (product if boxes is None else blocked).looks:
        parts.write()
    if reorganizer is None:
        return
    if product.held:
        reorganizer.finish()
    else:
        reorganizer.write()


class _Forward:
    def __init__(
        self, program: CoreProgram, layer: Convolution, relu: bool,
        reorganizer: Reorganizer | None, statistics: PartStatistics | None = None,
    ) -> None:  # fmt: skip
        self.program, self.layer, self.relu = program, layer, relu
        self.reorganizer, self.statistics = reorganizer, statistics
        #: Whether the jobs take statistics on the way: tiles are whole parts of the map.
        self.looks = False
        self.held: list[Need] = []
        self.core = program.core
        self.tiles = layer.output_tiles(self.core)
        self.x_words, self.y_words = program.words(layer.x), program.words(layer.y)
        self.whole = self._weights_need(0, whole=True).words * 4 <= program.scratch.words

    def cut(self) -> list[MapTile] | None:
        """Tiles, beside the sums of the map if these have room; None if a line has none."""
        try:
            return self._hold() or self._cut()
        except LineTooLarge:
            return None

    def let_go(self) -> None:
        """No sums are held."""
        if self.held and self.reorganizer:
            self.held = []
            self.reorganizer.let_go()

    @property
    def observing_cycles(self) -> int:
        """How long it takes to read the map again, about."""
        return prod(self.layer.y.shape[:3]) * self.y_words * self.core.groups_per_word

    def cycles(self, tiles: Sequence[MapTile]) -> tuple[int, int]:
        """As :func:`~compiler.kernels.convolution.product_cost.tiled_cycles`."""
        program, layer, core = self.program, self.layer, self.core
        kernel, width = layer.kernel[0] * layer.kernel[1], layer.output_map[1]
        columns = [self.tiles.range(tile) for tile in range(self.tiles.count)]
        blocks = [b - a for a, b in (layer.input_blocks(*c, core.rows) for c in columns)]

        def array(part: MapTile, least: int) -> int:
            (n0, n1), (h0, h1) = part
            return kernel * sum(blocks) * max((n1 - n0) * (h1 - h0) * width, least)

        def source(part: MapTile) -> int:
            images, rows = part
            lines = layer.lines(0, *rows), (0, layer.input_map[1])
            return program.load_cycles(layer.x, (images, *lines, (0, layer.x.pitch)))

        box = (0, layer.kernel[0]), (0, layer.kernel[1]), (0, layer.inputs)
        channels: list[Interval | None] = [None]
        if not self.whole:
            channels = [program.whole_words(part) for part in columns]
        weights = [
            (program.need(layer.weights, *box, part).words,
             program.load_cycles(layer.weights, (*box, part or (0, layer.weights.pitch))))
            for part in channels
        ]  # fmt: skip
        return tiled_cycles(
            tiles, array=array, least=2 * core.columns,
            size=lambda part: self._x_need(*part).words + self._out_size(*part),
            source=source, weights=weights, room=program.scratch.words,
        )  # fmt: skip

    def jobs(self, tiles: Sequence[MapTile]) -> list[Job]:
        jobs: list[tuple[Job, Sequence[Late]]] = []
        for images, rows in tiles:
            output = Need(object(), self._out_size(images, rows))
            for tile in range(self.tiles.count):
                needs = [
                    *self.held,
                    output,
                    self._x_need(images, rows),
                    self._weights_need(tile, self.whole),
                ]
                needs += self._bias_needs()
                run = partial(self._tile, images, rows, tile)
                like = *self._likeness(images, rows), tile
                at, watched = (images[0], rows[0]), bool(self.held or self.looks)
                job = Job(tuple(needs), run, watched=watched, like=like, at=at)
                late: Sequence[Late] = ()
                if self.statistics and self.looks and tile == self.tiles.count - 1:
                    parts = self.statistics.numbers(images, rows)
                    assert parts is not None, "tiles are whole parts"
                    store = partial(self._store, images, rows)
                    late = self.statistics.late(parts, output, tile + 1, store=store)
                jobs.append((job, late))
        return behind(jobs)

    def _likeness(self, images: Interval, rows: Interval) -> tuple[object, ...]:
        """What tiles have in common that differ in where they lie in DRAM alone."""
        count, size = images[1] - images[0], rows[1] - rows[0]
        if self.held:
            # What adds the first image up to nothing adds others up to it, row by row.
            return count, rows, not images[0]
        begin, end = self.layer.lines(0, *rows)
        return count, size, begin - rows[0] * self.layer.stride[0], end - begin

    def _hold(self) -> list[MapTile] | None:
        """Hold sums of the map, if there is room; what :meth:`_cut` leaves then, or None."""
        if self.reorganizer and self.reorganizer.can_hold():
            self.held = [self.reorganizer.hold()]
            try:
                return self._cut(copies=(2,))
            except LineTooLarge:
                self.let_go()
        return None

    def _cut(self, **options: Any) -> list[MapTile]:
        """[(images, output rows)]: whole images, else rows, that fit accumulators and buffer; whole
        parts of the map if somebody wants statistics of these and they fit."""
        if self.statistics is not None:
            self.looks = True
            try:  # a tile that is looked at and the next one are there together
                return self._cut_lines(self.statistics.lines, copies=(2,))
            except LineTooLarge:
                self.looks = False
        return self._cut_lines(1, **options)

    def _cut_lines(self, lines: int, **options: Any) -> list[MapTile]:
        """Tiles of a multiple of so many lines."""
        layer, program = self.layer, self.program
        return cut_map(
            program, layer.images, *layer.output_map, lines=lines,
            size=self._tile_room,
            constant=sum(need.words for need in (*self.held, *self._bias_needs())),
            weights=max(self._weights_need(t, self.whole).words for t in range(self.tiles.count)),
            what=f"layer {layer.name}: a line of its output",
            **options,
        )  # fmt: skip

    def _order(self, images: Interval, rows: Interval) -> Order:
        """Axes as the pixels of a tile lie in its block."""
        parts = self._seen(images, rows)
        return self.statistics.order(parts) if self.statistics and parts else self.layer.y.order

    def _seen(self, images: Interval, rows: Interval) -> Interval | None:
        """Parts of which a tile consists, if the jobs take their statistics."""
        return self.statistics.numbers(images, rows) if self.statistics and self.looks else None

    def _tile_room(self, images: Interval, rows: Interval) -> int:
        """Words that a tile needs; more than there are if it is looked at and what becomes of it,
        which is in use while the next one comes, might leave room for that in two pieces only."""
        x, out = self._x_need(images, rows).words, self._out_size(images, rows)
        words = self.program.scratch.words
        return words if self.looks and 3 * out + x > words else x + out

    def _out_size(self, images: Interval, rows: Interval) -> int:
        """Words of what becomes of a tile."""
        parts = self._seen(images, rows)
        room = self.statistics.room(parts) if self.statistics and parts else 0
        pixels = (images[1] - images[0]) * (rows[1] - rows[0]) * self.layer.y.shape[2]
        return pixels * self.y_words + room

    def _x_need(self, images: Interval, rows: Interval) -> Need:
        layer = self.layer
        return self.program.need(layer.x, images, layer.lines(0, *rows), (0, layer.input_map[1]))

    def _weights_need(self, tile: int, whole: bool) -> Need:
        layer = self.layer
        kh, kw = layer.kernel
        channels = None if whole else self.program.whole_words(self.tiles.range(tile))
        return self.program.need(layer.weights, (0, kh), (0, kw), (0, layer.inputs), channels)

    def _bias_needs(self) -> list[Need]:
        bias = self.layer.bias
        box = (0, 1), (0, 1), (0, self.tiles.count)
        return [] if bias is None else [self.program.need(bias, *box)]

    def _tile(self, images: Interval, rows: Interval, tile: int, *places: Block) -> None:
        output, x, weights, *bias = places[len(self.held) :]
        program, layer, core = self.program, self.layer, self.core
        channels = self.tiles.range(tile)
        valid = channels[1] - channels[0]
        blocks = layer.input_blocks(*channels, core.rows)
        self._weights(tile, valid, blocks, weights, *bias)
        bank = program.next_bank()
        self._matmul(images, rows, valid, blocks, bank, x)
        count, height, width = images[1] - images[0], rows[1] - rows[0], layer.output_map[1]
        order = self._order(images, rows)
        by_image, by_row, by_column = strides_of((count, height, width), order, self.y_words)
        wide = layer.y.kind == "float32"
        last = tile == self.tiles.count - 1
        end = layer.y.pitch if last else channels[1]
        place, fields = program.column_place(channels, end, wide=wide)
        program.post(
            fields
            | {
                "accumulator_bank": bank,
                "relu": int(self.relu),
                "wo_count": width,
                "ho_count": height,
                "n_count": count,
                "wo_stride": 1,
                "ho_stride": width,
                "n_stride": height * width,
                "out_address": output.address + place,
                "out_wo_stride": by_column,
                "out_ho_stride": by_row,
                "out_n_stride": by_image,
            },
            output,
        )
        if last:
            if self.held and self.reorganizer:
                self.reorganizer.observe(images, rows, output, order)
                # If it stayed, what is read next would go into the bank of the sums.
                program.scratch.drop([x])
            if not self.looks:
                self._store(images, rows, output)
                program.scratch.drop([output])

    def _store(self, images: Interval, rows: Interval, output: Block) -> None:
        y = self.layer.y
        box = images, rows, (0, y.shape[2]), (0, y.pitch)
        self.program.store(y, box, output, order=self._order(images, rows))

    def _weights(
        self, tile: int, valid: int, blocks: Interval, weights: Block, bias: Block | None = None
    ) -> None:
        layer, core = self.layer, self.core
        channels = (
            (0, layer.weights.pitch)
            if self.whole
            else self.program.whole_words(self.tiles.range(tile))
        )
        word, skip = divmod(self.tiles.range(tile)[0] - channels[0], core.rows)
        words = self.program.words(layer.weights, channels)
        sizes = (*layer.kernel, layer.inputs)
        down, right, row = strides_of(sizes, layer.weights.order, words)
        fields = {
            "address": weights.address + word + blocks[0] * core.rows * row,
            "row_stride": row,
            "kw_count": layer.kernel[1],
            "kh_count": layer.kernel[0],
            "cb_count": blocks[1] - blocks[0],
            "kw_stride": right,
            "kh_stride": down,
            "cb_stride": core.rows * row,
            "row_limit": layer.inputs - blocks[0] * core.rows,
            "transpose": 1,
            "block_count": -(-(skip + valid) // core.rows),
            "skip": skip,
        }
        if bias is None or layer.bias is None:
            self.program.weights(fields, weights)
        else:
            words = self.program.words(layer.bias)
            fields |= {"bias": 1, "bias_address": bias.address + tile * words}
            self.program.weights(fields, weights, bias)

    def _matmul(
        self, images: Interval, rows: Interval, valid: int, blocks: Interval, bank: int, x: Block
    ) -> None:
        layer = self.layer
        walk = layer.walk(
            x, self.x_words, images, rows,
            taps=(0, layer.kernel[0]), input_lines=layer.lines(0, *rows), block=blocks[0],
        )  # fmt: skip
        self.program.matmul(
            walk
            | {
                "accumulator_bank": bank,
                "init": Init.ZERO if layer.bias is None else Init.BIAS,
                "channels": valid,
                "cb_count": blocks[1] - blocks[0],
            },
            x,
        )


class _Blocked(BlockedProduct):
    def __init__(
        self, program: CoreProgram, layer: Convolution, relu: bool,
        statistics: PartStatistics | None = None,
    ) -> None:  # fmt: skip
        axes = [
            Axis(
                origin=-layer.padding[axis],
                stride=layer.stride[axis], advance=layer.dilation[axis],
                taps=range(layer.kernel[axis]),
            )
            for axis in (0, 1)
        ]  # fmt: skip
        super().__init__(
            program, layer.name, layer.x, layer.y, layer.weights,
            layer.output_tiles(program.core), [(axes[0], axes[1])], (1, 1),
        )  # fmt: skip
        self.layer, self.relu, self.statistics = layer, relu, statistics

    def blocks(self, channels: Interval) -> Interval:
        return self.layer.input_blocks(*channels, self.core.rows)

    def weights_box(self, tile: int, blocks: Interval) -> tuple[Interval, Interval]:
        first, last = (min(block * self.core.rows, self.layer.inputs) for block in blocks)
        begin, end = self.program.whole_words(self.tiles.range(tile))
        return (first, last), (begin, min(end, self.weights.pitch))

    def weights_fields(self, tile: int, blocks: Interval, row: int) -> Fields:
        rows, (begin, end) = self.core.rows, self.tiles.range(tile)
        (first, last), (channel, _) = self.weights_box(tile, blocks)
        return {
            "row_stride": row,
            "cb_stride": rows * row,
            "row_limit": last - first,
            "transpose": 1,
            "block_count": -(-(begin - channel + end - begin) // rows),
            "skip": begin - channel,
        }

    def post_fields(self) -> Fields:
        return {"relu": int(self.relu)}

    def bias_need(self, tile: int) -> Need | None:
        bias = self.layer.bias
        if bias is None:
            return None
        return self.program.need(bias, (0, 1), (0, 1), (tile, tile + 1))
