"""Concatenations and slices of channels, and their gradients, bit for bit.

The executable form of "Concatenation" and "Slices" in docs/training.md. Where parts are whole
granules of channels, no bit changes. Others are moved by products with ones and zeros.
"""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FloatFormat

from .map_products import products

__all__ = ["concatenate", "divides", "is_whole", "put", "split", "take"]


def concatenate(fmt: FloatFormat, maps, *, rows: int, granule: int | None = None):
    """(codes, flags): the channels of all ``maps``, (N, H, W, C) operand codes, one behind the
    other.

    Parameters
    ----------
    rows : lanes of a K tile
    granule : channels of a granule; None: parts of any number of channels are joined as they are
    """
    maps = [np.asarray(part) for part in maps]
    places, size = _places([part.shape[3] for part in maps], granule)
    joined = np.concatenate(maps, axis=-1)
    if size == joined.shape[3]:
        return joined, 0
    side_by_side = np.zeros((*joined.shape[:3], size), joined.dtype)
    side_by_side[..., places] = joined
    return _product(fmt, side_by_side, np.arange(size)[:, np.newaxis] == places, rows)


def split(fmt: FloatFormat, dy_bits, channels, *, rows: int, granule: int | None = None):
    """([codes], flags): of a gradient the ``channels`` of each part; arguments as those of
    :func:`concatenate`."""
    dy = np.asarray(dy_bits)
    places, size = _places(channels, granule)
    flags = 0
    if size > dy.shape[3]:
        wide, flags = _product(fmt, dy, places[:, np.newaxis] == np.arange(size), rows)
        dy = wide[..., places]
    return np.split(dy, np.cumsum(channels)[:-1], axis=-1), flags


def is_whole(channels, size: int, granule: int | None) -> bool:
    """Whether ``channels`` (begin, end) of ``size`` begin and end with granules."""
    begin, end = channels
    return not granule or (begin % granule == 0 and (end % granule == 0 or end == size))


def divides(ranges, size: int, granule: int | None) -> bool:
    """Whether (begin, end) of some slices are whole granules that divide ``size`` channels."""
    ends = [0, *(end for _, end in sorted(ranges))]
    begins = [*(begin for begin, _ in sorted(ranges)), size]
    return ends == begins and all(is_whole(own, size, granule) for own in ranges)


def take(fmt: FloatFormat, x_bits, *, begin: int, end: int, rows: int, granule: int | None = None):
    """(codes, flags): channels ``begin`` to ``end`` of a map."""
    x = np.asarray(x_bits)
    size = x.shape[3]
    if is_whole((begin, end), size, granule):
        return x[..., begin:end], 0
    return _product(fmt, x, np.arange(size)[:, np.newaxis] == np.arange(begin, end), rows)


def put(fmt: FloatFormat, dy_bits, size: int, *, begin: int, end: int, rows: int):
    """(codes, flags): the gradient of a map of ``size`` channels from that of a slice of it."""
    ones = np.arange(begin, end)[:, np.newaxis] == np.arange(size)
    return _product(fmt, np.asarray(dy_bits), ones, rows)


def _places(channels, granule):
    """Where each channel is if every part begins with a granule, and how many these are."""
    places, size = [], 0
    for count in channels:
        first = -(-size // granule) * granule if granule else size
        places.append(np.arange(first, first + count))
        size = first + count
    return np.concatenate(places), size


def _product(fmt, x, ones, rows):
    """The vectors of ``x`` (N, H, W, K) times ``ones`` (K, C), from +0 on, rounded; and flags."""
    unit = VectorUnit()
    vectors = x.reshape(1, -1, x.shape[3])
    sums = products(fmt, vectors, encode(fmt, ones.astype(float))[np.newaxis], rows, unit)
    codes = unit.round(fmt, sums)
    return codes.reshape(*x.shape[:3], -1), unit.flags
