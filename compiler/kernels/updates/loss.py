"""The loss of a batch: value, gradient, correct answers."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.tensors.encoding import codes_of
from compiler.tensors.intervals import Interval, PixelBox, even_parts
from compiler.tensors.tensor import Tensor
from hw.formats import FLOAT32
from hw.isa.encoding import Opcode
from hw.isa.loss import Loss

__all__ = ["loss_commands"]


def loss_commands(
    program: CoreProgram,
    x: Tensor,
    targets: Tensor,
    gradient: Tensor,
    value: Tensor,
    *,
    kind: str,
    beside: Callable[[CoreProgram, Any], None] | None = None,
    tensors: Any = None,
) -> None:
    """Commands that read outputs ``x`` (N, H, W, C) and ``targets`` and write ``gradient`` and
    ``value`` (docs/loss.md), as many images at a time as fit.

    ``kind`` is "cross_entropy" with labels (N, 1, 1, 1), or "mean_squared_error" with float32
    targets like ``x``; if not even one image fits, it is pixels. ``beside(program, tensors)`` emits
    commands that have nothing to do with it: they are executed while the engine works, since the
    stores that wait for it come behind them.
    """
    images, height, width, channels = x.shape
    squared = kind == "mean_squared_error"
    count = images * height * width * channels
    scales = (2 / count, 1 / count) if squared else (1 / images, 1 / images)
    value_block = Need(object(), program.words(value))
    parts = _parts(program, x, targets, gradient, value)
    if parts is None:
        # Boxes of them are not seen to be parts of the maps.
        names = x.name, targets.name, gradient.name
        maps = _pixels(x), _pixels(targets), _pixels(gradient)
        program.scratch.forget(*names)
        loss_commands(program, *maps, value, kind=kind, beside=beside, tensors=tensors)
        program.scratch.forget(*names)
        return

    def box(tensor: Tensor, part: Interval) -> PixelBox:
        return part, (0, tensor.shape[1]), (0, tensor.shape[2])

    def run(part: Interval, out: Block, result: Block, outputs: Block, wanted: Block) -> None:
        fields = {
            "loss": Loss.SQUARED_ERROR if squared else Loss.CROSS_ENTROPY,
            "first": int(part[0] == 0),
            "last": int(part[1] == images),
            "x_wide": int(x.kind == "float32"),
            "target_wide": 1,
            "row_count": (part[1] - part[0]) * height * width,
            "row_length": channels,
            "x_address": outputs.address,
            "x_stride": program.words(x),
            "target_address": wanted.address,
            "gradient_address": result.address,
            "value_address": out.address,
            "gradient_scale": int(codes_of(FLOAT32, scales[0])),
            "value_scale": int(codes_of(FLOAT32, scales[1])),
        }
        writes = [result.region()] + ([out.region()] if part[1] == images else [])
        program.recorder.emit(
            Opcode.LOSS,
            fields,
            reads=[outputs.region(), wanted.region()],
            writes=writes,
            core=program.core.index,
        )
        if part[1] < images or beside is None:
            store(part, out, result)
            return
        for block in (out, result):
            block.users += 1
        late.append((part, out, result))

    def store(part: Interval, out: Block, result: Block) -> None:
        program.store(gradient, (*box(gradient, part), (0, gradient.pitch)), result)
        program.scratch.drop([result])
        if part[1] == images:
            program.store(value, ((0, 1), (0, 1), (0, 1), (0, value.pitch)), out)
            program.scratch.drop([out])

    jobs = []
    late: list[tuple[Interval, Block, Block]] = []
    for part in parts:
        size = (part[1] - part[0]) * height * width * program.words(gradient)
        needs = (
            value_block,
            Need(object(), size),
            program.need(x, *box(x, part)),
            program.need(targets, *box(targets, part)),
        )
        jobs.append(Job(needs, lambda *blocks, part=part: run(part, *blocks)))
    program.run(jobs)
    if beside is not None:
        beside(program, tensors)
    for part, *blocks in late:
        store(part, *blocks)
        for block in blocks:
            program.scratch.release(block)


def _parts(
    program: CoreProgram, x: Tensor, targets: Tensor, gradient: Tensor, value: Tensor
) -> list[Interval] | None:
    """Images, so many that everything takes less than half of the memory; None if none do."""
    pixels = x.shape[1] * x.shape[2]
    each = pixels * (program.words(x) + program.words(gradient))
    each += targets.shape[1] * targets.shape[2] * program.words(targets)
    most = (program.scratch.words // 2 - program.words(value)) // each
    most = min(most, 0xFFFF // pixels)
    if most > 0:
        return even_parts(0, x.shape[0], most)
    if pixels > 1:
        return None
    raise CompileError(
        f"layer {x.name}: the loss of a pixel takes {each} words, more than half of the buffer "
        f"({program.scratch.words} words)"
    )


def _pixels(tensor: Tensor) -> Tensor:
    """A map as one image for each pixel."""
    return replace(tensor, shape=(prod(tensor.shape[:3]), 1, 1, tensor.shape[3]))
