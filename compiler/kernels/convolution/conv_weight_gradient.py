"""Weight and bias gradient of a convolution."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.kernels.tiling.late_work import Late, behind
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor
from hw.isa.encoding import Init

from .conv_geometry import Convolution
from .conv_weight_gradient_ranges import Output, Range
from .conv_weight_gradient_tiling import Piece, WeightGradientPlan
from .gathered_pixels import Gathered

__all__ = ["weight_gradient"]


def weight_gradient(
    program: CoreProgram,
    layer: Convolution,
    dy: Tensor,
    dw: Tensor | None,
    db: Tensor | None = None,
    *,
    relu: bool = False,
) -> None:
    """Commands that read ``layer.x`` and ``dy`` (like ``layer.y``) and write ``dw`` (like the
    weights), float32 or rounded to operands, perhaps behind a ReLU, and float32 ``db`` (like the
    bias), or the one of them that is not None.

    Accumulators hold the taps and input channels of a *range* for some column tiles; pixels go
    through them in pieces of whole K tiles, which may reach from one image into the next. Where
    both maps fit into the buffer they are loaded once, piece by piece, while the first column tiles
    are computed; the others take all pixels in one command. Results of all column tiles but the
    last are stored while that one is computed.

    Without ``dw`` the map beside dY is dY itself, of which one word per pixel is multiplied: the
    sums of dY come from vectors of ones, and the array takes no less time for a K tile.
    """
    if dw is None:
        kernel = replace(layer.weights, shape=(1, 1, *layer.weights.shape[2:]))
        layer = Convolution(name=layer.name, x=dy, y=layer.y, weights=kernel, bias=layer.bias,
                            groups=layer.groups)  # fmt: skip
    _WeightGradient(program, layer, dy, dw, db, relu).write()


@dataclass(frozen=True)
class _Sums:
    """A column tile of a range, and the accumulators with its sums."""

    part: Range
    tile: int
    bank: int
    address: int


@dataclass(frozen=True)
class _Map:
    """Where MATMUL and WEIGHTS find a map: lines [begin, end) of images from ``first`` on, pixels
    of ``words`` words whose first channel is ``channel``."""

    block: Block
    first: int
    lines: tuple[int, int]
    words: int
    channel: int

    def part(self, images: Interval, lines: Interval, width: int) -> Block:
        """The block of ``lines``, if there are several ``images`` all that are there, of images
        (begin, end)."""
        image, line = self.lines[1] - self.lines[0], width * self.words
        first = (images[0] - self.first) * image + lines[0] - self.lines[0]
        count = (images[1] - images[0] - 1) * image + lines[1] - lines[0]
        return self.block.part(first * line, count * line)


#: What has been computed, and where it lies.
_Result = tuple[Output, Block]


class _WeightGradient:
    def __init__(
        self,
        program: CoreProgram,
        layer: Convolution,
        dy: Tensor,
        dw: Tensor | None,
        db: Tensor | None,
        relu: bool,
    ) -> None:
        self.program, self.core, self.dw, self.db = program, program.core, dw, db
        self.relu = relu
        self.plan = WeightGradientPlan(program, layer, dy, dw, db)
        self.layer, self.dy, self.tiles = self.plan.layer, self.plan.dy, self.plan.tiles
        self.known = self.layer is layer

    def write(self) -> None:
        write = self._whole_jobs if self.plan.whole else self._piece_jobs
        self.program.expect(self.plan.jobs)
        with self.plan.held_outputs(self.plan.ranges) if self.plan.room.tight else nullcontext():
            pieces = self.plan.pieces
            first = pieces if self.plan.whole else self.plan.short_first(pieces)
            jobs = []
            for number, part in enumerate(self.plan.ranges):
                jobs += write(part, pieces if number else first)
            self.program.run(behind(jobs))
        self.program.scratch.forget(self.plan.owner)
        if not self.known:
            # Boxes of a flat map are not seen to be parts of the map.
            self.program.scratch.forget(self.layer.x.name, self.dy.name)

    # Jobs ------------------------------------------------------------------------------------

    def _steps(
        self, part: Range, tiles: range, pieces: Sequence[Piece]
    ) -> Iterator[tuple[Piece, _Sums, bool, Sequence[_Sums]]]:
        """(piece, sums, whether they begin, those that are whole then) one after the other."""
        places, half = [], -(-len(tiles) // 2)
        for number, tile in enumerate(tiles):
            if number % half == 0:
                bank = self.program.next_bank()
            places.append(_Sums(part, tile, bank, number % half * self.plan.entries(part)))
        for piece in pieces:
            for number, sums in enumerate(places, 1):
                ends = ()
                if piece is pieces[-1] and (number % half == 0 or number == len(places)):
                    ends = [other for other in places if other.bank == sums.bank]
                yield piece, sums, piece is pieces[0], ends

    def _piece_jobs(self, part: Range, pieces: Sequence[Piece]) -> list[tuple[Job, Sequence[Late]]]:
        """A job for each piece and column tile; the tiles of a batch share what they read. Where
        there is room results are stored behind the next product, which many stores would keep out
        of its queue."""
        plan, outputs = self.plan, self.plan.outputs(part)
        jobs: list[tuple[Job, Sequence[Late]]] = []
        for batch in plan.batches(part):
            channels = plan.dy_channels(batch)
            maps = {id(p): (plan.x_need(p, part), plan.dy_need(p, channels)) for p in pieces}
            for piece, sums, begins, ends in self._steps(part, batch, pieces):
                whole = [output for output in outputs if _is_in(output, ends)]
                late = [self._late(part, whole)] if whole and plan.room.late else []
                stored = [] if late else whole
                run = partial(self._piece, piece, channels, sums, begins, ends, outputs, stored)
                needs = (*(output.need for output in outputs), *maps[id(piece)])
                like, at = plan.likeness(piece, part, channels, sums.tile)
                here = self.tiles.range(sums.tile)[0]
                like = (
                    like, sums.bank, sums.address, begins,
                    *(other.tile - sums.tile for other in ends), "outputs",
                    *(output.channels and (output.channels[0] - here, output.channels[1] - here)
                      for output in outputs),
                )  # fmt: skip
                jobs.append((Job(needs, run, like=like, at=at), late))
                outputs = [output for output in outputs if output not in whole]
        return jobs

    def _late(self, part: Range, outputs: Sequence[Output]) -> Late:
        """STORE of results of a range behind the job that follows."""

        def store(*blocks: Block) -> None:
            self._store(part, list(zip(outputs, blocks, strict=True)))

        parts = [self.plan.inputs(part), *(output.channels or (0, 0) for output in outputs)]
        like = part.taps, *(end - begin for begin, end in parts)
        at = tuple(begin for begin, _ in parts)
        return Late(tuple(output.need for output in outputs), store, like, at)

    def _piece(
        self,
        piece: Piece,
        channels: Interval,
        sums: _Sums,
        begins: bool,
        ends: Iterable[_Sums],
        outputs: Sequence[Output],
        stored: Sequence[Output],
        *blocks: Block,
    ) -> None:
        *results, x, dy = blocks
        b0, b1 = sums.part.blocks
        words = self.program.words(self.dy, channels)
        if isinstance(piece, Gathered):
            begin = self.tiles.range(sums.tile)[0] - channels[0]
            self._bring(sums, piece.pixels, dy, words, begin)
            self._multiply(sums, begins, x, piece.walk(x, b1 - b0, sums.part.taps))
        else:
            images, rows = piece
            lines = self.layer.lines(0, *rows, sums.part.rows)
            maps = (
                _Map(x, images[0], lines, b1 - b0, b0 * self.core.rows),
                _Map(dy, images[0], rows, words, channels[0]),
            )
            self._product(sums, images, rows, begins, *maps)
        results = list(zip(outputs, results, strict=True))
        self._post(ends, results)
        self._store(sums.part, [pair for pair in results if pair[0] in stored])

    def _whole_jobs(self, part: Range, pieces: Sequence[Piece]) -> list[tuple[Job, Sequence[Late]]]:
        """One job: what is not in the memory comes piece by piece."""
        outputs = self.plan.outputs(part)
        absent: list[Tensor] = []

        def note(tensor: Tensor) -> Callable[[Block], None]:
            return lambda _: absent.append(tensor)

        x, dy = (
            need._replace(load=note(tensor))
            for tensor, need in ((self.layer.x, self.plan.x_need()), (self.dy, self.plan.dy_need()))
        )
        run = partial(self._whole, part, pieces, outputs, absent)
        return [(Job((*(output.need for output in outputs), x, dy), run), ())]

    def _whole(
        self,
        part: Range,
        pieces: Sequence[Piece],
        outputs: Sequence[Output],
        absent: Sequence[Tensor],
        *blocks: Block,
    ) -> None:
        (height, _), (lines, _) = self.layer.input_map, self.layer.output_map
        everything: list[Piece] = [((0, self.layer.images), (0, lines))]
        *results, x, dy = blocks
        results = list(zip(outputs, results, strict=True))
        x = _Map(x, 0, (0, height), self.program.words(self.layer.x), 0)
        dy = _Map(dy, 0, (0, lines), self.program.words(self.dy), 0)
        if not absent:
            pieces = everything
        loads = self._loads(pieces, absent, x, dy)
        next(loads)
        first = part.tiles[0]
        batch, begun = self.plan.batch(part, first) if absent else range(first, first + 1), None
        stored: list[_Result] = []
        while batch:
            for piece, sums, begins, ends in self._steps(part, batch, pieces):
                if piece is not begun:
                    next(loads, None)
                    begun = piece
                assert not isinstance(piece, Gathered), "both maps are there"
                self._product(sums, *piece, begins, x, dy)
                # Many stores would keep the product behind them out of its queue.
                self._store(part, stored)
                self._post(ends, results)
                stored = [pair for pair in results if _is_in(pair[0], ends)]
                results = [pair for pair in results if not _is_in(pair[0], ends)]
            batch, pieces = range(batch.stop, min(batch.stop + 1, part.tiles[1])), everything
        self._store(part, stored)

    def _loads(
        self, pieces: Sequence[Piece], absent: Sequence[Tensor], x: _Map, dy: _Map
    ) -> Iterator[None]:
        """Load what is ``absent`` of both maps, piece after piece; yields behind each."""
        layer, done = self.layer, 0
        (height, width), (_, columns) = layer.input_map, layer.output_map
        for piece in pieces:
            assert not isinstance(piece, Gathered), "both maps fit"
            images, rows = piece
            lines = 0, height
            if layer.images == 1:
                end = height if rows[1] == layer.output_map[0] else layer.lines(0, *rows)[1]
                lines, done = (done, max(done, end)), max(done, end)
            maps = ((layer.x, x, lines, width), (self.dy, dy, rows, columns))
            for tensor, place, part, size in maps[self.dw is None :]:
                if tensor in absent and part[1] > part[0]:
                    block = place.part(images, part, size)
                    box = images, part, (0, size), (0, tensor.pitch)
                    self.program.load(tensor, box, block)
            yield

    # Commands --------------------------------------------------------------------------------

    def _product(
        self, sums: _Sums, images: Interval, rows: Interval, begins: bool, x: _Map, dy: _Map
    ) -> None:
        """WEIGHTS and MATMUL of a piece: output ``rows`` of ``images``."""
        layer, part = self.layer, sums.part
        width = layer.output_map[1]
        pixels = (images[1] - images[0]) * (rows[1] - rows[0]) * width
        begin = self.tiles.range(sums.tile)[0] - dy.channel
        self._bring(sums, pixels, dy.part(images, rows, width), dy.words, begin)
        input_lines = x.lines if layer.images > 1 else layer.lines(0, *rows, part.rows)
        block = x.part(images, input_lines, layer.input_map[1])
        walk = layer.walk(
            block, x.words, images, rows, taps=part.rows, columns=part.columns,
            input_lines=input_lines, block=part.blocks[0] - x.channel // self.core.rows,
        )  # fmt: skip
        self._multiply(sums, begins, block, walk)

    def _bring(self, sums: _Sums, pixels: int, dy: Block, words: int, begin: int) -> None:
        """WEIGHTS of dY, pixel after pixel of so many words; the column tile begins with channel
        ``begin`` of them."""
        rows = self.core.rows
        word, skip = divmod(begin, rows)
        first, last = self.tiles.range(sums.tile)
        self.program.weights(
            {
                "address": dy.address + word,
                "row_stride": words,
                "cb_count": -(-pixels // rows),
                "cb_stride": rows * words,
                "row_limit": pixels,
                "transpose": 1,
                "block_count": -(-(skip + last - first) // rows),
                "skip": skip,
            },
            dy,
        )

    def _multiply(self, sums: _Sums, begins: bool, x: Block, walk: Fields) -> None:
        """MATMUL over the pixels and taps of ``walk``."""
        part, (first, last) = sums.part, self.tiles.range(sums.tile)
        self.program.matmul(
            walk
            | {
                "accumulator_bank": sums.bank,
                "accumulator_address": sums.address,
                "init": Init.ZERO if begins else Init.ACCUMULATOR,
                "channels": last - first,
                "cb_count": part.blocks[1] - part.blocks[0],
                "transpose": 1,
                "ones": int(self.plan.has_bias(part)),
            },
            x,
        )

    def _post(self, ends: Iterable[_Sums], results: Sequence[_Result]) -> None:
        """POST of sums that are whole into ``results`` (output, block)."""
        for sums in ends:
            for output, block in results:
                self._post_tile(sums, output.channels, block)

    def _post_tile(self, sums: _Sums, channels: Channels, block: Block) -> None:
        """POST of a column tile, if it is among ``channels``: whole words of input channels, then
        the rest; or of its sums of dY, which the vectors of ones have left behind all others."""
        program, core, part = self.program, self.core, sums.part
        begin, end = self.tiles.range(sums.tile)
        taps = part.tap_count
        if channels is None:
            assert self.db is not None
            _, fields = program.column_place((0, end - begin), self.db.pitch, wide=True)
            address = sums.address + (part.blocks[1] - part.blocks[0]) * taps * core.rows
            place = (sums.tile - part.tiles[0]) * program.words(self.db)
            fields |= {"accumulator_bank": sums.bank, "accumulator_address": address}
            program.post(fields | {"out_address": block.address + place}, block)
        if channels is None or not channels[0] <= begin < channels[1]:
            return
        assert self.dw is not None
        stop = channels[1] if end == self.tiles.channels else end
        wide = self.dw.kind == "float32"
        place, fields = program.column_place(
            (begin - channels[0], end - channels[0]), stop - channels[0], wide=wide
        )
        first, last = self.plan.inputs(part)
        row = program.words(self.dw, channels)
        whole, rest = divmod(last - first, core.rows)
        for word, words, lanes in ((0, whole, core.rows), (whole, 1, rest)):
            if words and lanes:
                program.post(
                    fields
                    | {
                        "accumulator_bank": sums.bank,
                        "relu": int(self.relu),
                        "accumulator_address": sums.address + word * taps * core.rows,
                        "wo_count": lanes,
                        "ho_count": taps,
                        "n_count": words,
                        "wo_stride": 1,
                        "ho_stride": core.rows,
                        "n_stride": taps * core.rows,
                        "out_address": block.address + word * core.rows * row + place,
                        "out_wo_stride": row,
                        "out_ho_stride": (last - first) * row,
                        "out_n_stride": core.rows * row,
                    },
                    block,
                )

    def _store(self, part: Range, results: Sequence[_Result]) -> None:
        """STORE of results that are whole."""
        for output, block in results:
            if output.channels is None:
                assert self.db is not None
                box = (0, 1), (0, 1), part.tiles, (0, self.db.pitch)
                self.program.store(self.db, box, block)
            else:
                assert self.dw is not None
                box = *part.taps, self.plan.inputs(part), output.channels
                self.program.store(self.dw, box, block)
        self.program.scratch.drop(block for _, block in results)


def _is_in(output: Output, ends: Iterable[_Sums]) -> bool:
    """Whether the last column tile of ``output`` is among ``ends``."""
    return output.last in {sums.tile for sums in ends}
