"""Running statistics of a predicted layer, and what is made of them."""

from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.splitting import MOST_WORDS, channel_parts, channel_steps
from compiler.kernels.updates.scalars import Scalars, channel_sum, repeat, running
from compiler.tensors.intervals import ChannelBox, Channels, Interval, even_parts
from compiler.tensors.parameters import lanes
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

from .tensors import GRADIENT_STATISTICS, INPUT_STATISTICS, LayerTensors

__all__ = ["BLOCK", "gradient_statistics", "standardize"]

#: Rows of a layer's weights that are added up by themselves.
BLOCK = 32
#: Added to a variance, to a mean square.
VARIANCE_EPSILON, SQUARE_EPSILON = 1e-8, 2.0**-100


def standardize(
    program: CoreProgram, layer: LayerTensors, ones: Tensor, *, factor: float | None = None
) -> None:
    """Commands that write ``layer.inputs`` from ``layer.cells``; with a ``factor``, the weight of
    the past, statistics take the batch in first.

    ``ones`` is a tensor of a word of operands 1.
    """
    chunks, vector = program.core.chunks_per_wide, program.vector
    cells, inputs, outputs = layer.cells, layer.inputs, layer.outputs
    size = cells.shape[1]
    words = program.words(inputs)
    whole = cells.pixels
    count = len(INPUT_STATISTICS)
    state_box = ((0, 1), (0, 1), (0, count))
    out_box = ((0, 1), (0, size * size), (0, 1))

    def run(
        state_block: Block, cells_block: Block, ones_block: Block, out: Block, room: Block
    ) -> None:
        state = Scalars.stored(program, state_block, layer.input_statistics)
        values = program.view(cells_block, cells, *whole)
        mean, inverse, total, new, sink = _split(program, room, words, outputs, 3)
        if factor is not None:
            share = 1.0 / (size * size * outputs)
            vector.fill(new[0], 1.0)
            vector.sum(total, values)
            channel_sum(program, new[1], total, ones_block)
            vector.scale(new[1], new[1], share)
            repeat(program, mean, new[1])
            vector.sum(total, values, y=mean, term=Term.SUBTRACT, factor=Factor.U)
            channel_sum(program, new[2], total, ones_block)
            vector.scale(new[2], new[2], share)
            running(program, state[0:3], new.all, factor, sink)
            weight, mean_sum, variance_sum, mean_row, inverse_row = (state[n] for n in range(count))
            vector.divide(mean_row, mean_sum, weight, guarded=1)
            vector.divide(new[0], variance_sum, weight)
            vector.add(new[0], new[0], VARIANCE_EPSILON)
            vector.root(new[0], new[0])
            vector.divide(inverse_row, 1.0, new[0], guarded=1)
            program.store(layer.input_statistics, (*state_box, (0, layer.input_statistics.pitch)),
                          state_block)  # fmt: skip
        repeat(program, mean, state[3])
        repeat(program, inverse, state[4])
        result = View.dense(out, (1, size, size, outputs), words)
        vector.emit(result, values, mean, inverse, term=Term.SUBTRACT, factor=Factor.Z)
        program.store(inputs, (*out_box, (0, inputs.pitch)), out)
        program.scratch.drop([out, room])

    needs = (
        program.need(layer.input_statistics, *state_box),
        program.need(cells, *whole),
        program.need(ones, (0, 1), (0, 1), (0, 1)),
        program.result(inputs, *out_box),
        Need(object(), words * (2 * chunks + 1) + Scalars.words(program, 4)),
    )
    program.run([Job(needs, run)])


