"""Layers that compute every element of a map by itself, from DRAM to DRAM."""

from collections.abc import Callable, Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.tensors.encoding import codes_of
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor
from hw.formats import format_by_name
from hw.isa.vector import Carry, Condition

from .splitting import MOST_WORDS, PIECES, begin_of, boxes, like_box

__all__ = [
    "add",
    "clamp",
    "clamp_backward",
    "copy_channels",
    "relu",
    "relu_backward",
    "sum_gradients",
]


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


def clamp(program: CoreProgram, x: Tensor, y: Tensor, *, low: float, high: float) -> None:
    """``y``: ``x`` within the limits, which are rounded to operands; NaN stays."""
    low, high = (_operand(x, limit) for limit in (low, high))

    def minus_larger(out: View, values: View, limit: float, minus_limit: View) -> None:
        """Minus the larger of a value and a limit; of NaN it is NaN."""
        program.vector.emit(
            out, values, limit, minus_limit, condition=Condition.GREATER, negate_product=1,
            carry=Carry.Z, keep=1,
        )  # fmt: skip

    def part(out: View, _: View | None, values: View, minus_low: View, most: View) -> None:
        minus_larger(out, values, low, minus_low)
        minus_larger(out, out, -high, most)

    _pointwise(program, [x], y, part, numbers=[-low, high])


def clamp_backward(
    program: CoreProgram, dy: Tensor, y: Tensor, dx: Tensor, *, low: float, high: float
) -> None:
    """``dx``: ``dy`` where the stored output ``y`` is between the limits or NaN, +0 elsewhere."""
    low, high = (_operand(y, limit) for limit in (low, high))

    def part(out: View, _: View | None, gradient: View, output: View, zero: View) -> None:
        """Zeros of an output are +0 where a limit is, so that bits may be compared."""
        for limit in (low, high):
            program.vector.emit(
                out, zero, gradient, output, immediate=abs(limit) if limit == 0 else limit,
                condition=Condition.EQUAL, keep=1,
            )  # fmt: skip
            gradient = out

    _pointwise(program, [dy, y], dx, part, numbers=[0.0])


def copy_channels(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: the map ``x``, without a command of the engine; ``y`` may be channels of a tensor."""

    def work(box: PixelBox, block: Block) -> None:
        program.store(y, (*box, (0, y.pitch)), block)

    words = program.words(x)
    pixels = x.shape[0] * x.shape[1] * x.shape[2]
    most = max(1, min(program.scratch.words // (2 * words), MOST_WORDS // words))
    program.run([Job((program.need(x, *box),), partial(work, box))
                 for box in boxes(x.shape, min(most, -(-pixels // PIECES)))])  # fmt: skip


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
    numbers: Sequence[float] = (),
) -> None:
    """``part(output, total, *inputs, *numbers)`` on views of a part after the other; ``total`` is a
    float32 map of the part if it is wanted, else None; ``numbers`` are operands, each one as a
    vector that goes with all pixels.

    Raises
    ------
    CompileError
        if a pixel of all maps does not fit into the buffer.
    """
    words, chunks = program.words(output), program.core.chunks_per_wide
    size = words * (len(inputs) + 1 + (chunks if total else 0))
    room = program.scratch.words - words * len(numbers)
    most = min(room // size, MOST_WORDS // (words * chunks))
    if not most:
        raise CompileError(
            f"layer of {output.name}: a pixel of its maps takes {size} words, which do not fit "
            f"into the buffer ({program.scratch.words} words)"
        )

    vectors = [_number(program, output, number) for number in numbers]
    one = (0, 1), (0, 1), (0, 1)

    def work(box: PixelBox, out: Block, *blocks: Block) -> None:
        blocks, there = blocks[len(vectors) :], blocks[: len(vectors)]
        temporary = [out]
        sums = None
        if total:
            sums = program.view(blocks[-1], output, *box, wide=True)
            temporary.append(blocks[-1])
        views = [program.view(b, t, *box) for b, t in zip(blocks, inputs, strict=False)]
        views += [program.view(block, output, *one) for block in there]
        part(program.view(out, output, *box), sums, *views)
        program.store(output, (*box, (0, output.pitch)), out)
        program.scratch.drop(temporary)

    jobs = []
    # Several pieces even of a small map, so that transfers hide behind the work.
    pixels = output.shape[0] * output.shape[1] * output.shape[2]
    for box in boxes(output.shape, max(1, min(most // 2, -(-pixels // PIECES)))):
        needs = [program.result(output, *box), *vectors]
        needs += [program.need(part, *box) for part in inputs]
        if total:
            needs.append(program.result(output, *box, wide=True))
        run = partial(work, box)
        jobs.append(Job(tuple(needs), run, like=like_box(box), at=begin_of(box)))
    program.run(jobs)


def _number(program: CoreProgram, like: Tensor, number: float) -> Need:
    """A vector of operands that hold a ``number``, for all channels of ``like``."""
    pixel = (0, 1), (0, 1), (0, 1)

    def load(block: Block) -> None:
        program.vector.fill(program.view(block, like, *pixel), number)

    return Need(("number", repr(number), like.pitch, like.shape[3]), program.words(like), load)


def _operand(like: Tensor, number: float) -> float:
    """A number rounded to operands of the kind of ``like``."""
    return float(like.values(codes_of(format_by_name(like.kind), number)))
