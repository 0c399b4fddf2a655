"""Batch normalisation forward in training, from DRAM to DRAM."""

from collections.abc import Sequence
from functools import partial
from math import prod

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import Operand, View
from compiler.errors import CompileError
from compiler.kernels.convolution.part_statistics import SQUARES, PartStatistics
from compiler.kernels.tiling.partial_sums import TURNS, MapSums
from compiler.kernels.tiling.splitting import (
    MOST_WORDS,
    PIECES,
    begin_of,
    boxes,
    channel_parts,
    channel_steps,
    like_box,
)
from compiler.tensors.intervals import Channels, Interval, PixelBox, even_parts
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Factor, Term

from .batch_norm_pass import VECTOR_BOX

__all__ = ["batch_norm"]

#: Vectors of the channels that stay while the map is normalised.
_NAMES = ("mean", "variance", "between", "inverse", "a", "b")
#: Pixels of all channels for which there should be room.
_PIXELS = 24


def batch_norm(
    program: CoreProgram, x: Tensor, y: Tensor, statistics: Tensor, gamma: Tensor, beta: Tensor,
    running_mean: Tensor, running_variance: Tensor, mean: Tensor | None, inverse: Tensor | None,
    a: Tensor | None, *, epsilon: float, momentum: float, relu: bool = False, known: bool = False,
) -> None:  # fmt: skip
    """Commands that write ``y``, perhaps with a ReLU behind it, change the running statistics, and
    leave ``mean``, ``inverse`` and ``a`` for the backward pass.

    Parameters
    ----------
    x, y : (N, H, W, C) operands
    statistics : (2, N, parts, C) float32, those of the parts of ``x``
        (:class:`~compiler.kernels.convolution.part_statistics.PartStatistics`), which are
        ``known`` or have yet to be taken from it
    gamma to a : (1, 1, 1, C) float32; ``mean``, ``inverse`` and ``a`` are None without a backward
        pass

    Raises
    ------
    CompileError
        for one pixel per channel, and if one word of a pixel does not fit into the buffer beside
        the vectors of its channels.
    """
    if x.shape[0] * x.shape[1] * x.shape[2] == 1:
        raise CompileError(
            f"layer {_layer_of(gamma)} (batch normalisation): it needs more than one pixel per "
            "channel, but the batch is 1 image of 1 x 1"
        )
    if not known:
        PartStatistics(program, x, statistics).write()
    kept = {"mean": mean, "inverse": inverse, "a": a}
    parameters = gamma, beta, running_mean, running_variance
    _Forward(program, x, y, statistics, parameters, kept, epsilon, momentum, relu).write()


def _layer_of(gamma: Tensor) -> str:
    """The layer of a parameter; what it writes may have the name of a ReLU behind it."""
    return gamma.name.removesuffix(".weight")


