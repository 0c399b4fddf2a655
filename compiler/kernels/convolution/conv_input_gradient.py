"""Input gradient of a convolution: phase by phase, without inserted zeros."""

from collections.abc import Sequence
from functools import partial
from itertools import product

from compiler.codegen.convolution_walk import clip, matmul_walk
from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.cost import WEIGHT_CYCLES, Fields
from compiler.codegen.scratchpad import Block
from compiler.tensors.encoding import codes_of
from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Tensor, strides_of
from hw.formats import FLOAT32

from .blocked_cut import Axis
from .blocked_product import BlockedProduct
from .conv_geometry import Convolution, Phase
from .conv_tiling import LineTooLarge, MapTile, cut_map
from .product_cost import blocked_jobs, tiled_cycles

__all__ = ["input_gradient"]


def input_gradient(
    program: CoreProgram, layer: Convolution, dy: Tensor, dx: Tensor, *, scale: float = 1.0
) -> None:
    """Commands that read ``dy`` (like ``layer.y``) and write ``dx`` (like ``layer.x``), times
    ``scale``, rounded to operands or as float32, as its kind says.

    A phase (h mod s, w mod s) of dX is a convolution of dY with stride 1 by its taps in reverse;
    the phases of a tile share an output block. K tiles as docs/training.md orders them. Where a
    line or the weights of a column tile have no room, or so little that the array would wait for
    weights, boxes of them as
    :class:`~compiler.kernels.convolution.blocked_product.BlockedProduct` cuts them.
    """
    plain = _InputGradient(program, layer, dy, dx, scale)
    tiles = plain.cut()
    cycles = None if tiles is None else plain.cycles(tiles)
    count = len(tiles or ()) * plain.tiles.count
    boxes = blocked_jobs(_Blocked(program, layer, dy, dx, plain.scale), cycles, count)
    program.run(plain.jobs(tiles or ()) if boxes is None else boxes)


