"""Weight and bias gradient of a convolution."""

from dataclasses import dataclass
from functools import partial
from math import gcd

from hw.commands import Init

from .convolution import Convolution
from .core_program import CoreProgram, Job, Need
from .errors import CompileError

__all__ = ["weight_gradient"]


def weight_gradient(program: CoreProgram, layer: Convolution, dy, dw, db=None, *, relu=False):
    """Commands that read ``layer.x`` and ``dy`` (like ``layer.y``) and write ``dw`` (like the
    weights), float32 or rounded to operands, perhaps behind a ReLU, and float32 ``db`` (like the
    bias).

    Accumulators hold the taps and input channels of a *range* for one column tile; pixels go
    through them in tiles of whole K tiles. A range's rows are stored when its last column tile is
    done.
    """
    _WeightGradient(program, layer, dy, dw, db, relu).write()


@dataclass(frozen=True)
class _Range:
    """Blocks of input channels and kernel rows, (begin, end) each."""

    blocks: tuple[int, int]
    rows: tuple[int, int]


class _WeightGradient:
    def __init__(self, program, layer, dy, dw, db, relu):
        self.program, self.layer = program, layer
        self.dy, self.dw, self.db, self.relu = dy, dw, db, relu
        self.core = program.core
        self.tiles = -(-layer.outputs // self.core.columns)
        self.blocks = -(-layer.inputs // self.core.rows)
        self.w_words = program.words(dw)

    def write(self):
        ranges = self._ranges()
        pieces, self.whole = self._cut(ranges)
        jobs = []
        for part in ranges:
            output = Need(object(), self._out_size(part))
            for tile in range(self.tiles):
                bank = []
                for number, (images, rows) in enumerate(pieces):
                    needs = [
                        output,
                        self._x_need(images, rows, part),
                        self._dy_need(images, rows, tile),
                    ]
                    last = number == len(pieces) - 1
                    if last and self._has_bias(part):
                        needs.append(Need(object(), self.program.words(self.db)))
                    run = partial(self._piece, images, rows, part, tile, bank, last)
                    jobs.append(Job(tuple(needs), run))
        self.program.run(jobs)

    # Cutting ---------------------------------------------------------------------------------

    def _ranges(self):
        """As much as the accumulators hold, and a quarter of the buffer the results."""
        layer, core = self.layer, self.core
        kernel, width = layer.kernel
        line = width * core.rows  # entries of a kernel row and block
        room = self.program.scratch.words // 4 // self.w_words  # results are rows of the weights
        most = min(core.accumulator_depth - (self.db is not None), max(room, line)) // line
        if not most:
            raise CompileError(
                f"layer {layer.name}: the weight gradient of a row of its kernel does not fit into "
                f"the accumulators ({core.accumulator_depth} vectors)"
            )
        if most >= kernel:
            step = most // kernel
            return [_Range((b, min(b + step, self.blocks)), (0, kernel))
                    for b in range(0, self.blocks, step)]  # fmt: skip
        return [_Range((b, b + 1), (kh, min(kh + most, kernel)))
                for b in range(self.blocks) for kh in range(0, kernel, most)]  # fmt: skip

    def _cut(self, ranges):
        """([(images, output rows)], whether blocks hold all channels).

        All pieces but the last are whole K tiles. All channels of all pieces stay in the memory if
        there is room.
        """
        layer, rows = self.layer, self.core.rows
        height, width = layer.output_map
        room = self.program.scratch.words - self._out_size(ranges[0])
        cuts = []
        group = rows // gcd(rows, height * width)
        for count in range(-(-layer.images // group) * group, 0, -group):
            cuts.append([((n, min(n + count, layer.images)), (0, height))
                         for n in range(0, layer.images, count)])  # fmt: skip
        if group == 1:
            unit = rows // gcd(rows, width)
            for lines in range(height // unit * unit, 0, -unit):
                cuts.append(
                    [
                        ((n, n + 1), (h, min(h + lines, height)))
                        for n in range(layer.images)
                        for h in range(0, height, lines)
                    ]
                )
        self.whole = True
        for pieces in cuts:
            size = sum(self._piece_size(piece, _Range((0, self.blocks), ranges[0].rows), 0)
                       for piece in pieces)  # fmt: skip
            if size <= room and (len(pieces) >= 4 or pieces is cuts[-1]):
                return pieces, True
        self.whole = False
        for share in (2, 1):
            for pieces in cuts:
                largest = max(
                    self._piece_size(piece, part, tile)
                    for piece in (pieces[0], pieces[-1])
                    for part in (ranges[0], ranges[-1])
                    for tile in range(self.tiles)
                )
                if largest * share <= room:
                    return pieces, False
        raise CompileError(
            f"layer {layer.name}: {group} images of {layer.input_map} and their gradients, which "
            f"its weight gradient needs together, do not fit into the buffer "
            f"({self.program.scratch.words} words)"
        )

    def _piece_size(self, piece, part, tile):
        return self._x_need(*piece, part).words + self._dy_need(*piece, tile).words

    def _out_size(self, part):
        return self._out_rows(part) * self.w_words

    def _out_rows(self, part):
        """Rows (kh, kw, ci) of the weights in a range."""
        first, last = self._inputs(part)
        return (part.rows[1] - part.rows[0]) * self.layer.kernel[1] * (last - first)

    def _inputs(self, part):
        rows = self.core.rows
        return part.blocks[0] * rows, min(part.blocks[1] * rows, self.layer.inputs)

    def _x_channels(self, part):
        if self.whole:
            return 0, self.layer.x.pitch
        return tuple(block * self.core.rows for block in part.blocks)

    def _x_need(self, images, rows, part):
        layer = self.layer
        taps = (0, layer.kernel[0]) if self.whole else part.rows
        lines = layer.lines(0, *rows, taps)
        return self.program.need(
            layer.x, images, lines, (0, layer.input_map[1]), self._x_channels(part)
        )

    def _dy_channels(self, tile):
        if self.whole:
            return 0, self.dy.pitch
        return self.program.tile_channels(tile, self.layer.outputs)

    def _dy_need(self, images, rows, tile):
        width = (0, self.layer.output_map[1])
        return self.program.need(self.dy, images, rows, width, self._dy_channels(tile))

    # Commands --------------------------------------------------------------------------------

    def _has_bias(self, part):
        return self.db is not None and part.blocks[0] == 0 and part.rows[0] == 0

    def _piece(self, images, rows, part, tile, bank, last, output, x, dy, bias=None):
        program, layer, core = self.program, self.layer, self.core
        init = Init.ACCUMULATOR if bank else Init.ZERO
        if not bank:
            bank.append(program.next_bank())
        valid = min(core.columns, layer.outputs - tile * core.columns)
        pixels = (images[1] - images[0]) * (rows[1] - rows[0]) * layer.output_map[1]
        channels = self._dy_channels(tile)
        pixel = program.words(self.dy, channels)
        word, skip = divmod(tile * core.columns - channels[0], core.rows)
        program.weights(
            {
                "address": dy.address + word,
                "row_stride": pixel,
                "cb_count": -(-pixels // core.rows),
                "cb_stride": core.rows * pixel,
                "row_limit": pixels,
                "transpose": 1,
                "block_count": -(-(skip + valid) // core.rows),
                "skip": skip,
            },
            dy,
        )
        fields = {"accumulator_bank": bank[0], "init": init, "channels": valid}
        fields["ones"] = int(self._has_bias(part))
        self._matmul(images, rows, part, x, fields)
        if last:
            self._results(part, tile, bank[0], output)
            if bias is not None:
                self._bias(part, tile, valid, bank[0], bias)
            if tile == self.tiles - 1:
                box = (part.rows, (0, layer.kernel[1]), self._inputs(part), (0, self.dw.pitch))
                program.store(self.dw, box, output)
                program.scratch.drop([output])

    def _matmul(self, images, rows, part, x, fields):
        layer, program = self.layer, self.program
        channels = self._x_channels(part)
        taps = (0, layer.kernel[0]) if self.whole else part.rows
        walk = layer.walk(
            x, program.words(layer.x, channels), images, rows,
            taps=part.rows,
            slab=layer.lines(0, *rows, taps),
            block=part.blocks[0] - channels[0] // self.core.rows,
        )  # fmt: skip
        blocks = {"cb_count": part.blocks[1] - part.blocks[0], "transpose": 1}
        program.matmul(walk | blocks | fields, x)

    def _results(self, part, tile, bank, output):
        """POST of whole words of input channels, then of the rest."""
        program, layer, core = self.program, self.layer, self.core
        wide = self.dw.kind == "float32"
        place, fields = program.column_place(tile, layer.outputs, self.dw.pitch, wide=wide)
        first, last = self._inputs(part)
        taps = (part.rows[1] - part.rows[0]) * layer.kernel[1]
        whole, rest = divmod(last - first, core.rows)
        for block, blocks, lanes in ((0, whole, core.rows), (whole, 1, rest)):
            if blocks and lanes:
                program.post(
                    fields
                    | {
                        "accumulator_bank": bank,
                        "relu": int(self.relu),
                        "accumulator_address": block * taps * core.rows,
                        "wo_count": lanes,
                        "ho_count": taps,
                        "n_count": blocks,
                        "wo_stride": 1,
                        "ho_stride": core.rows,
                        "n_stride": taps * core.rows,
                        "out_address": output.address + block * core.rows * self.w_words + place,
                        "out_wo_stride": self.w_words,
                        "out_ho_stride": (last - first) * self.w_words,
                        "out_n_stride": core.rows * self.w_words,
                    },
                    output,
                )

    def _bias(self, part, tile, valid, bank, block):
        """POST of the sums of dY, which the vectors of ones have left behind all others."""
        program, core = self.program, self.core
        blocks, rows = (end - begin for begin, end in (part.blocks, part.rows))
        place, fields = program.column_place(0, valid, self.db.pitch, wide=True)
        program.post(
            fields
            | {
                "accumulator_bank": bank,
                "accumulator_address": blocks * rows * self.layer.kernel[1] * core.rows,
                "out_address": block.address + place,
            },
            block,
        )
        program.store(self.db, ((0, 1), (0, 1), (tile, tile + 1), (0, self.db.pitch)), block)
        program.scratch.drop([block])
