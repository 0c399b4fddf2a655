"""Finds that nothing moves in a run any more, and who is to blame."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.registers.map import Unit

__all__ = ["Watchdog"]


class Watchdog(wiring.Component):
    """Counts the cycles without ``progress`` and says when they are ``limit``.

    ``expired`` is high for one cycle, 2 cycles after ``limit`` cycles without progress have passed
    since the last ``progress`` or ``restart``, and again only behind the next one. A ``limit`` of 0
    never expires. After reset it counts, as behind a ``restart``.

    Parameters
    ----------
    units : sequence of Unit
        who may be to blame; the first suspect is
    width : int
        bits of ``limit``

    Members
    -------
    limit : In(width), cycles; stable
    restart : In(1), count from here on; expire neither now nor in the next cycle
    progress : In(1), registered first: it may come from all over the machine
    suspects : In, a bit for each of ``units``: it has something to do and has not done it
    expired : Out(1), pulse; ``unit``: Out(8), the first suspect of the cycle before, or SEQUENCER
    """

    def __init__(self, units, *, width=32):
        self.units = tuple(units)
        self.width = width
        super().__init__(
            {
                "limit": In(width),
                "restart": In(1),
                "progress": In(1),
                "suspects": In(len(self.units)),
                "expired": Out(1),
                "unit": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        moved = Signal()
        # One more than the cycles without progress, so it never equals a limit of 0; it stops
        # where it is above every limit.
        count = Signal(self.width + 1, init=1)
        m.d.sync += [
            moved.eq(self.progress),
            self.expired.eq((count == self.limit) & ~moved & ~self.restart),
        ]
        with m.If(moved | self.restart):
            m.d.sync += count.eq(1)
        with m.Elif(~count[-1]):
            m.d.sync += count.eq(count + 1)

        suspects = Signal.like(self.suspects)
        m.d.sync += suspects.eq(self.suspects)
        m.d.comb += self.unit.eq(Unit.SEQUENCER)
        for suspect, unit in reversed(list(zip(suspects, self.units, strict=True))):
            with m.If(suspect):
                m.d.comb += self.unit.eq(unit)
        return m
