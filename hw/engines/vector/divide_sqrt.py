"""Divisions, square roots and exponentials of the vector engine, lane by lane."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.float_special import FloatSpecial, SpecialOperation

__all__ = ["VectorSpecial"]


class VectorSpecial(wiring.Component):
    """``x / y``, the square root of ``x`` or its exponential, lane after lane of a group.

    30 cycles per active lane, 67 for an exponential, and one for each of the others; a further one
    from group to group. Idle after reset.

    Parameters
    ----------
    lanes : int

    Members
    -------
    start : In(1) -- not while ``busy``; the operands stand from now on to ``done``
    operation : In(SpecialOperation) -- of all lanes; stands like the operands
    x, y : In(32 * lanes), active : In(lanes)
    busy : Out(1) -- from the cycle after ``start`` to ``done``
    load : Out(lanes), o : Out(32) -- a lane's result; +0 if it is not active
    done : Out(1) -- the last lane's result is being loaded
    flags : Out(4) -- flag events
    """

    def __init__(self, lanes):
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "operation": In(SpecialOperation),
                "x": In(32 * lanes),
                "y": In(32 * lanes),
                "active": In(lanes),
                "busy": Out(1),
                "load": Out(lanes),
                "o": Out(32),
                "done": Out(1),
                "flags": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = FloatSpecial()
        lane = Signal(range(max(2, self._lanes)))
        waiting = Signal()
        finished = Signal()
        present = Signal(self._lanes, reset_less=True)
        request = unit.i.payload
        m.d.comb += request.operation.eq(self.operation)
        with m.Switch(lane):
            for index in range(self._lanes):
                with m.Case(index):
                    active = present[index]
                    m.d.comb += [
                        request.a.eq(self.x[32 * index : 32 * (index + 1)]),
                        request.b.eq(self.y[32 * index : 32 * (index + 1)]),
                        unit.i.valid.eq(self.busy & active & ~waiting),
                        finished.eq(self.busy & (~active | (waiting & unit.o.valid))),
                        self.load[index].eq(finished),
                        self.o.eq(unit.o.payload.bits & active.replicate(32)),
                    ]
        m.d.comb += [
            unit.o.ready.eq(waiting),
            self.done.eq(finished & (lane == self._lanes - 1)),
            self.flags.eq(unit.o.payload.flags & (waiting & unit.o.valid).replicate(4)),
        ]
        with m.If(unit.i.valid & unit.i.ready):
            m.d.sync += waiting.eq(1)
        with m.If(finished):
            m.d.sync += [waiting.eq(0), lane.eq(lane + 1)]
        with m.If(self.done):
            m.d.sync += [self.busy.eq(0), lane.eq(0)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), present.eq(self.active)]
        return m
