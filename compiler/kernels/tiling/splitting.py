"""Pieces of maps that fit into the buffer."""

from collections.abc import Iterable, Sequence

from compiler.codegen.core_builder import CoreProgram
from compiler.tensors.intervals import Channels, Interval, PixelBox, even_parts, regular_parts
from compiler.tensors.tensor import Tensor

__all__ = [
    "MOST_WORDS",
    "PIECES",
    "begin_of",
    "boxes",
    "channel_parts",
    "channel_steps",
    "like_box",
    "within",
]

#: Words that a piece may have, so that every stride of a VECTOR command fits its field.
MOST_WORDS = (1 << 15) - 1
#: Into how many a map is cut at least.
PIECES = 8
#: Parts of the channels that are many: each takes so many commands that two of them make a loop.
_MANY_CHANNELS = 3


def boxes(shape: Sequence[int], pixels: int) -> list[PixelBox]:
    """[(images, rows, columns)] of at most ``pixels`` pixels each, in order of n, h, w.

    Whole images if one fits, else whole rows, else parts of rows; (begin, end) each.

    Parameters
    ----------
    shape : (N, H, W, ...)
    pixels : at least 1
    """
    images, height, width = shape[:3]
    if pixels >= height * width:
        groups = regular_parts(0, images, pixels // (height * width))
        return [(group, (0, height), (0, width)) for group in groups]
    rows, columns = regular_parts(0, height, max(1, pixels // width)), [(0, width)]
    if pixels < width:
        columns = even_parts(0, width, pixels)
    return [((n, n + 1), row, part) for n in range(images) for row in rows for part in columns]


def like_box(box: Sequence[Interval]) -> tuple[int, ...]:
    """What boxes of the same size have in common, for ``Job.like``."""
    return tuple(end - begin for begin, end in box)


def begin_of(box: Sequence[Interval]) -> tuple[int, ...]:
    """Where a box begins, for ``Job.at``."""
    return tuple(begin for begin, _ in box)


def within(inner: Iterable[Interval], outer: Iterable[Interval]) -> tuple[slice, ...]:
    """Slices that take the box ``inner`` out of ``outer``, which contains it."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(inner, outer, strict=True))


def channel_steps(program: CoreProgram, tensor: Tensor) -> list[int]:
    """Numbers of words of operands per pixel in which a tensor may be cut, all of them first."""
    words = _words(program, tensor)
    return sorted({-(-words // count) for count in range(1, words + 1)}, reverse=True)


def channel_parts(program: CoreProgram, tensors: Sequence[Tensor], words: int) -> list[Channels]:
    """[(begin, end)] of channels that take at most ``words`` words of operands per pixel; [None] if
    that is all of them.

    Parameters
    ----------
    program : CoreProgram
    tensors : the first one's words are counted; the last part goes to the end of the longest pitch
    """
    total, rows = _words(program, tensors[0]), program.core.rows
    if words >= total:
        return [None]
    last = max(tensor.pitch for tensor in tensors)
    parts = regular_parts(0, total, words, many=_MANY_CHANNELS)
    return [(a * rows, last if b == total else b * rows) for a, b in parts]


def _words(program: CoreProgram, tensor: Tensor) -> int:
    chunks = program.core.chunks_per_wide if tensor.kind == "float32" else 1
    return program.words(tensor) // chunks
