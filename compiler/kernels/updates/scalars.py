"""Single numbers of a layer, kept as vectors that hold the number in every lane."""

from typing import Self

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.tensors.parameters import lanes
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Watch

__all__ = ["Scalars", "channel_sum", "repeat", "running", "sink"]


class Scalars:
    """Numbers in a block: float32 vectors of :func:`lanes` lanes, one behind the other.

    Parameters
    ----------
    program : CoreProgram
    block : that has them from word ``first`` on
    count : how many
    pitch : words from one to the next; None for as few as possible
    """

    def __init__(
        self,
        program: CoreProgram,
        block: Block,
        count: int,
        *,
        first: int = 0,
        pitch: int | None = None,
    ) -> None:
        core, size = program.core, lanes(program.config)
        pitch = self.words(program, 1) if pitch is None else pitch
        self.all = View(
            block=block,
            first=first,
            shape=(1, 1, count, size),
            strides=(0, 0, pitch),
            words=-(-size // core.rows),
            chunks=core.chunks_per_wide,
        )

    @staticmethod
    def words(program: CoreProgram, count: int) -> int:
        """Buffer words that ``count`` numbers take."""
        core = program.core
        return count * core.chunks_per_wide * -(-lanes(program.config) // core.rows)

    @classmethod
    def stored(cls, program: CoreProgram, block: Block, tensor: Tensor) -> Self:
        """Those of a tensor (1, 1, count, lanes) in its block."""
        return cls(program, block, tensor.shape[2], pitch=program.words(tensor))

    def __getitem__(self, index: int | slice) -> View:
        """One number, or those of a slice."""
        part = index if isinstance(index, slice) else slice(index, index + 1)
        return self.all[:, :, part]


def channel_sum(program: CoreProgram, total: View, values: View, ones: Block) -> None:
    """``total``, a number, is the sum of the channels of ``values``, one pixel of operands.

    A product with ones: K tiles of ``rows`` channels in order, from +0 on. ``ones`` is a block
    whose first word holds operands 1.
    """
    core, size = program.core, total.shape[3]
    for tile in range(-(-size // core.columns)):
        valid = min(core.columns, size - tile * core.columns)
        program.weights(
            {
                "address": ones.address,
                "row_stride": 0,
                "cb_count": values.words,
                "row_limit": valid,
                "transpose": 0,
            },
            ones,
        )
        bank = program.next_bank()
        program.matmul(
            {
                "accumulator_bank": bank,
                "channels": valid,
                "x_address": values.address,
                "cb_count": values.words,
                "cb_stride": 1,
                "h_limit": 1,
                "w_limit": 1,
                **{f"{axis}_origin": 0 for axis in "hw"},
            },
            values.block,
        )
        first = tile * core.columns
        last = first + valid == size
        place, fields = program.column_place(
            (first, first + valid), total.words * core.rows if last else first + valid, wide=True
        )
        program.post(
            fields | {"accumulator_bank": bank, "out_address": total.address + place}, total.block
        )


def repeat(program: CoreProgram, o: View, number: View) -> View:
    """``o``, a float32 vector, is the number in every channel."""
    core = program.core
    words = View.dense(o.block, (1, 1, o.words, core.rows), 1, chunks=o.chunks, first=o.first)
    word = View.dense(number.block, (1, 1, 1, core.rows), 1, chunks=o.chunks, first=number.first)
    program.vector.copy(words, word)
    return o


def sink(program: CoreProgram, room: Block, first: int) -> View:
    """What a command writes that only watches numbers: word ``first`` of ``room`` and those that
    a number takes."""
    size = lanes(program.config)
    return View.dense(room, (1, 1, 1, size), -(-size // program.core.rows), first=first)


def running(program: CoreProgram, state: View, new: View, factor: float, sink: View) -> None:
    """``state * factor + new * (1 - factor)``; with the guard on, nothing if any of ``new`` is not
    finite. ``new`` is changed; ``sink`` is a view of a word that has no other use.
    """
    vector = program.vector
    vector.emit(sink, 0.0, new, watch=Watch.FIRST, over=new)
    vector.scale(new, new, 1.0 - factor)
    vector.scale_add(state, state, factor, new, guarded=1)
