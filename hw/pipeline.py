"""Small helpers for fixed-latency pipelines."""

from amaranth.hdl import Signal

__all__ = ["delay"]


def delay(m, value, cycles, *, name="delayed"):
    """``value`` as it was ``cycles`` cycles ago; zero in the first cycles after reset."""
    for stage in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{stage + 1}")
        m.d.sync += register.eq(value)
        value = register
    return value
