"""Softmax over the pixels of a map, channel by channel, from DRAM to DRAM."""

from collections.abc import Callable, Sequence
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.maps.smooth import exponential
from compiler.kernels.tiling.splitting import MOST_WORDS, PIECES, channel_parts, channel_steps
from compiler.tensors.intervals import Channels, Interval, regular_parts
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

__all__ = ["softmax", "softmax_backward"]


def softmax(
    program: CoreProgram, scores: Tensor, shares: Tensor, mask: Tensor | None = None
) -> None:
    """Commands that write ``shares``, operands, of ``scores``, float32, both (N, T, 1, C): for each
    image and channel the softmax over the pixels.

    Parameters
    ----------
    mask : (1, T, 1, C) operands, which are added to all scores first

    Raises
    ------
    CompileError
        if an image with one word per pixel does not fit into the buffer.
    """
    vector = program.vector

    def work(out: View, maps: Sequence[View], x: View, *added: View) -> None:
        room = maps[0]
        if added:
            vector.add(x, x, added[0])
        largest = _largest(program, room, x)
        vector.emit(x, x, largest, term=Term.SUBTRACT)
        exponential(vector, [x, *maps], x)
        total = room[:, :1]
        _sums(program, total, x)
        vector.divide(total, 1.0, total)
        vector.scale(out, x, total)

    _images(program, shares, [scores], [] if mask is None else [mask], work, wide=2, changed=True)


def softmax_backward(program: CoreProgram, shares: Tensor, dy: Tensor, dx: Tensor) -> None:
    """Commands that write ``dx`` of ``shares``, both operands, and ``dy``, float32: ``(dy - sum) *
    share`` with the sum of share times dy over the pixels."""
    vector = program.vector

    def work(out: View, maps: Sequence[View], share: View, gradient: View) -> None:
        total = maps[0][:, :1]
        _sums(program, total, share, y=gradient, factor=Factor.Y)
        vector.emit(out, gradient, total, share, term=Term.SUBTRACT, factor=Factor.Z)

    _images(program, dx, [shares, dy], [], work, wide=1)


def _largest(program: CoreProgram, room: View, x: View) -> View:
    """The largest pixel of every image and channel of ``x``, in the first one of ``room``; NaN if
    there is one."""
    source, count = x, x.shape[1]
    if count == 1:
        return program.vector.copy(room[:, :1], x)
    while count > 1:
        half = count // 2
        rest = count - half
        if source is x and rest > half:
            program.vector.copy(room[:, half:rest], x[:, half:rest])
        program.vector.emit(
            room[:, :half], source[:, :half], source[:, rest:count],
            condition=Condition.GREATER, carry=Carry.Y, keep=1,
        )  # fmt: skip
        source, count = room, rest
    return room[:, :1]


def _sums(program: CoreProgram, total: View, x: View, **fields: View | int) -> None:
    """The sum over the pixels of each image; views among ``fields`` are operands."""
    for number in range(x.shape[0]):
        image = slice(number, number + 1)
        own = {key: part[image] if isinstance(part, View) else part for key, part in fields.items()}
        program.vector.sum(total[image], x[image], **own)


def _images(
    program: CoreProgram, output: Tensor, inputs: Sequence[Tensor], shared: Sequence[Tensor],
    work: Callable[..., None], *, wide: int, changed: bool = False,
) -> None:  # fmt: skip
    """``work(output, wide maps, *inputs, *shared)`` on some images and channels after the others;
    with ``changed`` it leaves something else in the first input."""
    core = program.core
    images, height, width, _ = output.shape
    pixels = height * width

    def size(channels: Channels) -> int:
        own = program.words(output, channels)
        own += sum(program.words(tensor, channels) for tensor in inputs)
        return pixels * (own + wide * core.chunks_per_wide * program.words(output, channels))

    def fixed(channels: Channels) -> int:
        return pixels * sum(program.words(tensor, channels) for tensor in shared)

    def cut() -> tuple[list[Channels], int]:
        """Parts of the channels, and images that fit, twice if possible."""
        for share in (2, 1):
            for step in channel_steps(program, output):
                parts = channel_parts(program, [output, *inputs], step)
                most = min(
                    min((program.scratch.words - fixed(part)) // share, MOST_WORDS) // size(part)
                    for part in parts
                )
                if most >= 1:
                    return parts, most
        raise CompileError(
            f"layer of {output.name}: an image with one word per pixel does not fit into the "
            f"buffer ({program.scratch.words} words)"
        )

    chosen, most = cut()

    def run(channels: Channels, part: Interval, out: Block, *blocks: Block) -> None:
        given = iter(blocks)
        box = part, (0, height), (0, width)
        first = (0, 1), (0, height), (0, width)
        read = [(next(given), tensor) for tensor in inputs]
        views = [program.view(block, tensor, *box, channels) for block, tensor in read]
        views += [program.view(next(given), tensor, *first, channels) for tensor in shared]
        room = list(given)
        maps = [program.view(block, output, *box, channels, wide=True) for block in room]
        work(program.view(out, output, *box, channels), maps, *views)
        program.store(output, (*box, channels or (0, output.pitch)), out)
        program.scratch.drop([out, *room, *([read[0][0]] if changed else [])])

    jobs = []
    for channels in chosen:
        for part in regular_parts(0, images, max(1, min(most, -(-images // PIECES)))):
            box = part, (0, height), (0, width)
            first = (0, 1), (0, height), (0, width)
            needs: list[Need] = [program.result(output, *box, channels)]
            needs += [program.need(tensor, *box, channels) for tensor in inputs]
            needs += [program.need(tensor, *first, channels) for tensor in shared]
            needs += [program.result(output, *box, channels, wide=True) for _ in range(wide)]
            like = part[1] - part[0], channels
            jobs.append(Job(tuple(needs), partial(run, channels, part), like=like, at=part[:1]))
    program.run(jobs)
