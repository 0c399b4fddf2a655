"""Delays of wide values: a small memory instead of a row of registers."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["DelayLine"]


class DelayLine(wiring.Component):
    """``o`` is ``i`` of ``cycles`` cycles before; for data whose validity is kept elsewhere.

    A ring of ``cycles - 1`` words, read and written at one place per cycle, and an output
    register: on FPGAs distributed memory. Contents are not reset.

    Parameters
    ----------
    width : bits
    cycles : at least 3

    Members
    -------
    i : In(width)
    o : Out(width)
    """

    def __init__(self, width: int, cycles: int):
        if cycles < 3:
            raise ValueError(f"A delay line takes at least 3 cycles, not {cycles}")
        self._depth = cycles - 1
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = Memory(shape=len(self.i), depth=self._depth, init=[])
        read, write = ring.read_port(domain="comb"), ring.write_port()
        place = Signal(range(self._depth))
        output = Signal(len(self.i), reset_less=True)
        m.d.sync += [place.eq(place + 1), output.eq(read.data)]
        with m.If(place == self._depth - 1):
            m.d.sync += place.eq(0)
        m.d.comb += [
            read.addr.eq(place),
            write.addr.eq(place),
            write.data.eq(self.i),
            write.en.eq(1),
            self.o.eq(output),
        ]
        return m
