"""Copies of the images that are kept, which the list of rows names (hw/isa/rows.py)."""

from collections.abc import Iterator
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need, dma_fields
from compiler.codegen.linking.entries import Region
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.normalization.channel_means import by_words
from compiler.kernels.tiling.splitting import MOST_WORDS, boxes
from compiler.tensors.intervals import Interval, PixelBox
from compiler.tensors.tensor import Tensor, transfers
from hw.isa.encoding import Opcode
from hw.isa.loops import LOOP_LEVELS, stride_name
from hw.isa.rows import RowAction

__all__ = ["LIST_LEVEL", "gather", "gather_scaled", "scatter"]

#: The counter that PICK sets.
LIST_LEVEL = LOOP_LEVELS - 1


def gather(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``, a map of as many images as it has: the images of ``x`` that the list begins with."""

    def work(box: PixelBox, block: Block) -> None:
        program.store(y, (*box, (0, y.pitch)), block)

    program.run([Job((_listed(program, x, *box),), partial(work, box))
                 for box in _boxes(program, y, 1)])  # fmt: skip


def gather_scaled(program: CoreProgram, x: Tensor, factors: Tensor, y: Tensor) -> None:
    """The same, each image times its number in ``factors`` (1, 1, N, lanes), rounded once."""

    def work(box: PixelBox, out: Block, values: Block, factor: Block) -> None:
        o, v = (_line(program.view(block, y, *box)) for block in (out, values))
        number = program.view(factor, factors, (0, 1), (0, 1), (0, 1))
        for part, own, one in by_words(program.core, [o, v], [number]):
            program.vector.scale(part, own, one)
        program.store(y, (*box, (0, y.pitch)), out)
        program.scratch.drop([out])

    jobs = []
    for box in _boxes(program, y, 2):
        needs = (program.result(y, *box), _listed(program, x, *box),
                 _listed(program, factors, box[0], (0, 1), (0, 1)))  # fmt: skip
        jobs.append(Job(needs, partial(work, box)))
    program.run(jobs)


def scatter(program: CoreProgram, x: Tensor, y: Tensor, *, clear: bool = True) -> None:
    """``x`` are the images of ``y`` that the list begins with. Others are +0, or without ``clear``
    what they have been."""
    core = program.core
    if clear:
        _clear(program, y)

    def work(box: PixelBox, block: Block) -> None:
        _pick(program, box[0])
        for fields in _moves(program, y, box[1], box[2], block):
            program.recorder.emit(
                Opcode.STORE, fields, reads=[block.region()], writes=[_whole(y)], core=core.index
            )

    program.run([Job((program.need(x, *box),), partial(work, box))
                 for box in _boxes(program, x, 1)])  # fmt: skip


def _clear(program: CoreProgram, y: Tensor) -> None:
    """``y`` is +0."""

    def work(box: PixelBox, block: Block) -> None:
        program.store(y, (*box, (0, y.pitch)), block)

    def zeros(block: Block) -> None:
        words = View.dense(block, (1, 1, block.words, program.core.rows), 1)
        program.vector.fill(words, 0.0)

    pieces = list(_boxes(program, y, 1))
    size = max(_pixels(box) for box in pieces) * program.words(y)
    none = Need(("zeros", size), size, zeros)
    program.run([Job((none,), partial(work, box)) for box in pieces])


def _boxes(program: CoreProgram, tensor: Tensor, blocks: int) -> Iterator[PixelBox]:
    """Images one by one, or pieces of them of which twice so many ``blocks`` fit."""
    most = min(program.scratch.words // (2 * blocks + 1), MOST_WORDS) // program.words(tensor)
    for image in range(tensor.shape[0]):
        for _, rows, columns in boxes((1, *tensor.shape[1:]), max(1, most)):
            yield (image, image + 1), rows, columns


def _pixels(box: PixelBox) -> int:
    (_, _), (top, bottom), (left, right) = box
    return (bottom - top) * (right - left)


def _line(view: View) -> View:
    """The pixels of an image as one line."""
    shape = (1, 1, view.shape[1] * view.shape[2], view.shape[3])
    return View.dense(view.block, shape, view.words, chunks=view.chunks)


def _pick(program: CoreProgram, position: Interval) -> None:
    fields = {"level": LIST_LEVEL, "action": RowAction.PICK, "position": position[0]}
    program.recorder.emit(Opcode.ROWS, fields)


def _listed(
    program: CoreProgram, tensor: Tensor, position: Interval, rows: Interval, columns: Interval
) -> Need:
    """Pixels of the image that the list has at ``position``: of a map, or the numbers (1, 1, N,
    lanes) of an image."""

    def load(block: Block) -> None:
        _pick(program, position)
        for fields in _moves(program, tensor, rows, columns, block):
            program.recorder.emit(
                Opcode.LOAD, fields, reads=[_whole(tensor)], writes=[block.region()],
                core=program.core.index,
            )  # fmt: skip

    words = _pixels((position, rows, columns)) * program.words(tensor)
    return Need(("listed", tensor.name, position, rows, columns), words, load)


def _moves(
    program: CoreProgram, tensor: Tensor, rows: Interval, columns: Interval, block: Block
) -> Iterator[dict[str, int]]:
    """Fields of the commands that move the same pixels of the image in the list's counter."""
    box = ((0, 1), rows, columns, (0, tensor.pitch))
    images, height, width, _ = tensor.shape
    image = tensor.size // (images if images > 1 else max(1, height * width))
    stride = {stride_name(LIST_LEVEL): image}
    for move in transfers(tensor, *box, program.core.word_bytes):
        yield dma_fields(block.address + move.word, move) | stride


def _whole(tensor: Tensor) -> Region:
    return Region("dram", tensor.offset, tensor.offset + tensor.size)
