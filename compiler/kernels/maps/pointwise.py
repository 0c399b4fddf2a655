"""How layers that compute every element of a map by itself are cut into parts."""

from collections.abc import Callable, Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, begin_of, boxes, like_box
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor

__all__ = ["pointwise"]


def pointwise(
    program: CoreProgram,
    inputs: Sequence[Tensor],
    output: Tensor,
    part: Callable[..., None],
    *,
    total: bool = False,
    numbers: Sequence[float] = (),
) -> None:
    """``part(output, total, *inputs, *numbers)`` on views of a part after the other; ``total`` is a
    float32 map of the part if it is wanted, else None; each of ``numbers`` is a
    float32 vector that goes with all pixels.

    Raises
    ------
    CompileError
        if a pixel of all maps does not fit into the buffer.
    """
    words, chunks = program.words(output), program.core.chunks_per_wide
    size = words * (len(inputs) + 1 + (chunks if total else 0))
    room = program.scratch.words - words * chunks * len(numbers)
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
        views += [program.view(block, output, *one, wide=True) for block in there]
        part(program.view(out, output, *box), sums, *views)
        program.store(output, (*box, (0, output.pitch)), out)
        program.scratch.drop(temporary)

    jobs = []
    # Several pieces even of a small map, so that transfers hide behind the work. Three would fit:
    # so the next one's blocks have room whatever lies between them.
    pixels = output.shape[0] * output.shape[1] * output.shape[2]
    for box in boxes(output.shape, max(1, min(most // 3, -(-pixels // PIECES)))):
        needs = [program.result(output, *box), *vectors]
        needs += [program.need(part, *box) for part in inputs]
        if total:
            needs.append(program.result(output, *box, wide=True))
        run = partial(work, box)
        jobs.append(Job(tuple(needs), run, like=like_box(box), at=begin_of(box)))
    program.run(jobs)


def _number(program: CoreProgram, like: Tensor, number: float) -> Need:
    """A vector that holds a ``number`` in float32 for all channels of ``like``."""
    pixel = (0, 1), (0, 1), (0, 1)

    def load(block: Block) -> None:
        program.vector.fill(program.view(block, like, *pixel, wide=True), number)

    words = program.words(like) * program.core.chunks_per_wide
    return Need(("number", repr(number), like.pitch, like.shape[3]), words, load)
