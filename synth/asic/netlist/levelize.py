"""Order of a graph: sources before targets."""

import numpy as np

__all__ = ["levelise"]


def levelise(count: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Level of each of ``count`` nodes: longest way from a node that nothing leads to.

    Nodes on a loop, or behind one, have the level -1.
    """
    pairs = np.unique(np.asarray(source, np.int64) * count + target)
    start, end = np.divmod(pairs, count)
    first = np.searchsorted(start, np.arange(count + 1))
    waiting = np.bincount(end, minlength=count)
    level = np.full(count, -1, np.int64)
    ready = np.flatnonzero(waiting == 0)
    depth = 0
    while len(ready):
        level[ready] = depth
        counts = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.cumsum(counts) + counts, counts)
        reached = end[offsets + np.arange(counts.sum())]
        waiting -= np.bincount(reached, minlength=count)
        touched = np.unique(reached)
        ready = touched[waiting[touched] == 0]
        depth += 1
    return level
