"""Small helpers for fixed-latency pipelines."""

from amaranth.hdl import Signal

__all__ = ["delay", "register"]


def delay(m, value, cycles, *, name="delayed"):
    """``value`` as it was ``cycles`` cycles ago; zero in the first cycles after reset."""
    for stage in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{stage + 1}")
        m.d.sync += register.eq(value)
        value = register
    return value


def register(m, value, *, name):
    """``value`` as it was one cycle ago, in flip-flops without reset: for the data of a
    pipeline whose validity is kept elsewhere."""
    result = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += result.eq(value)
    return result
