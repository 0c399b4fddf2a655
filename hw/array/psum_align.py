"""Alignment of the float32 partial sum to the window of its column."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.pipeline import delay

from .pe import DROP_DISTANCE, WINDOW_BITS

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
    negative : Out, sign, 3 cycles after ``psum``
    term : Out, aligned magnitude, like all other outputs 6 cycles after ``psum``
    lost : Out, the aligned value is not exact
    nan, infinite : Out, what the partial sum is
    """

    def __init__(self, *, grid_base: int, width: int):
        self._grid_base = grid_base
        super().__init__(
            {
                "psum": In(32),
                "window": In(width),
                "grid": Out(width),
                "negative": Out(1),
                "term": Out(WINDOW_BITS),
                "lost": Out(1),
                "nan": Out(1),
                "infinite": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()

        def stage(value, name):
            return delay(m, value, 1, name=name, reset=False)

        # Cycle 1: grid exponent; magnitude on the grid (24 bits, 4 zeros, an odd exponent code
        # shifts right by one); special values.
        exponent, mantissa = self.psum[23:31], self.psum[:23]
        absent = (exponent == 0) | (exponent == 0xFF)
        grid = stage(Mux(absent, 0, (exponent + (1 + 2 * self._grid_base)) >> 1), "grid")
        m.d.comb += self.grid.eq(grid)
        magnitude = Cat(Const(0, WINDOW_BITS - 24), mantissa, Const(1, 1))
        magnitude = Mux(exponent[0], magnitude.shift_right(1), magnitude)
        value = stage(Mux(absent, 0, magnitude), "value_1")
        special = stage(exponent == 0xFF, "special")
        fraction = stage(mantissa.any(), "fraction")
        m.d.comb += [
            self.negative.eq(delay(m, self.psum[31], 3, name="sign", reset=False)),
            self.nan.eq(delay(m, special & fraction, 5, name="nan", reset=False)),
            self.infinite.eq(delay(m, special & ~fraction, 5, name="infinite", reset=False)),
        ]

        # Cycle 3: distance to the window.
        grid, value = stage(grid, "grid_2"), stage(value, "value_2")
        difference = Signal(len(grid))
        m.d.comb += difference.eq(self.window - grid)
        distance = stage(difference[:4], "distance_3")
        far = stage(difference >= DROP_DISTANCE, "far_3")
        value = stage(value, "value_3")

        # Cycles 4 to 6: shift, collecting what falls out.
        present = delay(m, ~absent, 5, name="present", reset=False)
        lost = Const(0, 1)
        for cycle, bits in ((4, (0, 1)), (5, (2,)), (6, (3,))):
            for bit in bits:
                amount = 2 << bit
                lost = lost | (distance[bit] & value[:amount].any())
                value = Mux(distance[bit], value.shift_right(amount), value)[:WINDOW_BITS]
            if cycle == 6:
                value, lost = Mux(far, 0, value), lost | (far & present)
            distance, far = stage(distance, f"distance_{cycle}"), stage(far, f"far_{cycle}")
            lost, value = stage(lost, f"lost_{cycle}"), stage(value, f"value_{cycle}")
        m.d.comb += [self.term.eq(value), self.lost.eq(lost)]
        return m
