"""Cycles and counters of whole batches, counted once and kept."""

from .cells import Cell
from .count import Count, count
from .store import PUBLISHED, Store

__all__ = ["PUBLISHED", "Cell", "Count", "Store", "count"]
