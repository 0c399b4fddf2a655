"""Numbers that belong to a pixel, as means over its channels are: operations with them.

A number of a pixel is a float32 vector that holds it in every lane, so it goes with every word of
the pixel.
"""

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.updates.scalars import lanes
from hw.config import CoreConfig

__all__ = ["by_words", "number_words", "ones_need", "split", "split_view"]


def number_words(program: CoreProgram) -> int:
    """Words of operands that the lanes of a number take; as float32 ``chunks_per_wide`` each."""
    return -(-lanes(program.config) // program.core.rows)


def ones_need(program: CoreProgram) -> Need:
    """A word of operands 1."""
    size = program.core.rows

    def load(block: Block) -> None:
        program.vector.fill(View.dense(block, (1, 1, 1, size), 1), 1.0)

    return Need(("ones", size), 1, load)


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
