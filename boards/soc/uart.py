"""Asynchronous serial line: a start bit, eight data bits from the lowest on, a stop bit."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["UartReceiver", "UartTransmitter", "phase_step"]

#: Bits of the fraction in which the time of a bit is counted.
_PHASE = 16


def phase_step(clock_hz: float, baud: float) -> int:
    """What is added in every cycle: 65,536 is a bit. Raises ValueError for less than four cycles in
    a bit, or more than 4,096."""
    if not 4 <= clock_hz / baud <= 4096:
        raise ValueError(
            f"baud rate must be from {clock_hz / 4096:.0f} to {clock_hz / 4:.0f} at a clock of "
            f"{clock_hz / 1e6:g} MHz, not {baud:g}"
        )
    return round((1 << _PHASE) * baud / clock_hz)


class UartReceiver(wiring.Component):
    """Bytes from a serial line.

    Bits are taken in their middle, to within a cycle. A byte without a stop bit is dropped, and so
    is a start bit shorter than half a bit. The line must be high before the next byte begins.

    Parameters
    ----------
    clock_hz, baud : see :func:`phase_step`

    Members
    -------
    rx : the line; asynchronous
    o : bytes. ``valid`` for one cycle; there is no way to make the sender wait

    After reset the line counts as idle.
    """

    def __init__(self, clock_hz: float, baud: float):
        self._step = phase_step(clock_hz, baud)
        super().__init__({"rx": In(1, init=1), "o": Out(stream.Signature(8, always_ready=True))})

    def elaborate(self, platform):
        m = Module()
        # Two flip-flops against metastability.
        crossed, line, before = Signal(init=1), Signal(init=1), Signal(init=1)
        m.d.sync += [crossed.eq(self.rx), line.eq(crossed), before.eq(line)]
        phase, sample = Signal(_PHASE), Signal()
        m.d.comb += sample.eq((phase + self._step)[_PHASE])
        m.d.sync += phase.eq(phase + self._step)
        shift, left = Signal(8), Signal(range(11))
        m.d.sync += self.o.valid.eq(0)
        m.d.comb += self.o.payload.eq(shift)
        with m.If(left == 0):
            with m.If(before & ~line):
                # The middle of the start bit is half a bit away, less a cycle that has passed.
                m.d.sync += [phase.eq((1 << (_PHASE - 1)) + self._step), left.eq(10)]
        with m.Elif(sample):
            m.d.sync += left.eq(left - 1)
            with m.If((left == 10) & line):
                m.d.sync += left.eq(0)
            with m.Elif(left == 1):
                m.d.sync += self.o.valid.eq(line)
            with m.Elif(left != 10):
                m.d.sync += shift.eq(Cat(shift[1:], line))
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a serial line.

    Parameters
    ----------
    clock_hz, baud : see :func:`phase_step`

    Members
    -------
    i : bytes; ``ready`` when the stop bit of the last one is over
    tx : the line, high when idle and after reset
    """

    def __init__(self, clock_hz: float, baud: float):
        self._step = phase_step(clock_hz, baud)
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        phase, shift, left = Signal(_PHASE + 1), Signal(9, init=0x1FF), Signal(range(11))
        m.d.comb += [self.i.ready.eq(left == 0), self.tx.eq(shift[0])]
        with m.If(left == 0):
            with m.If(self.i.valid):
                m.d.sync += [shift.eq(Cat(0, self.i.payload)), left.eq(10), phase.eq(self._step)]
        with m.Else():
            m.d.sync += phase.eq(phase[:_PHASE] + self._step)
            with m.If(phase[_PHASE]):
                m.d.sync += [shift.eq(Cat(shift[1:], 1)), left.eq(left - 1)]
        return m
