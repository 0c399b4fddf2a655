"""Scaling of every channel by numbers of its own, as normalisation does it whose statistics are not
those of the batch, from DRAM to DRAM."""

from collections.abc import Callable, Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.maps.pointwise import pointwise
from compiler.kernels.tiling.splitting import channel_parts, channel_steps
from compiler.tensors.intervals import Channels
from compiler.tensors.tensor import Tensor

__all__ = [
    "add_numbers", "channel_numbers", "scale_channels", "scale_channels_backward",
    "scaling_factors",
]  # fmt: skip

_VECTOR = ((0, 1), (0, 1), (0, 1))


def scaling_factors(
    program: CoreProgram, mean: Tensor, variance: Tensor, gamma: Tensor | None,
    beta: Tensor | None, inverse: Tensor, a: Tensor, b: Tensor, *, epsilon: float,
) -> None:  # fmt: skip
    """Commands that write ``inverse`` = 1 / sqrt(variance + epsilon), ``a`` = gamma * inverse and
    ``b`` = beta - mean * a, all (1, 1, 1, C) float32. ``gamma`` and ``beta`` are None for 1 and 0.

    Raises
    ------
    CompileError
        if one word of operands' worth of each vector does not fit into the buffer.
    """
    inputs = [part for part in (mean, variance, gamma, beta) if part is not None]
    vector = program.vector

    def factors(i: View, scale: View, shift: View, m: View, v: View, *more: View) -> None:
        learned = list(more)
        vector.add(i, v, epsilon)
        vector.root(i, i)
        vector.divide(i, 1.0, i)
        vector.scale(scale, i, learned.pop(0) if gamma is not None else 1.0)
        addend: View | float = learned.pop(0) if beta is not None else 0.0
        vector.scale_add(shift, m, scale, addend, negate_product=1)

    channel_numbers(program, [inverse, a, b], inputs, factors)


def channel_numbers(
    program: CoreProgram, outputs: Sequence[Tensor], inputs: Sequence[Tensor],
    work: Callable[..., object],
) -> None:  # fmt: skip
    """``work(*outputs, *inputs)`` on views of numbers of channels, all (1, 1, 1, C) with one pitch,
    in parts that fit; the first of the inputs is float32.

    Raises
    ------
    CompileError
        if one word of operands' worth of each does not fit into the buffer.
    """
    like, count = inputs[0], len(inputs) + len(outputs)

    def run(channels: Channels, *blocks: Block) -> None:
        views = [program.view(block, tensor, *_VECTOR, channels)
                 for block, tensor in zip(blocks, (*outputs, *inputs), strict=True)]  # fmt: skip
        work(*views)
        for block, tensor in zip(blocks, outputs, strict=False):
            program.store(tensor, (*_VECTOR, channels or (0, tensor.pitch)), block)
        program.scratch.drop(blocks[: len(outputs)])

    program.run(
        [
            Job(
                (
                    *(program.result(tensor, *_VECTOR, part) for tensor in outputs),
                    *(program.need(tensor, *_VECTOR, part) for tensor in inputs),
                ),
                partial(run, part),
            )
            for part in _parts(program, like, count)
        ]
    )


def add_numbers(program: CoreProgram, total: Tensor, new: Tensor, *, first: bool) -> None:
    """Add ``new`` to ``total``, both (1, 1, 1, C) float32; the ``first`` ones are written there."""
    if first:
        channel_numbers(program, [total], [new], program.vector.copy)
        return

    def run(channels: Channels, own: Block, more: Block) -> None:
        views = [program.view(block, tensor, *_VECTOR, channels)
                 for block, tensor in ((own, total), (more, new))]  # fmt: skip
        program.vector.add(views[0], *views)
        program.store(total, (*_VECTOR, channels or (0, total.pitch)), own)

    program.run(
        [
            Job(
                tuple(program.need(tensor, *_VECTOR, part) for tensor in (total, new)),
                partial(run, part),
            )
            for part in _parts(program, total, 2)
        ]
    )


def _parts(program: CoreProgram, like: Tensor, count: int) -> list[Channels]:
    """Parts of the channels, so that so many float32 vectors like this fit."""
    for step in channel_steps(program, like):
        parts = channel_parts(program, [like], step)
        words = max(program.words(like, part) for part in parts)
        if words * count <= program.scratch.words // 2:
            return parts
    raise CompileError(
        f"layer of {like.name}: {count} vectors of a word take more than half of the buffer "
        f"({program.scratch.words} words)"
    )


def scale_channels(
    program: CoreProgram, x: Tensor, y: Tensor, a: Tensor, b: Tensor, *, relu: bool = False
) -> None:
    """Commands that write ``y`` = ``x * a + b``, perhaps with a ReLU behind it."""

    def part(o: View, total: View | None, x: View, a: View, b: View) -> None:
        program.vector.scale_add(o, x, a, b, relu=relu)

    pointwise(program, [x], y, part, vectors=[a, b])


def scale_channels_backward(
    program: CoreProgram, dy: Tensor, a: Tensor, dx: Tensor, *, y: Tensor | None = None
) -> None:
    """Commands that write ``dx`` = ``dy * a``, with ``dy`` +0 where the stored output ``y`` of a
    ReLU is not positive."""
    maps: Sequence[Tensor] = [dy] if y is None else [dy, y]

    def part(o: View, total: View | None, dy: View, *more: View) -> None:
        *where, a = more
        source = program.vector.mask(o, dy, where[0]) if where else dy
        program.vector.scale(o, source, a)

    pointwise(program, maps, dx, part, vectors=[a])
