"""Layer normalisation over the channels of every pixel, from DRAM to DRAM."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, begin_of, boxes, like_box
from compiler.kernels.updates.scalars import channel_sum
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Factor, Term

from .channel_means import (
    by_words,
    number_words,
    ones_need,
    split,
    split_view,
)

__all__ = ["layer_norm", "layer_norm_input_gradient"]

_VECTOR = ((0, 1), (0, 1), (0, 1))
#: Fields of a command that takes Z away from what it has computed.
_LEFT: dict[str, Any] = {"carry": Carry.Z, "add": 1, "negate_carry": 1}


def layer_norm(
    program: CoreProgram, x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor,
    inverse: Tensor, *, epsilon: float,
) -> None:  # fmt: skip
    """Commands that write ``y``, and ``mean`` and ``inverse`` for the backward pass.

    Parameters
    ----------
    x, y : (N, H, W, C) operands
    gamma, beta : (1, 1, 1, C) float32
    mean, inverse : (N, H, W, lanes) float32, numbers of pixels

    Raises
    ------
    CompileError
        if one pixel, with what belongs to it, does not fit into the buffer.
    """
    _Forward(program, [x], y, [gamma, beta], [mean, inverse], epsilon).write()


def layer_norm_input_gradient(
    program: CoreProgram, x: Tensor, dy: Tensor, dx: Tensor, gamma: Tensor, mean: Tensor,
    inverse: Tensor,
) -> None:  # fmt: skip
    """Commands that write ``dx``; tensors as those of :func:`layer_norm`."""
    _InputGradient(program, [x, dy], dx, [gamma], [mean, inverse]).write()


class _Pixels:
    """Commands for some pixels after the others, with all of their channels.

    Parameters
    ----------
    maps, out : what is read and written
    vectors, numbers : tensors of the channels, and of the pixels
    """

    #: Float32 maps, and numbers of pixels, that are needed besides.
    wide, more = 1, 1
    #: Whether ``numbers`` are written.
    writes = False

    def __init__(
        self, program: CoreProgram, maps: Sequence[Tensor], out: Tensor, vectors: Sequence[Tensor],
        numbers: Sequence[Tensor], epsilon: float = 0.0,
    ) -> None:  # fmt: skip
        self.program, self.vector, self.core = program, program.vector, program.core
        self.maps, self.out, self.vectors, self.numbers = maps, out, vectors, numbers
        self.epsilon = epsilon
        self.channels = out.shape[3]
        self.reciprocal = 1.0 / self.channels

    def write(self) -> None:
        program, core, out = self.program, self.core, self.out
        words, chunks = program.words(out), core.chunks_per_wide
        fixed = 1 + sum(program.words(vector) for vector in self.vectors)
        each = (len(self.maps) + 3 + self.wide * chunks) * words + 2
        each += sum(map(program.words, self.numbers)) + self.more * self._number
        most = min(
            (program.scratch.words - fixed) // each, MOST_WORDS // (max(2, chunks) * words),
            core.accumulator_depth,
        )  # fmt: skip
        if most < 1:
            raise CompileError(
                f"layer of {out.name}: a pixel of its maps, with what belongs to it, takes {each} "
                f"words, which do not fit into the buffer ({program.scratch.words} words)"
            )
        pixels = out.shape[0] * out.shape[1] * out.shape[2]
        jobs = []
        for box in boxes(out.shape, max(1, min(most // 2, -(-pixels // PIECES)))):
            run = partial(self._work, box)
            needs = tuple(self._needs(box))
            jobs.append(Job(needs, run, like=like_box(box), at=begin_of(box)))
        program.run(jobs)

    @property
    def _number(self) -> int:
        return self.core.chunks_per_wide * number_words(self.program)

    def _needs(self, box: PixelBox) -> list[Need]:
        program = self.program
        pixels = self._count(box)
        needs = [program.result(self.out, *box), ones_need(program)]
        needs += [program.need(tensor, *_VECTOR) for tensor in self.vectors]
        needs += [program.need(tensor, *box) for tensor in self.maps]
        make = program.result if self.writes else program.need
        needs += [make(tensor, *box) for tensor in self.numbers]
        needs += [program.result(self.out, *box, wide=True) for _ in range(self.wide)]
        needs += [Need(object(), pixels * 2 * -(-count // self.core.rows))
                  for count in (self.channels, 1)]  # fmt: skip
        needs += [Need(object(), pixels * self._number) for _ in range(self.more)]
        return needs

    @staticmethod
    def _count(box: PixelBox) -> int:
        count = 1
        for begin, end in box:
            count *= end - begin
        return count

    def _work(self, box: PixelBox, out: Block, ones: Block, *blocks: Block) -> None:
        program, pixels, chunks = self.program, self._count(box), self.core.chunks_per_wide
        given = iter(blocks)
        vectors = [program.view(next(given), tensor, *_VECTOR) for tensor in self.vectors]
        maps = [self._line(program.view(next(given), t, *box), pixels) for t in self.maps]
        stored = [(next(given), tensor) for tensor in self.numbers]
        numbers = [self._line(program.view(b, t, *box), pixels) for b, t in stored]
        result = self._line(program.view(out, self.out, *box), pixels)
        wide = [next(given) for _ in range(self.wide)]
        maps += [self._line(program.view(b, self.out, *box, wide=True), pixels) for b in wide]
        parts = [next(given), next(given)]
        maps += [split_view(program, block, pixels, count)
                 for block, count in zip(parts, (self.channels, 1), strict=True)]  # fmt: skip
        more = [next(given) for _ in range(self.more)]
        shape = (1, 1, pixels, numbers[0].shape[3])
        numbers += [
            View.dense(block, shape, number_words(program), chunks=chunks) for block in more
        ]
        self.emit(ones, result, maps, numbers, vectors)
        program.store(self.out, (*box, (0, self.out.pitch)), out)
        if self.writes:
            for block, tensor in stored:
                program.store(tensor, (*box, (0, tensor.pitch)), block)
        temporary = [out, *wide, *parts, *more, *(b for b, _ in stored if self.writes)]
        program.scratch.drop(temporary)

    @staticmethod
    def _line(view: View, pixels: int) -> View:
        """Pixels that lie one after the other, as one line."""
        shape = (1, 1, pixels, view.shape[3])
        return View.dense(view.block, shape, view.words, chunks=view.chunks, first=view.first)

    def emit(
        self, ones: Block, result: View, maps: Sequence[View], numbers: Sequence[View],
        vectors: Sequence[View],
    ) -> None:  # fmt: skip
        """The commands of a box. ``maps``: those that are read, float32 ones, two parts of all
        channels and of one; ``numbers``: those of tensors, others."""
        raise NotImplementedError

    def mean(self, o: View, values: View, ones: Block) -> None:
        """``o``: mean of the channels of a map, or of the sum of two parts."""
        channel_sum(self.program, o, values, ones, scale=self.reciprocal)


class _Forward(_Pixels):
    wide, more = 1, 1
    writes = True

    def emit(
        self, ones: Block, result: View, maps: Sequence[View], numbers: Sequence[View],
        vectors: Sequence[View],
    ) -> None:  # fmt: skip
        core, vector = self.core, self.vector
        (x, e, parts, one), (mean, inverse, variance), (gamma, beta) = maps, numbers, vectors
        self.mean(mean, replace(x, words=-(-self.channels // core.rows)), ones)
        high, low = split(parts)
        square: dict[str, Any] = {"term": Term.SUBTRACT, "factor": Factor.U}
        for o, deviation, number in by_words(core, [high, x], [mean]):
            vector.emit(o, deviation, number, **square)
        for o, deviation, part, number in by_words(core, [low, x, high], [mean]):
            vector.emit(o, deviation, number, part, **square, **_LEFT)
        self.mean(variance, parts, ones)
        self._invert(inverse, variance, one, ones)
        for o, deviation, number, factor in by_words(core, [e, x], [mean, inverse]):
            vector.emit(o, deviation, number, factor, term=Term.SUBTRACT, factor=Factor.Z)
        vector.scale_add(result, e, gamma, beta)

    def _invert(self, inverse: View, variance: View, parts: View, ones: Block) -> None:
        """``inverse``: two parts of ``1 / sqrt(variance + epsilon)``. A lane takes many cycles, so
        it is computed in one, and a product with ones brings it to all."""
        vector = self.vector
        lane = replace(variance, shape=(*variance.shape[:3], 1), words=1)
        high, low = split(parts)
        vector.add(lane, lane, self.epsilon)
        vector.root(lane, lane)
        vector.divide(lane, 1.0, lane)
        vector.copy(high, lane)
        vector.emit(low, lane, z=high, **_LEFT)
        channel_sum(self.program, inverse, parts, ones)


class _InputGradient(_Pixels):
    wide, more = 2, 2

    def emit(
        self, ones: Block, result: View, maps: Sequence[View], numbers: Sequence[View],
        vectors: Sequence[View],
    ) -> None:  # fmt: skip
        core, vector = self.core, self.vector
        (x, dy, e, g, parts, _), (mean, inverse, c1, c2), (gamma,) = maps, numbers, vectors
        high, low = split(parts)
        for o, deviation, number, factor in by_words(core, [e, x], [mean, inverse]):
            vector.emit(o, deviation, number, factor, term=Term.SUBTRACT, factor=Factor.Z)
        vector.scale(g, dy, gamma)
        vector.copy(high, g)
        vector.emit(low, g, z=high, **_LEFT)
        self.mean(c1, parts, ones)
        vector.scale(high, g, e)
        vector.emit(low, g, e, high, factor=Factor.Y, **_LEFT)
        self.mean(c2, parts, ones)
        for o, values, number in by_words(core, [e, e], [c2]):
            vector.scale(o, values, number)
        for o, values, part, number in by_words(core, [g, g, e], [c1]):
            vector.emit(o, values, number, part, term=Term.SUBTRACT, **_LEFT)
        for o, values, number in by_words(core, [result, g], [inverse]):
            vector.scale(o, values, number)
