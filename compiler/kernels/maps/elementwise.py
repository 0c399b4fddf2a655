"""Layers that compute every element of a map by itself, from DRAM to DRAM."""

from collections.abc import Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, boxes
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Factor

from .pointwise import pointwise

__all__ = [
    "add",
    "add_scaled",
    "add_vector",
    "affine",
    "copy_channels",
    "multiply",
    "relu",
    "relu_backward",
    "sum_gradients",
]


def relu(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: ``x`` where it is positive or NaN, +0 elsewhere."""

    def part(out: View, _: View | None, values: View) -> None:
        program.vector.positive(out, values)

    pointwise(program, [x], y, part)


def relu_backward(program: CoreProgram, dy: Tensor, y: Tensor, dx: Tensor) -> None:
    """``dx``: ``dy`` where the stored output ``y`` is positive or NaN, +0 elsewhere."""

    def part(out: View, _: View | None, gradient: View, output: View) -> None:
        program.vector.mask(out, gradient, output)

    pointwise(program, [dy, y], dx, part)


def copy_channels(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: the map ``x``, without a command of the engine; ``y`` may be channels of a tensor."""

    def work(box: PixelBox, block: Block) -> None:
        program.store(y, (*box, (0, y.pitch)), block)

    words = program.words(x)
    pixels = x.shape[0] * x.shape[1] * x.shape[2]
    most = max(1, min(program.scratch.words // (2 * words), MOST_WORDS // words))
    program.run([Job((program.need(x, *box),), partial(work, box))
                 for box in boxes(x.shape, min(most, -(-pixels // PIECES)))])  # fmt: skip


def add_vector(program: CoreProgram, x: Tensor, vector: Tensor, y: Tensor) -> None:
    """``y = x + vector``, a float32 number for each channel, rounded once; ``x`` may be float32."""

    def part(out: View, _: View | None, values: View, numbers: View) -> None:
        program.vector.add(out, values, numbers)

    pointwise(program, [x], y, part, vectors=[vector])


def add(program: CoreProgram, x1: Tensor, x2: Tensor, y: Tensor, *, relu: bool = False) -> None:
    """``y = x1 + x2``, rounded once; with ``relu`` +0 where that is negative."""

    def part(out: View, _: View | None, first: View, second: View) -> None:
        program.vector.add(out, first, second, relu=relu)

    pointwise(program, [x1, x2], y, part)


def add_scaled(
    program: CoreProgram, x1: Tensor, x2: Tensor, y: Tensor, *, scale: float, relu: bool = False
) -> None:
    """``y = x1 + x2 * scale``, the product in float32, then the sum, rounded once to operands; with
    ``relu`` +0 where that is negative."""

    def part(out: View, _: View | None, first: View, second: View) -> None:
        program.vector.scale_add(out, second, scale, first, relu=relu)

    pointwise(program, [x1, x2], y, part)


def multiply(program: CoreProgram, x1: Tensor, x2: Tensor, y: Tensor) -> None:
    """``y = x1 * x2``, rounded once to operands."""

    def part(out: View, _: View | None, first: View, second: View) -> None:
        program.vector.scale(out, first, second)

    pointwise(program, [x1, x2], y, part)


def affine(
    program: CoreProgram, x: Tensor, y: Tensor, *, factor: float, offset: float = 0.0
) -> None:
    """``y = x * factor + offset``, the product in float32; nothing is added if ``offset`` is 0."""

    def part(out: View, _: View | None, values: View, *added: View) -> None:
        if added:
            program.vector.emit(out, values, factor, added[0], factor=Factor.Y, carry=Carry.Z,
                                add=1)  # fmt: skip
        else:
            program.vector.scale(out, values, factor)

    pointwise(program, [x], y, part, numbers=[offset] if offset else [])


def sum_gradients(program: CoreProgram, gradients: Sequence[Tensor], dx: Tensor) -> None:
    """``dx``: the float32 sum of at least two maps of operands, in order, rounded once."""
    if len(gradients) < 2:
        raise ValueError(f"{dx.name} needs at least two maps to add, not {len(gradients)}")

    def part(out: View, total: View | None, first: View, *others: View) -> None:
        for other in others[:-1]:
            assert total is not None
            first = program.vector.add(total, first, other)
        program.vector.add(out, first, others[-1])

    pointwise(program, list(gradients), dx, part, total=len(gradients) > 2)
