"""How layers that compute every element of a map by itself are cut into parts."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

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
    vectors: Sequence[Tensor] = (),
    also: Sequence[Tensor] = (),
    more: int = 0,
    placed: int | None = None,
) -> None:
    """``part(output, total, *also, *more, *inputs, *numbers, *vectors)`` on views of a part after
    the other;
    ``total`` is a float32 map of the part if it is wanted, else None, and ``more`` counts further
    ones; ``also`` are other results; each of ``numbers`` is a float32 vector that goes with all
    pixels, and so is each of ``vectors``, (1, 1, 1, C). An input with one image goes with all. If
    it depends on the ``box`` that the part is, it gets this as well, and a part has at most
    ``placed`` pixels.

    Raises
    ------
    CompileError
        if a pixel of all maps does not fit into the buffer.
    """
    words, chunks = program.words(output), program.core.chunks_per_wide
    size = words * (1 + len(also) + chunks * (more + total)) + sum(map(program.words, inputs))
    room = program.scratch.words - words * chunks * len(numbers) - sum(map(program.words, vectors))
    most = min(room // size, MOST_WORDS // (words * chunks))
    if not most:
        raise CompileError(
            f"layer of {output.name}: a pixel of its maps takes {size} words, which do not fit "
            f"into the buffer ({program.scratch.words} words)"
        )

    one = (0, 1), (0, 1), (0, 1)
    with_all = [_number(program, output, number) for number in numbers]
    with_all += [program.need(vector, *one) for vector in vectors]

    results = [output, *also]

    def work(box: PixelBox, *blocks: Block) -> None:
        ends = [*accumulate((len(results), len(with_all), len(inputs)))]
        out, there, read = (blocks[a:b] for a, b in pairwise([0, *ends]))
        wide = [program.view(block, output, *box, wide=True) for block in blocks[ends[-1] :]]
        views = [program.view(b, t, *_own(t, box)) for b, t in zip(read, inputs, strict=True)]
        views += [program.view(block, output, *one, wide=True) for block in there[: len(numbers)]]
        channels = zip(there[len(numbers) :], vectors, strict=True)
        views += [program.view(block, vector, *one) for block, vector in channels]
        first, *others = (program.view(b, t, *box) for b, t in zip(out, results, strict=True))
        sums = wide.pop(0) if total else None
        part(first, sums, *others, *wide, *views, **({} if placed is None else {"box": box}))
        for block, tensor in zip(out, results, strict=True):
            program.store(tensor, (*box, (0, tensor.pitch)), block)
        program.scratch.drop([*out, *blocks[ends[-1] :]])

    jobs = []
    # Several pieces even of a small map, so that transfers hide behind the work; where the work is
    # long, its commands should be, too. Three would fit: so the next one's blocks have room
    # whatever lies between them.
    pixels = output.shape[0] * output.shape[1] * output.shape[2]
    pieces = 2 if more else PIECES
    size = max(1, min(most // 3, -(-pixels // pieces), placed or pixels))
    for box in boxes(output.shape, size):
        needs = [*(program.result(tensor, *box) for tensor in results), *with_all]
        needs += [program.need(part, *_own(part, box)) for part in inputs]
        needs += [program.result(output, *box, wide=True) for _ in range(more + total)]
        run = partial(work, box)
        like = like_box(box) if placed is None else None
        jobs.append(Job(tuple(needs), run, like=like, at=begin_of(box)))
    program.run(jobs)


def _own(tensor: Tensor, box: PixelBox) -> PixelBox:
    """The box of an input that belongs to one of the output."""
    return ((0, 1), *box[1:]) if tensor.shape[0] == 1 else box


def _number(program: CoreProgram, like: Tensor, number: float) -> Need:
    """A vector that holds a ``number`` in float32 for all channels of ``like``."""
    pixel = (0, 1), (0, 1), (0, 1)

    def load(block: Block) -> None:
        program.vector.fill(program.view(block, like, *pixel, wide=True), number)

    words = program.words(like) * program.core.chunks_per_wide
    return Need(("number", repr(number), like.pitch, like.shape[3]), words, load)
