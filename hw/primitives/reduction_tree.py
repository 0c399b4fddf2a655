"""Trees of two-input nodes that reduce many values to one, level by level."""

__all__ = ["reduce_pairs", "tree_depth"]


def tree_depth(count: int) -> int:
    """Levels of two-input nodes that reduce ``count`` values to one."""
    return (count - 1).bit_length()


def reduce_pairs(values, combine):
    """One level of a tree: ``combine(a, b)`` of neighbours, an odd last value stays."""
    values = list(values)
    pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
    return pairs + values[len(values) // 2 * 2 :]