def _split(
    program: CoreProgram, room: Block, words: int, outputs: int, count: int
) -> tuple[View, View, View, Scalars, View]:
    """A block as two float32 vectors, one of operands, ``count`` numbers, and one of no use."""
    chunks = program.core.chunks_per_wide
    shape, wide = (1, 1, 1, outputs), words * chunks
    first, second = (
        View.dense(room, shape, words, chunks=chunks, first=place) for place in (0, wide)
    )
    total = View.dense(room, shape, -(-outputs // program.core.rows), first=2 * wide)
    numbers = Scalars(program, room, count, first=2 * wide + words)
    sink = _sink(program, room, 2 * wide + words + Scalars.words(program, count))
    return first, second, total, numbers, sink


def _sink(program: CoreProgram, room: Block, first: int) -> View:
    """What a command writes that only watches numbers."""
    size = lanes(program.config)
    return View.dense(room, (1, 1, 1, size), -(-size // program.core.rows), first=first)


def gradient_statistics(
    program: CoreProgram, layer: LayerTensors, gradient: Tensor, ones: Tensor, *, factor: float
) -> None:
    """Commands that take the true ``gradient`` (1, n, 1, O) float32 and ``layer.prediction`` into
    the gradient statistics, and make scale, gate and their product of them."""
    _GradientStatistics(program, layer, gradient, ones, factor).write()


class _GradientStatistics:
    def __init__(
        self,
        program: CoreProgram,
        layer: LayerTensors,
        gradient: Tensor,
        ones: Tensor,
        factor: float,
    ) -> None:
        self.program, self.vector, self.layer = program, program.vector, layer
        self.gradient, self.ones, self.factor = gradient, ones, factor
        self.chunks = program.core.chunks_per_wide
        self.blocks = -(-layer.rows // BLOCK)
        self.words = program.words(layer.error)

    def write(self) -> None:
        program, layer = self.program, self.layer
        parts, count = self._cut()
        # Sums of all channels, as three vectors of operands, and those of the blocks of a part.
        # They stay where they are until the last job.
        totals = Need(object(), 3 * self.words)
        most = max(self._part_words(channels) for channels in parts)
        sums = Need(object(), 3 * self.blocks * most * self.chunks)
        jobs = []
        for channels in parts:
            for group in even_parts(0, self.blocks, count):
                rows = (group[0] * BLOCK, min(group[1] * BLOCK, layer.rows))
                box = ((0, 1), rows, (0, 1), channels)
                maps = [program.need(tensor, *box) for tensor in (self.gradient, layer.prediction)]
                needs = (totals, sums, *maps)
                jobs.append(Job(needs, partial(self._sum, box, group)))
            jobs.append(Job((totals, sums), partial(self._total, channels)))
        count = len(GRADIENT_STATISTICS)
        needs = (
            totals,
            sums,
            program.need(layer.gradient_statistics, (0, 1), (0, 1), (0, count)),
            program.need(self.ones, (0, 1), (0, 1), (0, 1)),
            Need(object(), Scalars.words(program, 5)),
        )
        jobs.append(Job(needs, self._finish))
        program.run(jobs)

    def _cut(self) -> tuple[list[Channels], int]:
        """Parts of the channels, and blocks of rows that are in the buffer together."""
        program, layer = self.program, self.layer
        room = program.scratch.words - 3 * self.words
        for words in channel_steps(program, layer.error):
            wide = self.chunks * words
            free = room - 3 * self.blocks * wide
            # Two maps, those of the next job as well.
            for copies in (2, 1):
                most = min(free // (2 * copies), MOST_WORDS) // (BLOCK * wide)
                if most >= 1:
                    break
            if most >= 1:
                tensors = [layer.error, self.gradient, layer.prediction]
                return channel_parts(program, tensors, words), min(most, self.blocks)
        raise CompileError(
            f"layer {layer.name}: {BLOCK} rows of its gradient, one word per row, and the sums for "
            f"its gate do not fit into the buffer ({program.scratch.words} words)"
        )

    def _part_words(self, channels: Channels) -> int:
        """Words of operands that a row of a part of the channels has."""
        begin, end = channels or (0, self.layer.error.pitch)
        return -(-(min(end, self.layer.error.pitch) - begin) // self.program.core.rows)

    def _rows(self, block: Block, channels: Channels, what: int) -> View:
        """Sums of the blocks of rows: of g·g, of out·g, of out·out."""
        begin, end = channels or (0, self.layer.outputs)
        # Behind the channels a part may have words of the pitch alone.
        size = max(0, min(end, self.layer.outputs) - begin)
        words = self._part_words(channels)
        shape = (1, self.blocks, 1, size)
        return View.dense(block, shape, words, chunks=self.chunks,
                          first=what * self.blocks * words * self.chunks)  # fmt: skip

    def _sum(
        self,
        box: ChannelBox,
        group: Interval,
        totals: Block,
        sums: Block,
        gradient: Block,
        prediction: Block,
    ) -> None:
        program = self.program
        g = program.view(gradient, self.gradient, *box)
        out = program.view(prediction, self.layer.prediction, *box)
        for number in range(*group):
            first = (number - group[0]) * BLOCK
            part = (slice(None), slice(first, min(first + BLOCK, g.shape[1])))
            products: tuple[tuple[View, dict[str, Any]], ...] = (
                (g, {"factor": Factor.U}),
                (out, {"y": g[part], "factor": Factor.Y}),
                (out, {"factor": Factor.U}),
            )
            for what, (x, options) in enumerate(products):
                o = self._rows(sums, box[3], what)[:, number : number + 1]
                self.vector.sum(o, x[part], **options)

    def _total(self, channels: Channels, totals: Block, sums: Block) -> None:
        begin = (channels or (0, 0))[0] // self.program.core.rows
        for what in range(3):
            rows = self._rows(sums, channels, what)
            o = View.dense(totals, (1, 1, 1, rows.shape[3]), rows.words,
                           first=what * self.words + begin)  # fmt: skip
            if self.blocks == 1:
                self.vector.copy(o, rows)
            else:
                self.vector.sum(o, rows)

    def _finish(
        self, totals: Block, sums: Block, state_block: Block, ones: Block, room: Block
    ) -> None:
        program, vector, layer = self.program, self.vector, self.layer
        state = Scalars.stored(program, state_block, layer.gradient_statistics)
        new = Scalars(program, room, 4)
        sink = _sink(program, room, Scalars.words(program, 4))
        for what in range(3):
            words = -(-layer.outputs // program.core.rows)
            total = View.dense(totals, (1, 1, 1, layer.outputs), words,
                               first=what * self.words)  # fmt: skip
            channel_sum(program, new[1 + what], total, ones)
        vector.fill(new[0], 1.0)
        vector.scale(new[1:4], new[1:4], 1.0 / (layer.rows * layer.outputs))
        running(program, state[0:4], new.all, self.factor, sink)
        weight, square, product, power, scale, inverse, gate, factor = (
            state[n] for n in range(len(GRADIENT_STATISTICS))
        )
        # Nothing of it changes either if the batch was rejected.
        vector.divide(scale, square, weight, guarded=1)
        vector.add(scale, scale, SQUARE_EPSILON, guarded=1)
        vector.root(scale, scale, guarded=1)
        vector.divide(inverse, 1.0, scale, guarded=1)
        vector.scale(gate, scale, power, guarded=1)
        vector.divide(gate, product, gate, guarded=1)
        vector.mask(gate, gate, power, guarded=1)
        # 1 where the number is larger, or NaN; then 0 where it is not positive.
        vector.emit(gate, gate, 1.0, gate, term=Term.IMMEDIATE, condition=Condition.GREATER,
                    keep=1, carry=Carry.Z, guarded=1)  # fmt: skip
        vector.positive(gate, gate, guarded=1)
        vector.scale(factor, gate, scale, guarded=1)
        box = ((0, 1), (0, 1), (0, len(GRADIENT_STATISTICS)))
        program.store(layer.gradient_statistics, (*box, (0, layer.gradient_statistics.pitch)),
                      state_block)  # fmt: skip
        program.scratch.drop([totals, sums, room])
