"""What the predictor is given of a layer: its cells, standardised, and their running statistics."""

from collections.abc import Callable
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.splitting import channel_parts, channel_steps
from compiler.kernels.tiling.state import held
from compiler.kernels.updates.scalars import Scalars, channel_sum, repeat, running, sink
from compiler.tensors.intervals import Channels
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Factor, Term

from .tensors import INPUT_STATISTICS, LayerTensors

__all__ = ["standardize"]

#: Added to a variance.
EPSILON = 1e-8
#: Numbers of a batch: its weight, mean and variance.
_NEW = 3


def standardize(
    program: CoreProgram, layer: LayerTensors, ones: Tensor, *, factor: float | None = None
) -> None:
    """Commands that write ``layer.inputs`` from ``layer.cells``; with a ``factor``, the weight of
    the past, statistics take the batch in first.

    The cells come once if all of them fit into the buffer; else in parts of the channels, for each
    of the sums and for the result again.

    Parameters
    ----------
    ones : a tensor of a word of operands 1

    Raises
    ------
    CompileError
        if a word of the cells does not fit into the buffer beside what is kept.
    """
    _Standardize(program, layer, ones, factor).write()


class _Standardize:
    def __init__(
        self, program: CoreProgram, layer: LayerTensors, ones: Tensor, factor: float | None
    ) -> None:
        self.program, self.vector, self.layer, self.factor = program, program.vector, layer, factor
        self.cells, self.inputs, self.ones = layer.cells, layer.inputs, ones
        self.size, self.chunks = layer.cells.shape[1], program.core.chunks_per_wide
        self.count = len(INPUT_STATISTICS)
        self.parts, self.step = self._cut()

    # What is needed --------------------------------------------------------------------------

    def _cut(self) -> tuple[list[Channels], int]:
        """Parts of the channels, and words of operands that the largest has."""
        program = self.program
        fixed = self._statistics().words + program.words(self.ones)
        for step in channel_steps(program, self.inputs):
            parts = channel_parts(program, [self.inputs, self.cells], step)
            most = max(program.words(self.inputs, part) for part in parts)
            words = max(self._cells(part).words + self._result(part).words for part in parts)
            if words + fixed + self._room(most) <= program.scratch.words:
                return parts, most
        raise CompileError(
            f"layer {self.layer.name}: its cells, one word per pixel, and their statistics do not "
            f"fit into the buffer ({program.scratch.words} words)"
        )

    def _statistics(self) -> Need:
        state = self.layer.input_statistics
        return self.program.need(state, (0, 1), (0, 1), (0, self.count))

    def _cells(self, channels: Channels) -> Need:
        return self.program.need(self.cells, *self.cells.pixels, channels)

    def _result(self, channels: Channels) -> Need:
        return self.program.result(self.inputs, (0, 1), (0, self.size**2), (0, 1), channels)

    def _room(self, step: int) -> int:
        """Words of two float32 vectors of a part, sums of all channels, and numbers."""
        words = self.program.words(self.inputs)
        return 2 * step * self.chunks + words + Scalars.words(self.program, _NEW + 1)

    # Jobs ------------------------------------------------------------------------------------

    def write(self) -> None:
        program = self.program
        ones = program.need(self.ones, (0, 1), (0, 1), (0, 1))
        if len(self.parts) == 1:
            part = self.parts[0]
            needs = (self._statistics(), self._cells(part), ones, self._result(part),
                     Need(object(), self._room(self.step)))  # fmt: skip
            program.run([Job(needs, partial(self._all, part))])
            return
        with held(program, self._room(self.step)) as (room,):
            jobs, statistics = [], self._statistics()
            if self.factor is not None:
                jobs += [self._part_job(self._sum, room, part) for part in self.parts]
                jobs.append(Job((room, ones), self._mean))
                jobs += [self._part_job(self._squares, room, part) for part in self.parts]
                jobs.append(Job((room, ones, statistics), self._observe))
            jobs.append(Job((room, statistics), self._repeat))
            for part in self.parts:
                needs = (room, self._cells(part), self._result(part))
                jobs.append(Job(needs, partial(self._write, part)))
            program.run(jobs)

    def _part_job(self, work: Callable[..., None], room: Need, part: Channels) -> Job:
        return Job((room, self._cells(part)), partial(work, part))

    def _all(
        self, part: Channels, statistics: Block, cells: Block, ones: Block, out: Block, room: Block
    ) -> None:
        """Everything where all cells are there."""
        if self.factor is not None:
            self._sum(part, room, cells)
            self._mean(room, ones)
            self._squares(part, room, cells)
            self._observe(room, ones, statistics)
        self._repeat(room, statistics)
        self._write(part, room, cells, out)
        self.program.scratch.drop([room])

    # Views of the room -----------------------------------------------------------------------

    def _size(self, part: Channels) -> int:
        """Channels of a part; some may have words of the pitch alone."""
        begin, end = part or (0, self.layer.outputs)
        return max(0, min(end, self.layer.outputs) - begin)

    def _vector(self, room: Block, number: int, part: Channels = None) -> View:
        """The mean or the inverse deviation in every channel of a part, or as far as there is
        room."""
        size = self.step * self.program.core.rows
        size = min(size, self.layer.outputs if part is None else self._size(part))
        words = self.step if part is None else self.program.words(self.inputs, part)
        return View.dense(room, (1, 1, 1, size), words, chunks=self.chunks,
                          first=number * self.step * self.chunks)  # fmt: skip

    def _totals(self, room: Block, part: Channels = None) -> View:
        """Sums by channel, operands."""
        begin = (part or (0, 0))[0] // self.program.core.rows
        size = self._size(part)
        return View.dense(room, (1, 1, 1, size), -(-size // self.program.core.rows),
                          first=2 * self.step * self.chunks + begin)  # fmt: skip

    def _numbers(self, room: Block) -> tuple[Scalars, View]:
        """Those of the batch, and what a command writes that only watches them."""
        first = 2 * self.step * self.chunks + self.program.words(self.inputs)
        behind = first + Scalars.words(self.program, _NEW)
        return Scalars(self.program, room, _NEW, first=first), sink(self.program, room, behind)

    def _values(self, cells: Block, part: Channels) -> View:
        return self.program.view(cells, self.cells, *self.cells.pixels, part)

    # Work ------------------------------------------------------------------------------------

    def _sum(self, part: Channels, room: Block, cells: Block) -> None:
        if part is self.parts[0]:
            self.vector.fill(self._numbers(room)[0][0], 1.0)
        if self._size(part):
            self.vector.sum(self._totals(room, part), self._values(cells, part))

    def _mean(self, room: Block, ones: Block) -> None:
        new, _ = self._numbers(room)
        channel_sum(self.program, new[1], self._totals(room), ones)
        self.vector.scale(new[1], new[1], self._share)
        repeat(self.program, self._vector(room, 0), new[1])

    def _squares(self, part: Channels, room: Block, cells: Block) -> None:
        if self._size(part):
            self.vector.sum(
                self._totals(room, part), self._values(cells, part), y=self._vector(room, 0, part),
                term=Term.SUBTRACT, factor=Factor.U,
            )  # fmt: skip

    def _observe(self, room: Block, ones: Block, statistics: Block) -> None:
        """Take the batch into the running statistics, and make mean and deviation of them."""
        program, vector, layer = self.program, self.vector, self.layer
        assert self.factor is not None
        new, nothing = self._numbers(room)
        state = Scalars.stored(program, statistics, layer.input_statistics)
        channel_sum(program, new[2], self._totals(room), ones)
        vector.scale(new[2], new[2], self._share)
        running(program, state[0:_NEW], new.all, self.factor, nothing)
        weight, mean_sum, variance_sum, mean, inverse = (state[n] for n in range(self.count))
        vector.divide(mean, mean_sum, weight, guarded=1)
        vector.divide(new[0], variance_sum, weight)
        vector.add(new[0], new[0], EPSILON)
        vector.root(new[0], new[0])
        vector.divide(inverse, 1.0, new[0], guarded=1)
        box = (0, 1), (0, 1), (0, self.count), (0, layer.input_statistics.pitch)
        program.store(layer.input_statistics, box, statistics)

    @property
    def _share(self) -> float:
        """One by the number of cells of all channels."""
        return 1.0 / (self.size**2 * self.layer.outputs)

    def _repeat(self, room: Block, statistics: Block) -> None:
        state = Scalars.stored(self.program, statistics, self.layer.input_statistics)
        for number in (0, 1):
            repeat(self.program, self._vector(room, number), state[_NEW + number])

    def _write(self, part: Channels, room: Block, cells: Block, out: Block) -> None:
        program = self.program
        values = self._values(cells, part)
        words = program.words(self.inputs, part)
        result = View.dense(out, values.shape, words)
        mean, inverse = (self._vector(room, number, part) for number in (0, 1))
        self.vector.emit(result, values, mean, inverse, term=Term.SUBTRACT, factor=Factor.Z)
        box = (0, 1), (0, self.size**2), (0, 1), part or (0, self.inputs.pitch)
        program.store(self.inputs, box, out)
        program.scratch.drop([out])