class _InputGradient:
    def __init__(
        self, program: CoreProgram, layer: Convolution, dy: Tensor, dx: Tensor, scale: float
    ) -> None:
        self.program, self.layer, self.dy, self.dx = program, layer, dy, dx
        self.scale = int(codes_of(FLOAT32, scale))
        self.core = program.core
        self.tiles = layer.input_tiles(self.core)
        self.out_words, self.dy_words = program.words(dx), program.words(dy)
        self.w_words = program.words(layer.weights)

    def cut(self) -> list[MapTile] | None:
        """Tiles; None if a line has no room."""
        try:
            return self._cut()
        except LineTooLarge:
            return None

    def cycles(self, tiles: Sequence[MapTile]) -> tuple[int, int]:
        """As :func:`~compiler.kernels.convolution.product_cost.tiled_cycles`."""
        program, layer, core = self.program, self.layer, self.core
        columns = [self.tiles.range(tile) for tile in range(self.tiles.count)]
        blocks = [b - a for a, b in (layer.output_blocks(*c, core.rows) for c in columns)]

        def array(part: MapTile, least: int) -> int:
            found = 0
            for vertical, horizontal in product(*layer.phases):
                (h0, h1), (w0, w1) = (
                    self._numbers(axis, phase, lines)
                    for axis, phase, lines in (
                        (0, vertical, part[1]), (1, horizontal, (0, layer.input_map[1]))
                    )
                )  # fmt: skip
                vectors = (part[0][1] - part[0][0]) * max(0, h1 - h0) * max(0, w1 - w0)
                taps = vertical.taps * horizontal.taps
                if vectors:
                    found += taps * sum(blocks) * max(vectors, least) if taps else vectors
            return found

        def source(part: MapTile) -> int:
            lines = self._dy_lines(0, part[1]), (0, layer.output_map[1])
            return program.load_cycles(self.dy, (part[0], *lines, (0, self.dy.pitch)))

        box, rest = ((0, layer.kernel[0]), (0, layer.kernel[1])), (0, layer.weights.pitch)
        weights = [
            (self._weights_need(tile).words,
             program.load_cycles(layer.weights, (*box, part, rest)))
            for tile, part in enumerate(columns)
        ]  # fmt: skip
        return tiled_cycles(
            tiles, array=array, least=core.columns + WEIGHT_CYCLES,
            size=lambda part: self._dy_need(*part).words + self._out_size(*part),
            source=source, weights=weights, room=program.scratch.words,
        )  # fmt: skip

    def jobs(self, tiles: Sequence[MapTile]) -> list[Job]:
        jobs = []
        for images, rows in tiles:
            output = Need(object(), self._out_size(images, rows))
            for tile in range(self.tiles.count):
                needs = (output, self._dy_need(images, rows), self._weights_need(tile))
                run = partial(self._tile, images, rows, tile)
                like = *self._likeness(images, rows), tile
                jobs.append(Job(needs, run, like=like, at=(images[0], rows[0])))
        return jobs

    def _likeness(self, images: Interval, rows: Interval) -> tuple[int, ...]:
        """What tiles have in common that differ in where they lie in DRAM alone."""
        (begin, end), step = self._dy_lines(0, rows), self.layer.stride[0]
        count, size, phase = images[1] - images[0], rows[1] - rows[0], rows[0] % step
        return count, size, phase, begin * step - rows[0], end - begin

    def _cut(self) -> list[MapTile]:
        """[(images, rows)]: as many vectors of a phase as the accumulators hold, or fewer where
        blocks would be too large for the memory."""
        layer = self.layer
        height, width = layer.input_map
        return cut_map(
            self.program,
            layer.images, height, -(-width // layer.stride[1]),
            step=layer.stride[0],
            size=lambda *part: self._dy_need(*part).words + self._out_size(*part),
            weights=self._weights_need(0).words,
            what=f"layer {layer.name}: a line of its input gradient",
        )  # fmt: skip

    def _out_size(self, images: Interval, rows: Interval) -> int:
        return (images[1] - images[0]) * (rows[1] - rows[0]) * self.dx.shape[2] * self.out_words

    def _dy_lines(self, axis: int, rows: Interval) -> Interval:
        """Lines of dY that any phase of input lines [begin, end) reads."""
        layer = self.layer
        low, high = layer.output_map[axis], 0
        for phase in layer.phases[axis]:
            first, last = self._numbers(axis, phase, rows)
            if phase.taps and last > first:
                begin, end = phase.lines(first, last)
                low, high = min(low, begin), max(high, end)
        return clip(low, high, layer.output_map[axis])

    def _numbers(self, axis: int, phase: Phase, rows: Interval) -> Interval:
        """Numbers [begin, end) of the phase's lines among input lines ``rows``."""
        step = self.layer.stride[axis]
        begin, end = (-(-(line - phase.offset) // step) for line in rows)
        return begin, end

    def _dy_need(self, images: Interval, rows: Interval) -> Need:
        return self.program.need(
            self.dy, images, self._dy_lines(0, rows), (0, self.layer.output_map[1])
        )

    def _weights_need(self, tile: int) -> Need:
        layer, kernel = self.layer, self.layer.kernel
        return self.program.need(
            layer.weights, (0, kernel[0]), (0, kernel[1]), self.tiles.range(tile)
        )

    def _tile(
        self, images: Interval, rows: Interval, tile: int, output: Block, dy: Block, weights: Block
    ) -> None:
        program, layer = self.program, self.layer
        for vertical in layer.phases[0]:
            numbers = self._numbers(0, vertical, rows)
            for horizontal in layer.phases[1]:
                columns = self._numbers(1, horizontal, (0, layer.input_map[1]))
                if numbers[1] > numbers[0] and columns[1] > columns[0]:
                    part = _Part(images, rows, vertical, horizontal, numbers, columns)
                    self._phase(part, tile, dy, weights, output)
        if tile == self.tiles.count - 1:
            box = (images, rows, (0, layer.input_map[1]), (0, self.dx.pitch))
            program.store(self.dx, box, output)
            program.scratch.drop([output])

    def _phase(self, part: "_Part", tile: int, dy: Block, weights: Block, output: Block) -> None:
        program, layer, core = self.program, self.layer, self.core
        vertical, horizontal = part.vertical, part.horizontal
        empty = not (vertical.taps and horizontal.taps)
        kh_count, kw_count = (1, 1) if empty else (vertical.taps, horizontal.taps)
        channels = self.tiles.range(tile)
        valid = channels[1] - channels[0]
        blocks = layer.output_blocks(*channels, core.rows)
        if empty:
            blocks = (0, 1)
        sizes = (*layer.kernel, valid)
        down, right, row = strides_of(sizes, layer.weights.order, self.w_words)
        program.weights(
            {
                "address": weights.address
                + vertical.tap * down
                + horizontal.tap * right
                + blocks[0],
                "row_stride": row,
                "kw_count": kw_count,
                "kh_count": kh_count,
                "cb_count": blocks[1] - blocks[0],
                "kw_stride": -horizontal.tap_step * right,
                "kh_stride": -vertical.tap_step * down,
                "cb_stride": 1,
                "row_limit": 0 if empty else valid,
                "transpose": 0,
            },
            weights,
        )
        walk = matmul_walk(
            dy.address + blocks[0],
            self.dy_words,
            images=part.images[1] - part.images[0],
            outputs=(part.numbers, part.columns),
            taps=((0, kh_count), (0, kw_count)),
            lines=(self._dy_lines(0, part.rows), (0, layer.output_map[1])),
            stride=(1, 1),
            padding=(-vertical.line, -horizontal.line),
            dilation=(vertical.line_step, horizontal.line_step),
        )
        if empty:
            walk["h_limit"] = 0
        bank = program.next_bank()
        rows = part.numbers[1] - part.numbers[0]
        columns = part.columns[1] - part.columns[0]
        images = part.images[1] - part.images[0]
        program.matmul(
            walk | {"accumulator_bank": bank, "channels": valid, "cb_count": blocks[1] - blocks[0]},
            dy,
        )
        wide = self.dx.kind == "float32"
        end = self.dx.pitch if tile == self.tiles.count - 1 else channels[1]
        place, fields = program.column_place(channels, end, wide=wide)
        out, (height, width) = self.out_words, (part.rows[1] - part.rows[0], layer.input_map[1])
        first_row = vertical.offset + part.numbers[0] * layer.stride[0] - part.rows[0]
        first = first_row * width + horizontal.offset
        program.post(
            fields
            | {
                "accumulator_bank": bank,
                "scale": self.scale,
                "wo_count": columns,
                "ho_count": rows,
                "n_count": images,
                "wo_stride": 1,
                "ho_stride": columns,
                "n_stride": columns * rows,
                "out_address": output.address + first * out + place,
                "out_wo_stride": layer.stride[1] * out,
                "out_ho_stride": layer.stride[0] * width * out,
                "out_n_stride": height * width * out,
            },
            output,
        )


class _Part:
    """A phase of a tile: images, input rows, and the numbers of the phase's rows and columns."""

    def __init__(
        self,
        images: Interval,
        rows: Interval,
        vertical: Phase,
        horizontal: Phase,
        numbers: Interval,
        columns: Interval,
    ) -> None:
        self.images, self.rows = images, rows
        self.vertical, self.horizontal = vertical, horizontal
        self.numbers, self.columns = numbers, columns


class _Blocked(BlockedProduct):
    def __init__(
        self, program: CoreProgram, layer: Convolution, dy: Tensor, dx: Tensor, scale: int
    ) -> None:
        vertical, horizontal = (
            [self._axis(layer, axis, phase) for phase in layer.phases[axis]] for axis in (0, 1)
        )
        step = tuple(
            min(stride, size) for stride, size in zip(layer.stride, layer.input_map, strict=True)
        )
        super().__init__(
            program, layer.name, dy, dx, layer.weights, layer.input_tiles(program.core),
            list(product(vertical, horizontal)), (step[0], step[1]),
        )  # fmt: skip
        self.layer, self.scale = layer, scale

    @staticmethod
    def _axis(layer: Convolution, axis: int, phase: Phase) -> Axis:
        last = phase.tap - phase.taps * phase.tap_step
        return Axis(
            offset=phase.offset, step=layer.stride[axis],
            origin=phase.line, stride=1, advance=phase.line_step,
            taps=range(phase.tap, last, -phase.tap_step),
        )  # fmt: skip

    def blocks(self, channels: Interval) -> Interval:
        return self.layer.output_blocks(*channels, self.core.rows)

    def weights_box(self, tile: int, blocks: Interval) -> tuple[Interval, Interval]:
        begin, end = (block * self.core.rows for block in blocks)
        return self.tiles.range(tile), (begin, min(end, self.weights.pitch))

    def weights_fields(self, tile: int, blocks: Interval, row: int) -> Fields:
        begin, end = self.tiles.range(tile)
        return {"row_stride": row, "cb_stride": 1, "row_limit": end - begin, "transpose": 0}

    def post_fields(self) -> Fields:
        return {"scale": self.scale}
