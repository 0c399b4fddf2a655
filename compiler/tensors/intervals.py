"""Arithmetic of half-open intervals and multiples."""

from itertools import pairwise

__all__ = ["even_parts", "round_up"]


def even_parts(begin, end, size):
    """[begin, end) in parts of at most ``size``, as equal as they can be."""
    count = -(-(end - begin) // size)
    edges = [begin + (end - begin) * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def round_up(value, unit):
    """The least multiple of ``unit`` that is at least ``value``."""
    return -(-value // unit) * unit
