"""Numbers that belong to a pixel: means over its channels, and operations with them.

A number of a pixel is a float32 vector that holds it in every lane, so it goes with every word of
the pixel.
"""

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.convolution_walk import matmul_walk
from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.updates.scalars import lanes
from compiler.tensors.encoding import codes_of
from hw.config import CoreConfig
from hw.formats import FLOAT32

__all__ = ["by_words", "channel_mean", "number_words", "ones_need", "split", "split_view"]


def number_words(program: CoreProgram) -> int:
    """Words of operands that the lanes of a number take; as float32 ``chunks_per_wide`` each."""
    return -(-lanes(program.config) // program.core.rows)


def ones_need(program: CoreProgram) -> Need:
    """A word of operands 1."""
    size = program.core.rows

    def load(block: Block) -> None:
        program.vector.fill(View.dense(block, (1, 1, 1, size), 1), 1.0)

    return Need(("ones", size), 1, load)


def channel_mean(
    program: CoreProgram, o: View, values: View, ones: Block, *, scale: float = 1.0
) -> None:
    """``o``, numbers of pixels (1, 1, P, lanes): sums of all channels of ``values``, operands of as
    many pixels, times ``scale``.

    A product with ones: K tiles of ``rows`` channels in order, from +0 on. ``ones`` is the block of
    :func:`ones_need`. P is at most the number of accumulators.
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


def split_view(program: CoreProgram, block: Block, pixels: int, channels: int) -> View:
    """Room for the two parts of so many channels, one behind the other in every pixel."""
    words = -(-channels // program.core.rows)
    return View.dense(block, (1, 1, pixels, channels), 2 * words)


def split(parts: View) -> tuple[View, View]:
    """The two parts of :func:`split_view`: what is rounded, and what is left of it."""
    words = parts.words // 2
    high = replace(parts, words=words)
    return high, replace(high, first=parts.first + words)


def by_words(
    core: CoreConfig, maps: Sequence[View], numbers: Sequence[View] = (),
    vectors: Sequence[View] = (),
) -> list[tuple[View, ...]]:  # fmt: skip
    """[(*maps, *numbers, *vectors)], one command each: maps (1, 1, P, C) word by word, so that
    numbers of pixels go with each word, and vectors of the channels with each pixel.

    First all words that are full; then the rest of the channels, and what lies behind them.
    """
    channels = maps[0].shape[3]
    whole, rest = divmod(channels, core.rows)
    given = [*((view, False) for view in maps), *((view, True) for view in numbers),
             *((view, False) for view in vectors)]  # fmt: skip
    found = []
    if whole:
        full = []
        for view, number in given:
            shape = (1, view.shape[2], 1 if number else whole, core.rows)
            strides = (0, view.strides[2], view.chunks)
            full.append(replace(view, shape=shape, strides=strides, words=1))
        found.append(tuple(full))
    if rest or maps[0].words > whole:
        last = []
        for view, number in given:
            shape = (1, 1, view.shape[2], rest)
            if number:
                last.append(replace(view, shape=shape, words=1))
            else:
                first = view.first + whole * view.chunks
                last.append(replace(view, first=first, shape=shape, words=view.words - whole))
        found.append(tuple(last))
    return found
