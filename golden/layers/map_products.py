"""Products of two maps, bit for bit."""

import numpy as np

from golden.arithmetic.dot_product import column_dot

__all__ = ["products"]


def products(fmt, a, b, rows, unit):
    """(P, M, C) float32 bits: each ``a`` (P, M, K) times its ``b`` (P, K, C), from +0 on, K tiles
    of ``rows`` in order; lanes behind the last one hold +0 on both sides."""
    fill = (0, 0), (0, -a.shape[2] % rows)
    a, b = np.pad(a, ((0, 0), *fill)), np.pad(b, ((0, 0), *fill[::-1]))
    sums = np.zeros((*a.shape[:2], b.shape[2]), np.uint32)
    for first in range(0, a.shape[2], rows):
        tile = slice(first, first + rows)
        sums, flags = column_dot(fmt, a[:, :, tile], b[:, tile], sums)
        unit.flags |= int(np.bitwise_or.reduce(flags, axis=None))
    return sums