class _Forward:
    def __init__(
        self, program: CoreProgram, x: Tensor, y: Tensor, statistics: Tensor,
        parameters: Sequence[Tensor], kept: dict[str, Tensor | None], epsilon: float,
        momentum: float, relu: bool,
    ) -> None:  # fmt: skip
        self.program, self.vector = program, program.vector
        self.x, self.y, self.statistics = x, y, statistics
        self.parameters, self.kept = parameters, kept
        self.epsilon, self.momentum, self.relu = epsilon, momentum, relu
        self.images = x.shape[0]
        #: Of one part of the map.
        self._share = 1.0 / prod(statistics.shape[1:3])
        self.chunks = program.core.chunks_per_wide
        #: Words by which a vector of all channels may be longer than a pixel of the map.
        self._extra = max(0, program.words(parameters[0]) - self.chunks * program.words(x))

    def write(self) -> None:
        step, most = self._cut()
        for channels in channel_parts(self.program, [self.x, self.statistics], step):
            jobs = self._factor_jobs(channels, step) + self._apply_jobs(channels, most)
            self.program.run(jobs)
        self.program.scratch.forget(self)

    def _vector_words(self, step: int) -> int:
        return self.chunks * step + self._extra

    def _cut(self) -> tuple[int, int]:
        """Words of operands of channels that are normalised together, and pixels at a time at
        most: all channels, if there is room for some pixels."""
        room, best = self.program.scratch.words, (1, 0)
        for step in channel_steps(self.program, self.x):
            # Beside the vectors and the least that the statistics need.
            least = (4 + 2 + 3 * MapSums.rows(1, 1)) * self._vector_words(1)
            left = room - len(_NAMES) * self._vector_words(step) - least
            most = min(left // 2, MOST_WORDS) // step
            if most >= _PIXELS:
                return step, most
            if most > best[1]:
                best = step, most
        if best[1] < 1:
            raise CompileError(
                f"layer {_layer_of(self.parameters[0])} (batch normalisation): it needs "
                f"{len(_NAMES)} vectors of a word, which do not fit into the buffer ({room} words)"
            )
        return best

    # Vectors of the channels -----------------------------------------------------------------

    def _state(self, channels: Channels) -> Need:
        words = len(_NAMES) * self.program.words(self.parameters[0], channels)
        return Need((self, channels), words)

    def _vectors(self, state: Block, channels: Channels, part: Channels = None) -> dict[str, View]:
        """Vectors in the block of ``channels``, or of a ``part`` of these, by name."""
        like, words = self.parameters[0], self.program.words
        begin = (channels or (0, like.pitch))[0]
        first, end = part or channels or (0, like.pitch)
        size = max(0, min(end, like.shape[3]) - first)
        width = words(like, channels)
        skip = (first - begin) // self.program.core.rows * self.chunks
        own = words(like, part or channels) // self.chunks
        return {
            name: View(
                block=state, first=number * width + skip, shape=(1, 1, 1, size),
                strides=(width,) * 3, words=own, chunks=self.chunks,
            )
            for number, name in enumerate(_NAMES)
        }  # fmt: skip

    def _factor_jobs(self, channels: Channels, step: int) -> list[Job]:
        """Jobs that make the vectors from the statistics, some words of the channels at a time."""
        room = self.program.scratch.words - len(_NAMES) * self._vector_words(step)
        images, parts = self.statistics.shape[1:3]
        if parts == 1:
            for size in range(step, 0, -1):
                if (2 * images + 4) * self._vector_words(size) <= room // 2:
                    return [self._factors(channels, part) for part in self._within(channels, size)]
        for size in range(step, 0, -1):
            group = self._group(room // self._vector_words(size))
            if group == images or (group and size == 1):
                break
        return [
            job
            for part in self._within(channels, size)
            for job in self._sum_jobs(channels, part, max(1, group), room)
        ]

    def _within(self, channels: Channels, size: int) -> list[Channels]:
        """Parts of ``channels`` of so many words of operands."""
        pitch, rows = self.statistics.pitch, self.program.core.rows
        begin, end = channels or (0, pitch)
        words = -(-(min(end, self.x.pitch) - begin) // rows)
        if size >= words:
            return [channels]
        pieces = even_parts(0, words, size)
        return [(begin + a * rows, end if b == words else begin + b * rows) for a, b in pieces]

    def _parameter_needs(self, part: Channels) -> list[Need]:
        return [self.program.need(tensor, *VECTOR_BOX, part) for tensor in self.parameters]

    def _factors(self, channels: Channels, part: Channels) -> Job:
        """The same where statistics of all images, which are one part each, have room."""
        statistics = self.statistics
        box = (0, 2), (0, self.images), (0, 1), part

        def run(state: Block, block: Block, *parameters: Block) -> None:
            v = self._vectors(state, channels, part)
            view = self.program.view(block, statistics, *box)
            means, squares = view[0:1], view[1:2]
            self.vector.sum(v["mean"], means)
            self._scale_mean(v)
            self.vector.sum(v["variance"], squares)
            self.vector.sum(v["between"], means, y=v["mean"], **SQUARES)
            self._finish(v, part, *parameters)

        rows = self.program.need(statistics, *box)
        return Job((self._state(channels), rows, *self._parameter_needs(part)), run)

    def _group(self, vectors: int) -> int:
        """Images whose statistics have room together, of so many vectors; 0 if there is none."""
        images, parts = self.statistics.shape[1:3]
        for count in range(images, 0, -1):
            if 2 * MapSums.rows(images, count) + 4 + 2 * 2 * count * parts <= vectors:
                return count
        return 0

    def _sum_jobs(self, channels: Channels, part: Channels, group: int, room: int) -> list[Job]:
        """The same where they have several parts, or no room: sums go on from job to job, twice."""
        images, parts = self.statistics.shape[1:3]
        wide = self.program.words(self.statistics, part)
        rows = 2 * MapSums.rows(images, group)
        most = (room // wide - rows - 4) // (4 * group)
        columns = (
            [(0, parts)] if most >= parts else even_parts(0, parts, max(1, most // TURNS * TURNS))
        )
        places = [(some, column) for some in even_parts(0, images, group) for column in columns]
        jobs = []
        for again in (False, True):
            for place in places:
                last = place == places[-1]
                needs = [
                    self._state(channels),
                    Need((self, "sums", part), rows * wide),
                    self.program.need(self.statistics, (0, 2), *place, part),
                ]
                needs += self._parameter_needs(part) if again and last else ()
                run = partial(self._add_part, channels, part, group, place, again, last)
                jobs.append(Job(tuple(needs), run))
        return jobs

    def _add_part(
        self, channels: Channels, part: Channels, group: int, place: tuple[Interval, Interval],
        again: bool, last: bool, state: Block, block: Block, statistics: Block, *parameters: Block,
    ) -> None:  # fmt: skip
        v, (images, (first, end)) = self._vectors(state, channels, part), place
        view = self.program.view(statistics, self.statistics, (0, 2), *place, part)
        means, squares = view[0:1].lines, view[1:2].lines
        count, parts = self.statistics.shape[1:3]
        rows = MapSums.rows(count, group)
        own = View.dense(block, (2 * rows, 1, 1, view.shape[3]), view.words, chunks=self.chunks)
        sums = [MapSums(self.program, own[a : a + rows], count, group) for a in (0, rows)]
        added = {"between": means} if again else {"mean": means, "variance": squares}
        for (name, numbers), total in zip(added.items(), sums, strict=False):
            if first == 0:
                total.begin(images)
            total.add(numbers, first, v["mean"] if again else None, **(SQUARES if again else {}))
            if end == parts:
                total.finish(images)
            if last:
                self.vector.copy(v[name], total.total(v[name]))
        if last and again:
            self._finish(v, part, *parameters)
            self.program.scratch.drop([block])
        elif last:
            self._scale_mean(v)

    def _scale_mean(self, v: dict[str, View]) -> None:
        self.vector.scale(v["mean"], v["mean"], self._share)

    def _finish(self, v: dict[str, View], part: Channels, *parameters: Block) -> None:
        vector, program = self.vector, self.program
        count = self.images * self.x.shape[1] * self.x.shape[2]
        gamma, beta, *running = (
            program.view(block, tensor, *VECTOR_BOX, part)
            for block, tensor in zip(parameters, self.parameters, strict=True)
        )
        vector.scale(v["variance"], v["variance"], 1.0 / count)
        vector.scale_add(v["variance"], v["between"], self._share, v["variance"])
        vector.add(v["inverse"], v["variance"], self.epsilon)
        vector.root(v["inverse"], v["inverse"])
        vector.divide(v["inverse"], 1.0, v["inverse"])
        vector.scale(v["a"], gamma, v["inverse"])
        vector.scale_add(v["b"], v["mean"], v["a"], beta, negate_product=1)
        vector.scale(v["variance"], v["variance"], count / (count - 1))
        moments = v["mean"], v["variance"]
        for old, tensor, new in zip(running, self.parameters[2:], moments, strict=True):
            vector.emit(
                old, new, old, self.momentum, term=Term.SUBTRACT, factor=Factor.Z,
                carry=Carry.Y, add=1,
            )  # fmt: skip
            self._store(old, tensor, part)
        for name, saved in self.kept.items():
            if saved is not None:
                self._store(v[name], saved, part)

    def _store(self, view: View, tensor: Tensor, part: Channels) -> None:
        box = (*VECTOR_BOX, part or (0, tensor.pitch))
        self.program.store(tensor, box, view.block, view.first)

    # The map ---------------------------------------------------------------------------------

    def _apply_jobs(self, channels: Channels, most: int) -> list[Job]:
        jobs, shape = [], self.y.shape
        pixels = shape[0] * shape[1] * shape[2]
        # Three would fit: so the next one's blocks have room whatever lies between them.
        for box in boxes(shape, max(1, min(most // 3, -(-pixels // PIECES)))):
            needs = (
                self._state(channels),
                self.program.need(self.x, *box, channels),
                self.program.result(self.y, *box, channels),
            )
            run = partial(self._apply, box, channels)
            jobs.append(Job(needs, run, like=like_box(box), at=begin_of(box)))
        return jobs

    def _apply(self, box: PixelBox, channels: Channels, state: Block, x: Block, out: Block) -> None:
        v, program = self._vectors(state, channels), self.program
        views = [
            program.view(block, tensor, *box, channels)
            for block, tensor in ((out, self.y), (x, self.x))
        ]
        factors: list[Operand] = [v["a"], v["b"]]
        self.vector.scale_add(*views, *factors, relu=self.relu)
        program.store(self.y, (*box, channels or (0, self.y.pitch)), out)
        program.scratch.drop([out])
