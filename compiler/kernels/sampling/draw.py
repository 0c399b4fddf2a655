"""Which images of a gradient are kept: the section "Samples of images" of docs/training.md."""

from dataclasses import replace
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.normalization.channel_means import number_words, ones_need
from compiler.kernels.tiling.state import held
from compiler.kernels.updates.scalars import channel_sum
from compiler.tensors.intervals import regular_parts
from compiler.tensors.parameters import lanes
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

__all__ = ["draw_images", "keep_images"]

#: Of a random number, and its first stream; from a bit to the next of the same image.
_BITS, _STREAM, _PIXELS = 24, 1 << 14, 1 << 16
#: The least sum of norms that is divided by.
_LEAST_SUM = 2.0**-100


def draw_images(
    program: CoreProgram, dy: Tensor, share: Tensor, chance: Tensor, uniform: Tensor,
    factor: Tensor, norm: Tensor | None = None, *, number: int,
) -> None:  # fmt: skip
    """Commands that write a number for each image of ``dy`` (N, H, W, C), float32 in lane 0 of
    (1, 1, N, lanes).

    Parameters
    ----------
    share : (1, 1, 1, lanes): how many images are to be kept on the average
    chance : by which an image is kept, and ``factor``, 1 / chance
    uniform : a random number, from 0 to below 1
    norm : of the image, for the host; None where it does not ask
    number : of the layer among those that are sampled

    Raises
    ------
    NoRoom
        if the buffer cannot hold an image.
    """
    images = dy.shape[0]
    narrow = images * program.words(dy)
    wide = images * _number_words(program)
    with held(program, narrow, *[wide] * 4, wide) as needs:
        squares, *numbers = needs
        jobs = [
            Job((squares, program.need(dy, (n, n + 1), *dy.pixels[1:])),
                partial(_square, program, dy, n))
            for n in range(images)
        ]  # fmt: skip
        program.run(jobs)
        one = (0, 1), (0, 1), (0, 1)
        run = partial(_draw, program, (dy, share, chance, uniform, factor, norm), number)
        program.run([Job((squares, *numbers, ones_need(program), program.need(share, *one)), run)])


def keep_images(
    program: CoreProgram, chance: Tensor, uniform: Tensor, factor: Tensor, kept: Tensor
) -> None:
    """Commands that write ``kept``: in every lane ``factor`` of the images that are kept, +0 of
    others. The first VECTOR writes a word for each image, whose lane 0 says whether it is kept."""
    images = chance.shape[2]
    number = Need(object(), images * _number_words(program))
    with held(program, images, images) as [flags, codes]:
        needs = [program.need(tensor, *tensor.pixels) for tensor in (chance, uniform, factor)]
        program.run([Job((flags, *needs[:2]), partial(_flag, program, images))])
        run = partial(_keep, program, kept)
        program.run([Job((number, flags, codes, ones_need(program), needs[2]), run)])


def _number_words(program: CoreProgram) -> int:
    return program.core.chunks_per_wide * number_words(program)


def _numbers(program: CoreProgram, block: Block, images: int) -> View:
    shape = (1, 1, images, lanes(program.config))
    return View.dense(
        block, shape, number_words(program), chunks=program.core.chunks_per_wide
    )  # fmt: skip


def _lane(view: View) -> View:
    """The first channel alone."""
    return replace(view, shape=(*view.shape[:3], 1), words=1)


def _square(program: CoreProgram, dy: Tensor, image: int, squares: Block, block: Block) -> None:
    words = program.words(dy)
    o = View.dense(squares, (1, 1, 1, dy.shape[3]), words, first=image * words)
    x = program.view(block, dy, (image, image + 1), *dy.pixels[1:])
    program.vector.sum(o, x, factor=Factor.U)


def _draw(
    program: CoreProgram,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None],
    layer: int,
    squares: Block,
    *blocks: Block,
) -> None:
    dy, share, chance, uniform, factor, norm = tensors
    images, vector, one = dy.shape[0], program.vector, ((0, 1), (0, 1), (0, 1))
    *numbers, ones, given = blocks
    whole, *others, rounded = (_numbers(program, block, images) for block in numbers)
    p, f, u, bit = map(_lane, (whole, *others))
    values = View.dense(squares, (1, 1, images, dy.shape[3]), program.words(dy))
    values = replace(values, words=-(-dy.shape[3] // program.core.rows))
    _sum_channels(program, whole, values, ones)
    vector.root(p, p)
    if norm:
        program.store(norm, (*norm.pixels, (0, norm.pitch)), whole.block)
    total = f[:, :, :1]
    vector.sum(total, p)
    greater: dict[str, Any] = {"condition": Condition.GREATER, "keep": 1}
    vector.emit(total, total, _LEAST_SUM, carry=Carry.Y, **greater)
    vector.divide(total, _lane(program.view(given, share, *one)), total)
    vector.scale(p, p, total)
    vector.emit(p, p, 1.0, p, term=Term.IMMEDIATE, carry=Carry.Z, **greater)
    codes = _lane(replace(rounded, chunks=1, strides=(0, 0, rounded.words)))
    vector.divide(codes, 1.0, p)
    vector.copy(f, codes)
    vector.divide(p, 1.0, f)
    for number in range(_BITS):
        o = bit if number else u
        vector.emit(
            o, 0.5 ** (number + 1), sample=1, y_address=1 << (_BITS - 1),
            y_i0_stride=_STREAM + layer, z_address=number * _PIXELS, z_i0_stride=1,
        )  # fmt: skip
        if number:
            vector.add(u, u, o)
    for tensor, view in ((chance, p), (factor, f), (uniform, u)):
        program.store(tensor, (*tensor.pixels, (0, tensor.pitch)), view.block)


def _sum_channels(program: CoreProgram, o: View, values: View, ones: Block) -> None:
    """:func:`channel_sum` of any number of pixels."""
    for begin, end in regular_parts(0, o.shape[2], program.core.accumulator_depth):
        part = (slice(None), slice(None), slice(begin, end))
        channel_sum(program, o[part], values[part], ones)


def _flag(program: CoreProgram, images: int, flags: Block, chance: Block, uniform: Block) -> None:
    o = View.dense(flags, (1, 1, images, 1), 1)
    x, y = (_lane(_numbers(program, block, images)) for block in (chance, uniform))
    program.vector.emit(o, x, y, immediate=1.0, term=Term.IMMEDIATE, condition=Condition.GREATER)


def _keep(
    program: CoreProgram, kept: Tensor, number: Block, flags: Block, codes: Block, ones: Block,
    factor: Block,
) -> None:  # fmt: skip
    images = kept.shape[2]
    o, f = (_numbers(program, block, images) for block in (number, factor))
    keep, operands = (View.dense(block, (1, 1, images, 1), 1) for block in (flags, codes))
    program.vector.mask(operands, _lane(f), keep)
    _sum_channels(program, o, operands, ones)
    program.store(kept, (*kept.pixels, (0, kept.pitch)), number)
    program.scratch.drop([number])
