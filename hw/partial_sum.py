"""Alignment of the float32 partial sum to the window of its column."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .pe import DROP_DISTANCE, WINDOW_BITS
from .trees import delay

__all__ = ["PartialSum"]


class PartialSum(wiring.Component):
    """Cuts the partial sum to the window, rounding towards zero.

    Throughput 1 per cycle. Nothing is reset.

    Members
    -------
    psum : In, float32 code
    grid : Out, its grid exponent plus ``grid_base`` + 77, or 0 if it is zero or special; 1 cycle
        after ``psum``
    window : In, grid exponent of the window, 2 cycles after ``psum``
    term, carry : Out
        ``term + carry`` is the aligned value: a negative magnitude is only complemented here. Like
        all other outputs 6 cycles after ``psum``.
    lost : Out, the aligned value is not exact
    nan, plus_infinity, minus_infinity : Out, what the partial sum is
    """

    def __init__(self, *, grid_base: int, width: int):
        self._grid_base = grid_base
        super().__init__(
            {
                "psum": In(32),
                "window": In(width),
                "grid": Out(width),
                "term": Out(signed(WINDOW_BITS + 1)),
                "carry": Out(1),
                "lost": Out(1),
                "nan": Out(1),
                "plus_infinity": Out(1),
                "minus_infinity": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()

        def stage(value, name):
            return delay(m, value, 1, name=name)

        # Cycle 1: grid exponent; magnitude on the grid (24 bits, 4 zeros, an odd exponent code
        # shifts right by one); special values.
        exponent, mantissa = self.psum[23:31], self.psum[:23]
        absent = (exponent == 0) | (exponent == 0xFF)
        grid = stage(Mux(absent, 0, ((exponent + 1) >> 1) + self._grid_base), "grid")
        m.d.comb += self.grid.eq(grid)
        magnitude = Cat(Const(0, WINDOW_BITS - 24), mantissa, Const(1, 1))
        magnitude = Mux(exponent[0], magnitude.shift_right(1), magnitude)
        value = stage(Mux(absent, 0, magnitude), "value_1")
        sign = stage(self.psum[31], "sign_1")
        special = stage(exponent == 0xFF, "special")
        fraction = stage(mantissa.any(), "fraction")
        infinite = special & ~fraction
        for name, flag in (
            ("nan", special & fraction),
            ("plus_infinity", infinite & ~sign),
            ("minus_infinity", infinite & sign),
        ):
            m.d.comb += getattr(self, name).eq(delay(m, flag, 5, name=name))

        # Cycle 3: distance to the window.
        grid, value, sign = stage(grid, "grid_2"), stage(value, "value_2"), stage(sign, "sign_2")
        difference = Signal(len(grid))
        m.d.comb += difference.eq(self.window - grid)
        distance = stage(difference[:4], "distance_3")
        far = stage(difference >= DROP_DISTANCE, "far_3")
        value, sign = stage(value, "value_3"), stage(sign, "sign_3")

        # Cycles 4 to 6: shift, collecting what falls out.
        present = delay(m, ~absent, 5, name="present")
        lost = Const(0, 1)
        for cycle, bits in ((4, (0, 1)), (5, (2,)), (6, (3,))):
            for bit in bits:
                amount = 2 << bit
                lost = lost | (distance[bit] & value[:amount].any())
                value = Mux(distance[bit], value.shift_right(amount), value)[:WINDOW_BITS]
            if cycle == 6:
                value = Mux(far, 0, value ^ sign.replicate(WINDOW_BITS))
                lost, sign = lost | (far & present), sign & ~far
            distance, far = stage(distance, f"distance_{cycle}"), stage(far, f"far_{cycle}")
            lost = stage(lost, f"lost_{cycle}")
            value, sign = stage(value, f"value_{cycle}"), stage(sign, f"sign_{cycle}")
        m.d.comb += [
            self.term.eq(Cat(value, sign).as_signed()),
            self.carry.eq(sign),
            self.lost.eq(lost),
        ]
        return m
