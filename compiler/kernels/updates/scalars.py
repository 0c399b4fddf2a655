"""Single numbers of a layer, kept as vectors that hold the number in every lane."""

from typing import Self

from compiler.codegen.convolution_walk import matmul_walk
from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.tensors.encoding import codes_of
from compiler.tensors.parameters import lanes
from compiler.tensors.tensor import Tensor
from hw.formats import FLOAT32
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


def channel_sum(
    program: CoreProgram, o: View, values: View, ones: Block, *, scale: float = 1.0
) -> None:
    """``o``, numbers of pixels (1, 1, P, lanes): sums of all channels of ``values``, operands of as
    many pixels, times ``scale``.

    A product with ones: K tiles of ``rows`` channels in order, from +0 on. ``ones`` is a block
    whose first word holds operands 1. P is at most the number of accumulators.
    """
    core, size, pixels = program.core, o.shape[3], o.shape[2]
    for tile in range(-(-size // core.columns)):
        first = tile * core.columns
        valid = min(core.columns, size - first)
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
        walk = matmul_walk(
            values.address, values.strides[2], images=1, outputs=((0, 1), (0, pixels)),
            taps=((0, 1), (0, 1)), lines=((0, 1), (0, pixels)), stride=(1, 1), padding=(0, 0),
            dilation=(1, 1),
        )  # fmt: skip
        program.matmul(
            walk | {"accumulator_bank": bank, "channels": valid, "cb_count": values.words},
            values.block,
        )
        last = first + valid == size
        end = o.words * core.rows if last else first + valid
        place, fields = program.column_place((first, first + valid), end, wide=True)
        program.post(
            fields
            | {
                "accumulator_bank": bank,
                "scale": int(codes_of(FLOAT32, scale)),
                "wo_count": pixels,
                "wo_stride": 1,
                "out_address": o.address + place,
                "out_wo_stride": o.strides[2],
            },
            o.block,
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
