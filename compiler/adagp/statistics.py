"""Running statistics of a predicted layer's gradient, and what is made of them."""

from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.partial_sums import TURNS, MapSums
from compiler.kernels.tiling.splitting import MOST_WORDS, channel_parts, channel_steps
from compiler.kernels.tiling.state import held
from compiler.kernels.updates.scalars import Scalars, channel_sum, running, sink
from compiler.tensors.intervals import ChannelBox, Channels, Interval, equal_parts, even_parts
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

from .tensors import GRADIENT_STATISTICS, LayerTensors

__all__ = ["BLOCK", "finish_statistics", "gradient_statistics", "gradient_sums"]

#: Rows of a layer's weights that are added up by themselves.
BLOCK = 32
#: Added to a mean square.
SQUARE_EPSILON = 2.0**-100


def gradient_statistics(
    program: CoreProgram, layer: LayerTensors, gradient: Tensor, ones: Tensor, *, factor: float
) -> None:
    """Commands that take the true ``gradient`` (1, n, 1, O) float32 and ``layer.prediction`` into
    the gradient statistics, and make scale, gate and their product of them."""
    _GradientSums(program, layer, gradient, _Statistics(program, layer, ones, factor)).write()


def gradient_sums(program: CoreProgram, layer: LayerTensors, gradient: Tensor) -> None:
    """The part of :func:`gradient_statistics` that is work for the vector engine alone; its results
    are in ``layer.gradient_sums`` then."""
    _GradientSums(program, layer, gradient).write()


def finish_statistics(
    program: CoreProgram, layer: LayerTensors, ones: Tensor, *, factor: float
) -> None:
    """The rest of it."""
    sums = layer.gradient_sums
    need = program.need(sums, (0, 1), (0, 1), (0, sums.shape[2]))
    statistics = _Statistics(program, layer, ones, factor)
    program.run([Job((need, *statistics.needs), statistics.run)])


