"""Small helpers for fixed-latency pipelines."""

from amaranth.hdl import Signal

__all__ = ["delay", "register"]


def delay(m, value, cycles: int, *, name: str, reset: bool):
    """``value`` as it was ``cycles`` cycles ago.

    With ``reset`` it is zero in the first cycles after a reset: for what says that something is
    there, and for what must be right at once. Without, the flip-flops keep what they hold: for data
    whose validity is kept elsewhere. The first is called ``{name}_1`` with, ``{name}_0`` without a
    reset: names are part of the emitted Verilog, and measured results of synthesis hang on it.
    """
    for stage in range(cycles):
        number = stage + 1 if reset else stage
        delayed = Signal(value.shape(), name=f"{name}_{number}", reset_less=not reset)
        m.d.sync += delayed.eq(value)
        value = delayed
    return value


def register(m, value, *, name):
    """``value`` as it was one cycle ago, in flip-flops ``name`` without reset."""
    result = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += result.eq(value)
    return result
