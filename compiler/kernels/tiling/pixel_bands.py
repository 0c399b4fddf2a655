"""Layers that add up whole images that do not fit: a band of pixels after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.tensors.intervals import Channels, Interval, even_parts
from compiler.tensors.tensor import Tensor

from .splitting import MOST_WORDS, channel_parts, channel_steps

__all__ = ["PixelBands", "flat", "pixel_bands"]

#: Images that are added up beside each other, at most: a command handles eight pixels of each.
_MOST_IMAGES = 8
#: How often a band should have room, and pixels that it should have at least; the best first.
_TRIES = ((2, 64), (2, 16), (2, 8), (1, 8), (1, 1))


def flat(tensor: Tensor) -> Tensor:
    """The same map with all pixels of an image in one line."""
    images, height, width, channels = tensor.shape
    return replace(tensor, shape=(images, 1, height * width, channels))


@dataclass(frozen=True)
class PixelBands:
    """Parts of the channels, groups of images and bands of their pixels, (begin, end) each; the
    bands are of :func:`flat` maps."""

    channels: list[Channels]
    groups: list[Interval]
    pixels: list[Interval]

    @property
    def group(self) -> int:
        """Images of the largest group."""
        return max(end - begin for begin, end in self.groups)

    @property
    def all(self) -> list[tuple[Interval, Interval]]:
        """[(images, pixels)]: all bands of a group, then those of the next."""
        return [(images, pixels) for images in self.groups for pixels in self.pixels]

    def view(
        self, program: CoreProgram, block: Block, tensor: Tensor, band: tuple[Interval, Interval],
        channels: Channels, *, wide: bool = False,
    ) -> View:  # fmt: skip
        """A band of a map in its block."""
        return program.view(block, flat(tensor), band[0], (0, 1), band[1], channels, wide=wide)


def pixel_bands(
    program: CoreProgram,
    name: str,
    tensor: Tensor,
    others: list[Tensor],
    *,
    pixel: int,
    fixed: Callable[[int, int], int],
) -> PixelBands:
    """Bands of a map, as long as have room twice, or at least once.

    Parameters
    ----------
    name : of the layer, for the message
    tensor, others : the map, and tensors whose pitch may be larger
    pixel : words that belong to a word of a pixel
    fixed : words besides for so many words of operands per pixel and images at a time

    Raises
    ------
    CompileError
        if one pixel does not fit.
    """
    images, height, width, _ = tensor.shape
    total, room = height * width, program.scratch.words
    groups = sorted({min(images, 1 << i) for i in range(_MOST_IMAGES.bit_length())}, reverse=True)
    for copies, least in _TRIES:
        for step in channel_steps(program, tensor):
            for group in groups:
                free = (room - fixed(step, group)) // copies
                most = min(free, MOST_WORDS) // (group * pixel * step)
                if most >= min(least, total):
                    if most >= 8:
                        most -= most % 8
                    return PixelBands(
                        channel_parts(program, [tensor, *others], step),
                        even_parts(0, images, group),
                        [(a, min(a + most, total)) for a in range(0, total, most)],
                    )
    raise CompileError(
        f"layer {name}: a pixel of one word takes {pixel} words, which do not fit into the buffer "
        f"({room} words) beside {fixed(1, 1)} words for sums"
    )
