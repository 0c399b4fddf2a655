"""Gradients of the parameters of a layer normalisation."""

from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.image_tiling import image_parts, state_job
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Factor, Term

from .channel_means import by_words

__all__ = ["layer_norm_parameter_gradients"]


def layer_norm_parameter_gradients(
    program: CoreProgram, x: Tensor, dy: Tensor, mean: Tensor, inverse: Tensor,
    dgamma: Tensor | None, dbeta: Tensor | None,
) -> None:  # fmt: skip
    """Commands that write ``dgamma`` and ``dbeta`` (1, 1, 1, C), or the one that is not None.

    The sums of every image, then those of the images, as docs/training.md says.

    Raises
    ------
    CompileError
        if an image with one word per pixel does not fit into the buffer.
    """
    _Gradients(program, x, dy, mean, inverse, dgamma, dbeta).write()


class _Gradients:
    def __init__(
        self, program: CoreProgram, x: Tensor, dy: Tensor, mean: Tensor, inverse: Tensor,
        dgamma: Tensor | None, dbeta: Tensor | None,
    ) -> None:  # fmt: skip
        self.program, self.x, self.dy, self.numbers = program, x, dy, (mean, inverse)
        self.results = dgamma, dbeta
        self.goals = [tensor for tensor in (dgamma, dbeta) if tensor is not None]

    def write(self) -> None:
        program, x, chunks = self.program, self.x, self.program.core.chunks_per_wide
        images, height, width, _ = x.shape
        pixels = height * width
        numbers = sum(map(program.words, self.numbers))
        extra = program.words(self.goals[0]) - chunks * program.words(x)
        cut = image_parts(
            program, images, [x, *self.goals],
            size=lambda words: pixels * ((2 + chunks) * words + numbers),
            fixed=lambda words: len(self.goals) * (images + 1) * (chunks * words + extra),
        )  # fmt: skip
        if cut is None:
            raise CompileError(
                f"layer of {x.name}: an image of its maps with one word per pixel, and the sums of "
                f"all images, do not fit into the buffer ({program.scratch.words} words)"
            )
        jobs: list[Job] = []
        for channels in cut[0]:
            words = len(self.goals) * (images + 1) * program.words(self.goals[0], channels)
            state = Need((self, channels), words)
            first = True
            for part in cut[1]:
                box = part, (0, height), (0, width)
                needs = [program.need(self.dy, *box, channels)]
                if self.results[0] is not None:
                    needs.append(program.need(x, *box, channels))
                    needs += [program.need(tensor, *box) for tensor in self.numbers]
                    needs.append(program.result(x, *box, channels, wide=True))
                run = partial(self._sums, channels, part)
                jobs.append(state_job(state, needs, (), run, first=first))
                first = False
        program.run(jobs)
        program.scratch.forget(self)

    def _sums(
        self, channels: Channels, part: Interval, state: Block, dy: Block, *blocks: Block
    ) -> None:
        program, vector = self.program, self.program.vector
        images, height, width, _ = self.x.shape
        box = part, (0, height), (0, width)
        gradient = program.view(dy, self.dy, *box, channels)
        count, pixels = part[1] - part[0], height * width
        sums = {tensor.name: self._state(state, channels, number)
                for number, tensor in enumerate(self.goals)}  # fmt: skip
        e = None
        if blocks:
            x, mean, inverse = (
                _line(program.view(block, tensor, *box, part_of), count * pixels)
                for block, tensor, part_of in zip(
                    blocks, (self.x, *self.numbers), (channels, None, None), strict=False
                )
            )
            e = program.view(blocks[-1], self.x, *box, channels, wide=True)
            line = _line(e, count * pixels)
            for o, values, number, factor in by_words(program.core, [line, x], [mean, inverse]):
                vector.emit(o, values, number, factor, term=Term.SUBTRACT, factor=Factor.Z)
        for tensor in self.goals:
            rows = sums[tensor.name]
            for number, n in enumerate(range(*part)):
                image = slice(number, number + 1)
                if tensor is self.results[0] and e is not None:
                    vector.sum(rows[n : n + 1], gradient[image], y=e[image], factor=Factor.Y)
                else:
                    vector.sum(rows[n : n + 1], gradient[image])
            if part[1] == images:
                self._finish(channels, rows, tensor, state)
        if blocks:
            program.scratch.drop(blocks[-1:])
        if part[1] == images:
            program.scratch.drop([state])

    def _finish(self, channels: Channels, rows: View, tensor: Tensor, state: Block) -> None:
        """The sum of the images' sums, and its store."""
        program, images = self.program, self.x.shape[0]
        total = rows[:1]
        if images > 1:
            total = program.vector.sum(rows[images : images + 1], rows[:images])
        box = channels or (0, tensor.pitch)
        program.store(tensor, ((0, 1), (0, 1), (0, 1), box), state, first=total.first)

    def _state(self, block: Block, channels: Channels, number: int) -> View:
        """The sums of each image, and of all, for one of the results."""
        program, images = self.program, self.x.shape[0]
        like, chunks = self.goals[number], program.core.chunks_per_wide
        begin, end = channels or (0, like.pitch)
        words = program.words(like, channels) // chunks
        shape = (images + 1, 1, 1, min(end, like.shape[3]) - begin)
        first = number * (images + 1) * words * chunks
        return View.dense(block, shape, words, chunks=chunks, first=first)


def _line(view: View, pixels: int) -> View:
    shape = (1, 1, pixels, view.shape[3])
    return View.dense(view.block, shape, view.words, chunks=view.chunks, first=view.first)
