"""Pieces of maps that fit into the buffer."""

from .tiling import even_parts

__all__ = ["MOST_WORDS", "boxes", "within"]

#: Words that a piece may have, so that every stride of a VECTOR command fits its field.
MOST_WORDS = (1 << 15) - 1


def boxes(shape, pixels):
    """[(images, rows, columns)] of at most ``pixels`` pixels each, in order of n, h, w.

    Whole images if one fits, else whole rows, else parts of rows; (begin, end) each.

    Parameters
    ----------
    shape : (N, H, W, ...)
    pixels : at least 1
    """
    images, height, width = shape[:3]
    if pixels >= height * width:
        groups = even_parts(0, images, pixels // (height * width))
        return [(group, (0, height), (0, width)) for group in groups]
    rows, columns = even_parts(0, height, max(1, pixels // width)), [(0, width)]
    if pixels < width:
        columns = even_parts(0, width, pixels)
    return [((n, n + 1), row, part) for n in range(images) for row in rows for part in columns]


def within(inner, outer):
    """Slices that take the box ``inner`` out of ``outer``, which contains it."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(inner, outer, strict=True))
