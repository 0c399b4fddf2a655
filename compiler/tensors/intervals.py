"""Arithmetic of half-open intervals and multiples."""

from itertools import pairwise

__all__ = [
    "ChannelBox",
    "Channels",
    "Interval",
    "Pair",
    "PixelBox",
    "TensorBox",
    "even_parts",
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


def even_parts(begin: int, end: int, size: int) -> list[Interval]:
    """[begin, end) in parts of at most ``size``, as equal as they can be."""
    count = -(-(end - begin) // size)
    edges = [begin + (end - begin) * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def round_up(value: int, unit: int) -> int:
    """The least multiple of ``unit`` that is at least ``value``."""
    return -(-value // unit) * unit