class _Statistics:
    """What is made of the sums of all rows: three vectors of operands for the channels."""

    def __init__(
        self, program: CoreProgram, layer: LayerTensors, ones: Tensor, factor: float
    ) -> None:
        self.program, self.layer, self.ones, self.factor = program, layer, ones, factor

    @property
    def needs(self) -> tuple[Need, Need, Need]:
        """What it needs besides the sums."""
        program, count = self.program, len(GRADIENT_STATISTICS)
        return (
            program.need(self.layer.gradient_statistics, (0, 1), (0, 1), (0, count)),
            program.need(self.ones, (0, 1), (0, 1), (0, 1)),
            Need(object(), Scalars.words(program, 5)),
        )

    def run(self, totals: Block, state_block: Block, ones: Block, room: Block) -> None:
        program, vector, layer = self.program, self.program.vector, self.layer
        size = program.words(layer.error)
        state = Scalars.stored(program, state_block, layer.gradient_statistics)
        new = Scalars(program, room, 4)
        nothing = sink(program, room, Scalars.words(program, 4))
        for what in range(3):
            words = -(-layer.outputs // program.core.rows)
            total = View.dense(totals, (1, 1, 1, layer.outputs), words,
                               first=what * size)  # fmt: skip
            channel_sum(program, new[1 + what], total, ones)
        vector.fill(new[0], 1.0)
        vector.scale(new[1:4], new[1:4], 1.0 / (layer.rows * layer.outputs))
        running(program, state[0:4], new.all, self.factor, nothing)
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
        program.scratch.drop([room])


class _GradientSums:
    def __init__(
        self,
        program: CoreProgram,
        layer: LayerTensors,
        gradient: Tensor,
        statistics: _Statistics | None = None,
    ) -> None:
        self.program, self.vector, self.layer = program, program.vector, layer
        self.gradient, self.statistics = gradient, statistics
        self.chunks = program.core.chunks_per_wide
        self.blocks = -(-layer.rows // BLOCK)
        self.words = program.words(layer.error)
        self.parts, self.count, self.streamed = self._cut()

    # What is needed --------------------------------------------------------------------------

    def _cut(self) -> tuple[list[Channels], int, bool]:
        """Parts of the channels, blocks of rows that are in the buffer together, and whether the
        sums of blocks are added up as they come: where those of all blocks do not fit, or would
        leave so little room that it takes more commands; or where jobs take turns with others and
        not all blocks fit, so that jobs are like each other."""
        layer = self.layer
        found = [cut for streamed in (False, True) if (cut := self._fitting(streamed))]
        if not found:
            raise CompileError(
                f"layer {layer.name}: {BLOCK} rows of its gradient, one word per row, and the sums "
                f"for its gate do not fit into the buffer ({self.program.scratch.words} words)"
            )
        if self.program.in_turns:
            return found[0]
        return min(found, key=self._commands)

    def _fitting(self, streamed: bool) -> tuple[list[Channels], int, bool] | None:
        """The same with sums that are ``streamed`` or not; None where that has no room."""
        program, layer = self.program, self.layer
        room = program.scratch.words - 3 * self.words
        last = sum(need.words for need in self.statistics.needs) if self.statistics else 0
        # Vectors of a product for every block that is there, and besides.
        each, fixed = (1, MapSums.rows(1, 1)) if streamed else (0, self.blocks)
        for words in channel_steps(program, layer.error):
            wide = self.chunks * words
            free = room - 3 * fixed * wide
            # Two maps, those of the next job as well.
            for copies in (2, 1):
                most = min(free // (2 * copies * BLOCK + 3 * each), MOST_WORDS // BLOCK) // wide
                if most >= 1:
                    break
            most = _regular(min(most, self.blocks)) if streamed else min(most, self.blocks)
            enough = most >= (1 if streamed or not program.in_turns else self.blocks)
            if enough and free - 3 * each * most * wide >= last:
                tensors = [layer.error, self.gradient, layer.prediction]
                parts = channel_parts(program, tensors, words)
                # Behind the channels a part may have words of the pitch alone.
                return [part for part in parts if self._size(part)], most, streamed
        return None

    def _commands(self, cut: tuple[list[Channels], int, bool]) -> int:
        """About how many there are with such a cut."""
        parts, count, streamed = cut
        groups = -(-self.blocks // count)
        # Two maps are loaded; three products of every block, and what adds up a group's.
        added = 3 * -(-count // TURNS) if streamed else 0
        return len(parts) * (groups * (2 + added) + 3 * self.blocks)

    def _size(self, channels: Channels) -> int:
        """Channels of a part."""
        begin, end = channels or (0, self.layer.outputs)
        return max(0, min(end, self.layer.outputs) - begin)

    def _part_words(self, channels: Channels) -> int:
        """Words of operands that a row of a part of the channels has."""
        begin, end = channels or (0, self.layer.error.pitch)
        return -(-(min(end, self.layer.error.pitch) - begin) // self.program.core.rows)

    # Jobs ------------------------------------------------------------------------------------

    def write(self) -> None:
        program, layer = self.program, self.layer
        # Sums of all channels, as three vectors of operands, and those of a part. They are the
        # first words until the last job: so what is left for maps is in one piece.
        most = max(self._part_words(channels) for channels in self.parts)
        sizes = 3 * self.words, 3 * self._vectors * most * self.chunks
        groups = (equal_parts if self.streamed else even_parts)(0, self.blocks, self.count)
        jobs = []
        with held(program, *sizes) as (totals, sums):
            for channels in self.parts:
                for group in groups:
                    rows = (group[0] * BLOCK, min(group[1] * BLOCK, layer.rows))
                    box = ((0, 1), rows, (0, 1), channels)
                    needs = (totals, sums, program.need(self.gradient, *box),
                             program.need(layer.prediction, *box))  # fmt: skip
                    like = rows[1] - rows[0], group[0] % TURNS, group[0] == 0, self._size(channels)
                    jobs.append(
                        Job(
                            needs,
                            partial(self._sum, box, group),
                            like=like if self.streamed or program.in_turns else None,
                            at=((channels or (0, 0))[0], rows[0]),
                        )
                    )
                jobs.append(Job((totals, sums), partial(self._total, channels)))
            if self.statistics:
                jobs.append(Job((totals, *self.statistics.needs), self.statistics.run))
            else:
                jobs.append(Job((totals,), self._store))
            program.run(jobs)

    @property
    def _vectors(self) -> int:
        """Of every product: the sums of all blocks, or of those that are there and of all before
        them."""
        return MapSums.rows(1, 1) + self.count if self.streamed else self.blocks

    def _rows(self, sums: Block, channels: Channels, what: int) -> View:
        """All vectors of a product as rows: g·g, out·g, or out·out."""
        words = self._part_words(channels)
        shape = (1, self._vectors, 1, self._size(channels))
        return View.dense(sums, shape, words, chunks=self.chunks,
                          first=what * self._vectors * words * self.chunks)  # fmt: skip

    def _map_sums(self, rows: View) -> MapSums:
        """The sum of the sums of blocks, in the first of these rows."""
        shape = (MapSums.rows(1, 1), 1, 1, rows.shape[3])
        state = View.dense(rows.block, shape, rows.words, chunks=rows.chunks, first=rows.first)
        return MapSums(self.program, state, 1, 1)

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
        place = MapSums.rows(1, 1) - group[0] if self.streamed else 0
        for number in range(*group):
            first = (number - group[0]) * BLOCK
            part = (slice(None), slice(first, min(first + BLOCK, g.shape[1])))
            products: tuple[tuple[View, dict[str, Any]], ...] = (
                (g, {"factor": Factor.U}),
                (out, {"y": g[part], "factor": Factor.Y}),
                (out, {"factor": Factor.U}),
            )
            for what, (x, options) in enumerate(products):
                row = place + number
                o = self._rows(sums, box[3], what)[:, row : row + 1]
                self.vector.sum(o, x[part], **options)
        if self.streamed:
            self._add(group, sums, box[3])

    def _add(self, group: Interval, sums: Block, channels: Channels) -> None:
        """The sums of some blocks to those of all before them."""
        for what in range(3):
            rows = self._rows(sums, channels, what)
            total = self._map_sums(rows)
            if group[0] == 0:
                total.begin((0, 1))
            shape = (1, 1, group[1] - group[0], rows.shape[3])
            first = rows.first + MapSums.rows(1, 1) * rows.strides[1]
            numbers = View.dense(sums, shape, rows.words, chunks=rows.chunks, first=first)
            total.add(numbers, group[0])

    def _total(self, channels: Channels, totals: Block, sums: Block) -> None:
        begin = (channels or (0, 0))[0] // self.program.core.rows
        for what in range(3):
            rows = self._rows(sums, channels, what)
            o = View.dense(totals, (1, 1, 1, rows.shape[3]), rows.words,
                           first=what * self.words + begin)  # fmt: skip
            if self.streamed:
                total = self._map_sums(rows)
                total.finish((0, 1))
                self.vector.copy(o, total.total(o))
            elif self.blocks == 1:
                self.vector.copy(o, rows)
            else:
                self.vector.sum(o, rows)

    def _store(self, totals: Block) -> None:
        sums = self.layer.gradient_sums
        box = ((0, 1), (0, 1), (0, sums.shape[2]), (0, sums.pitch))
        self.program.store(sums, box, totals)


def _regular(most: int) -> int:
    """Blocks at a time of at most so many, so that what is added to which partial sum comes again
    soon."""
    if most >= TURNS:
        return most - most % TURNS
    return 1 << (most.bit_length() - 1) if most else 0
