"""Layers that compute every element of a map by itself, from DRAM to DRAM."""

from collections.abc import Callable, Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor

from .splitting import MOST_WORDS, PIECES, begin_of, boxes, like_box

__all__ = ["add", "relu", "relu_backward", "sum_gradients"]


def relu(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: ``x`` where it is positive or NaN, +0 elsewhere."""

    def part(out: View, _: View | None, values: View) -> None:
        program.vector.positive(out, values)

    _pointwise(program, [x], y, part)


def relu_backward(program: CoreProgram, dy: Tensor, y: Tensor, dx: Tensor) -> None:
    """``dx``: ``dy`` where the stored output ``y`` is positive or NaN, +0 elsewhere."""

    def part(out: View, _: View | None, gradient: View, output: View) -> None:
        program.vector.mask(out, gradient, output)

    _pointwise(program, [dy, y], dx, part)


def add(program: CoreProgram, x1: Tensor, x2: Tensor, y: Tensor) -> None:
    """``y = x1 + x2``, rounded once."""
    sum_gradients(program, [x1, x2], y)


def sum_gradients(program: CoreProgram, gradients: Sequence[Tensor], dx: Tensor) -> None:
    """``dx``: the float32 sum of at least two maps of operands, in order, rounded once."""
    if len(gradients) < 2:
        raise ValueError(f"{dx.name} needs at least two maps to add, not {len(gradients)}")

    def part(out: View, total: View | None, first: View, *others: View) -> None:
        for other in others[:-1]:
            assert total is not None
            first = program.vector.add(total, first, other)
        program.vector.add(out, first, others[-1])

    _pointwise(program, list(gradients), dx, part, total=len(gradients) > 2)


def _pointwise(
    program: CoreProgram,
    inputs: Sequence[Tensor],
    output: Tensor,
    part: Callable[..., None],
    *,
    total: bool = False,
) -> None:
    """``part(output, total, *inputs)`` on views of a part after the other; ``total`` is a float32
    map of the part if it is wanted, else None.

    Raises
    ------
    CompileError
        if a pixel of all maps does not fit into the buffer.
    """
    words, chunks = program.words(output), program.core.chunks_per_wide
    size = words * (len(inputs) + 1 + (chunks if total else 0))
    most = min(program.scratch.words // size, MOST_WORDS // (words * chunks))
    if not most:
        raise CompileError(
            f"layer of {output.name}: a pixel of its maps takes {size} words, which do not fit "
            f"into the buffer ({program.scratch.words} words)"
        )

    def work(box: PixelBox, out: Block, *blocks: Block) -> None:
        temporary = [out]
        sums = None
        if total:
            sums = program.view(blocks[-1], output, *box, wide=True)
            temporary.append(blocks[-1])
        views = [program.view(b, t, *box) for b, t in zip(blocks, inputs, strict=False)]
        part(program.view(out, output, *box), sums, *views)
        program.store(output, (*box, (0, output.pitch)), out)
        program.scratch.drop(temporary)

    jobs = []
    # Several pieces even of a small map, so that transfers hide behind the work.
    pixels = output.shape[0] * output.shape[1] * output.shape[2]
    for box in boxes(output.shape, max(1, min(most // 2, -(-pixels // PIECES)))):
        needs = [program.result(output, *box), *(program.need(part, *box) for part in inputs)]
        if total:
            needs.append(program.result(output, *box, wide=True))
        run = partial(work, box)
        jobs.append(Job(tuple(needs), run, like=like_box(box), at=begin_of(box)))
    program.run(jobs)
