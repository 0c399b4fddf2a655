"""Layers that compute every element of a map by itself, from DRAM to DRAM."""

from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.errors import CompileError

from .splitting import MOST_WORDS, PIECES, boxes

__all__ = ["add", "relu", "relu_backward", "sum_gradients"]


def relu(program: CoreProgram, x, y):
    """``y``: ``x`` where it is positive or NaN, +0 elsewhere."""

    def piece(out, _, values):
        program.vector.positive(out, values)

    _pointwise(program, [x], y, piece)


def relu_backward(program: CoreProgram, dy, y, dx):
    """``dx``: ``dy`` where the stored output ``y`` is positive or NaN, +0 elsewhere."""

    def piece(out, _, gradient, output):
        program.vector.mask(out, gradient, output)

    _pointwise(program, [dy, y], dx, piece)


def add(program: CoreProgram, x1, x2, y):
    """``y = x1 + x2``, rounded once."""
    sum_gradients(program, [x1, x2], y)


def sum_gradients(program: CoreProgram, gradients, dx):
    """``dx``: the float32 sum of at least two maps of operands, in order, rounded once."""
    if len(gradients) < 2:
        raise ValueError(f"{dx.name} needs at least two maps to add, not {len(gradients)}")

    def piece(out, total, first, *others):
        for other in others[:-1]:
            first = program.vector.add(total, first, other)
        program.vector.add(out, first, others[-1])

    _pointwise(program, list(gradients), dx, piece, total=len(gradients) > 2)


def _pointwise(program, inputs, output, piece, *, total=False):
    """``piece(output, total, *inputs)`` on views of a piece after the other; ``total`` is a float32
    map of the piece if it is wanted, else None.

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

    def work(box, out, *blocks):
        temporary = [out]
        sums = None
        if total:
            sums = program.view(blocks[-1], output, *box, wide=True)
            temporary.append(blocks[-1])
        views = [program.view(b, t, *box) for b, t in zip(blocks, inputs, strict=False)]
        piece(program.view(out, output, *box), sums, *views)
        program.store(output, (*box, (0, output.pitch)), out)
        program.scratch.drop(temporary)

    jobs = []
    # Several pieces even of a small map, so that transfers hide behind the work.
    pixels = output.shape[0] * output.shape[1] * output.shape[2]
    for box in boxes(output.shape, max(1, min(most // 2, -(-pixels // PIECES)))):
        needs = [program.result(output, *box), *(program.need(part, *box) for part in inputs)]
        if total:
            needs.append(program.result(output, *box, wide=True))
        jobs.append(Job(tuple(needs), partial(work, box)))
    program.run(jobs)
