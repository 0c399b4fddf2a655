"""Concatenation of channels, and the parts of its gradient, bit for bit.

The executable form of the section "Concatenation" of docs/training.md. Where all parts but the last
are whole granules of channels, no bit changes. Others are joined by products with ones and zeros.
"""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FloatFormat

from .attention import products

__all__ = ["concatenate", "split"]


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
