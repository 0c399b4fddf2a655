"""AXI4-Lite slave that turns bus traffic into single register accesses."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .signatures import AXI4LiteSignature

__all__ = ["AXI4LiteTarget"]


class AXI4LiteTarget(wiring.Component):
    """AXI4-Lite on one side, one access at a time and per direction on the other.

    Write address and write data are taken in any order; reads and writes do not wait for each
    other. All bus outputs come from registers. Throughput: one write in 2 cycles, one read in 3
    cycles (plus what the access takes). Reset drops whatever is under way. The two lowest address
    bits and the protection bits are ignored.

    Parameters
    ----------
    address_width : bits of a byte address

    Members
    -------
    bus : AXI4-Lite slave port
    write_valid : one cycle per write, with ``write_address`` (in words), ``write_data`` and
        ``write_strobe``; ``write_resp`` is taken in the same cycle
    read_valid : high with ``read_address`` (in words) until ``read_ready``; ``read_data`` and
        ``read_resp`` are taken in the cycle of ``read_ready``
    """

    def __init__(self, *, address_width):
        super().__init__(
            {
                "bus": In(AXI4LiteSignature(address_width=address_width)),
                "write_valid": Out(1),
                "write_address": Out(address_width - 2),
                "write_data": Out(32),
                "write_strobe": Out(4),
                "write_resp": In(2),
                "read_valid": Out(1),
                "read_address": Out(address_width - 2),
                "read_ready": In(1),
                "read_data": In(32),
                "read_resp": In(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.bus

        have_address, have_data = Signal(), Signal()
        m.d.comb += [
            bus.awready.eq(~have_address),
            bus.wready.eq(~have_data),
            self.write_valid.eq(have_address & have_data & (~bus.bvalid | bus.bready)),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(self.write_valid):
            m.d.sync += [
                bus.bvalid.eq(1),
                bus.bresp.eq(self.write_resp),
                have_address.eq(0),
                have_data.eq(0),
            ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [have_address.eq(1), self.write_address.eq(bus.awaddr[2:])]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [
                have_data.eq(1),
                self.write_data.eq(bus.wdata),
                self.write_strobe.eq(bus.wstrb),
            ]

        m.d.comb += bus.arready.eq(~self.read_valid & ~bus.rvalid)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [self.read_valid.eq(1), self.read_address.eq(bus.araddr[2:])]
        with m.If(self.read_valid & self.read_ready):
            m.d.sync += [
                self.read_valid.eq(0),
                bus.rvalid.eq(1),
                bus.rdata.eq(self.read_data),
                bus.rresp.eq(self.read_resp),
            ]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return m
