"""Arithmetic of half-open intervals and multiples."""

from itertools import pairwise

__all__ = [
    "MANY_PARTS",
    "ChannelBox",
    "Channels",
    "Interval",
    "Pair",
    "PixelBox",
    "TensorBox",
    "equal_parts",
    "even_parts",
    "regular_parts",
    "round_up",
]

#: (vertical, horizontal), such as a stride.
Pair = tuple[int, int]
#: [begin, end).
Interval = tuple[int, int]
#: [begin, end) of channels; None for all of them.
Channels = Interval | None
#: Images, rows and columns of a map.
PixelBox = tuple[Interval, Interval, Interval]
#: The same, and channels.
TensorBox = tuple[Interval, Interval, Interval, Interval]
#: The same, perhaps of all channels.
ChannelBox = tuple[Interval, Interval, Interval, Channels]


#: Parts that are many: about as many as the shortest loops have.
MANY_PARTS = 16


def even_parts(begin: int, end: int, size: int) -> list[Interval]:
    """[begin, end) in parts of at most ``size``, as equal as they can be."""
    count = -(-(end - begin) // size)
    edges = [begin + (end - begin) * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def regular_parts(begin: int, end: int, size: int, *, many: int = MANY_PARTS) -> list[Interval]:
    """[begin, end) in as many parts as :func:`even_parts` makes. If they are ``many``, they are all
    the same but for the last one, which has what is left: so loops can go through them."""
    parts = even_parts(begin, end, size)
    if len(parts) < many:
        return parts
    return equal_parts(begin, end, -(-(end - begin) // len(parts)))


def equal_parts(begin: int, end: int, size: int) -> list[Interval]:
    """[begin, end) in parts of ``size``, but for the last one, which has what is left."""
    return [(first, min(first + size, end)) for first in range(begin, end, size)]


def round_up(value: int, unit: int) -> int:
    """The least multiple of ``unit`` that is at least ``value``."""
    return -(-value // unit) * unit
