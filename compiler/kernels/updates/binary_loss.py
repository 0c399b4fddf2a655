"""Binary cross-entropy of logits: value and gradient."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.errors import CompileError
from compiler.kernels.maps.smooth import logistic_loss, reciprocal
from compiler.kernels.tiling.splitting import boxes
from compiler.tensors.encoding import codes_of
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor
from hw.formats import FLOAT32
from hw.isa.encoding import Opcode
from hw.isa.loss import Loss
from hw.isa.vector import Carry, Factor, Term

__all__ = ["binary_loss_commands"]

#: Float32 maps of a part beside its operands, and the most rows of a LOSS.
_MAPS, _MOST_ROWS = 4, 0xFFFF


def binary_loss_commands(
    program: CoreProgram,
    x: Tensor,
    targets: Tensor,
    gradient: Tensor,
    value: Tensor,
    *,
    beside: Callable[[CoreProgram, Any], None] | None = None,
    tensors: Any = None,
) -> None:
    """As :func:`~compiler.kernels.updates.loss.loss_commands`, for float32 ``targets`` like the
    logits ``x``: VECTOR computes losses and gradients, and LOSS the sum, as that of the squares of
    the losses' roots.

    Raises
    ------
    CompileError
        if a pixel of everything does not fit into the buffer.
    """
    count = prod(x.shape)
    each = program.words(x) + program.words(targets) + 2 * program.words(gradient)
    each += _MAPS * program.words(targets)
    most = (program.scratch.words // 2 - program.words(value)) // each
    if not most:
        raise CompileError(
            f"layer {x.name}: the loss of a pixel takes {each} words, more than half of the buffer "
            f"({program.scratch.words} words)"
        )
    parts = boxes(x.shape, min(most, _MOST_ROWS))
    # Float32 maps of a part have the words of the targets. LOSS reads zeros from less of them.
    wide = replace(targets, name=f"{x.name} in float32")
    value_need = Need(object(), program.words(value))

    def work(part: PixelBox, out: Block, result: Block, *blocks: Block) -> None:
        vector = program.vector
        outputs, wanted, unused, *rest = blocks
        logits, goals = program.view(outputs, x, *part), program.view(wanted, targets, *part)
        maps = [program.view(block, wide, *part) for block in rest]
        losses = logistic_loss(vector, maps[3], maps[:3], logits)
        vector.emit(losses, logits, goals, losses, factor=Factor.Y, negate_product=1,
                    carry=Carry.Z, add=1)  # fmt: skip
        vector.root(losses, losses)
        sigmoid = reciprocal(vector, maps[2], maps, logits)
        vector.emit(program.view(result, gradient, *part), sigmoid, goals, 1.0 / count,
                    term=Term.SUBTRACT, factor=Factor.Z)  # fmt: skip
        vector.fill(maps[1], 0.0)
        last = part is parts[-1]
        fields = {
            "loss": Loss.SQUARED_ERROR, "first": int(part is parts[0]), "last": int(last),
            "x_wide": 1, "target_wide": 1,
            "row_count": prod(end - begin for begin, end in part), "row_length": x.shape[3],
            "x_address": rest[3].address, "x_stride": program.words(wide),
            "target_address": rest[1].address, "gradient_address": unused.address,
            "value_address": out.address, "gradient_scale": 0,
            "value_scale": int(codes_of(FLOAT32, 1.0 / count)),
        }  # fmt: skip
        program.recorder.emit(
            Opcode.LOSS,
            fields,
            reads=[rest[3].region(), rest[1].region()],
            writes=[unused.region()] + ([out.region()] if last else []),
            core=program.core.index,
        )
        program.store(gradient, (*part, (0, gradient.pitch)), result)
        program.scratch.drop([result, unused, *rest])
        if last:
            program.store(value, (*value.pixels, (0, value.pitch)), out)
            program.scratch.drop([out])

    jobs = []
    for part in parts:
        size = prod(end - begin for begin, end in part)
        room = [size * program.words(tensor) for tensor in (gradient, *[wide] * _MAPS)]
        needs = [value_need, Need(object(), room[0])]
        needs += [program.need(x, *part), program.need(targets, *part)]
        needs += [Need(object(), words) for words in room]
        jobs.append(Job(tuple(needs), partial(work, part)))
    program.run(jobs)
    if beside is not None:
        beside(program, tensors)
