"""Pipelined reduction trees."""

from amaranth.hdl import Signal

__all__ = ["delay", "reduce_pairs", "tree_depth"]


def tree_depth(count: int) -> int:
    """Levels of two-input nodes that reduce ``count`` values to one."""
    return (count - 1).bit_length()


def delay(m, value, cycles: int, *, name: str):
    """``value`` after ``cycles`` flip-flops without reset."""
    for index in range(cycles):
        stage = Signal.like(value, name=f"{name}_{index}", reset_less=True)
        m.d.sync += stage.eq(value)
        value = stage
    return value


def reduce_pairs(values, combine):
    """One level of a tree: ``combine(a, b)`` of neighbours, an odd last value stays."""
    values = list(values)
    pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
    return pairs + values[len(values) // 2 * 2 :]
