"""Stream registers that cut the paths of payload, valid and ready alike."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HalfRateRegister", "SkidBuffer"]


class HalfRateRegister(wiring.Component):
    """One-entry stream buffer: every output, ``i.ready`` included, comes from a register.

    Half the registers and none of the multiplexers of a :class:`SkidBuffer`, for streams that
    need not move in every cycle. Latency 1 cycle, throughput 1 per 2 cycles, empty after reset.

    Parameters
    ----------
    shape : shape-castable
        Payload of both streams.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        payload = Signal.like(self.i.payload, name="payload", reset_less=True)
        valid = Signal()
        m.d.comb += [
            self.i.ready.eq(~valid),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(~valid):
            m.d.sync += [valid.eq(self.i.valid), payload.eq(self.i.payload)]
        with m.Elif(self.o.ready):
            m.d.sync += valid.eq(0)
        return m


class SkidBuffer(wiring.Component):
    """Two-entry stream buffer: every output, ``i.ready`` included, comes from a register.

    Latency 1 cycle, throughput 1 per cycle, empty after reset.

    Parameters
    ----------
    shape : shape-castable
        Payload of both streams.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        spare = Signal.like(self.i.payload, name="spare", reset_less=True)
        payload = Signal.like(self.i.payload, name="payload", reset_less=True)
        spare_valid = Signal()
        valid = Signal()
        m.d.comb += [
            self.i.ready.eq(~spare_valid),
            self.o.valid.eq(valid),
            self.o.payload.eq(payload),
        ]
        with m.If(self.o.ready | ~valid):
            m.d.sync += [
                valid.eq(self.i.valid | spare_valid),
                payload.eq(Mux(spare_valid, spare, self.i.payload)),
                spare_valid.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += spare_valid.eq(1)
        # Whether it is wanted or not: nothing that comes late decides over so many registers.
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)
        return m
