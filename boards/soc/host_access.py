"""Accesses of the host: to memory over AXI4, to the accelerator over AXI4-Lite, to the board."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import AXI4LiteSignature, AXI4Signature
from hw.registers.board import ACCELERATOR_BASE, MAGIC, SYSTEM_BASE, Control, Status, System

from .host_bus import HostBusSignature

__all__ = ["HostAccess"]

_BURST_INCR = 1


class HostAccess(wiring.Component):
    """Carries out one access after the other; see :mod:`hw.registers.board` for the addresses.

    A write of memory is over when the memory has answered, so that what comes behind it sees it.
    Reads of addresses that nothing has are 0, writes of them do nothing.

    Parameters
    ----------
    clock_hz, memory_bytes : what the registers of the board say
    data_width : bits of the memory's bus
    register_width : address bits of the accelerator's registers

    Members
    -------
    bus : the host
    memory : AXI4 master; one beat at a time, ID 0
    registers : AXI4-Lite master
    memory_ready, interrupt, overrun : for :attr:`~hw.registers.board.System.STATUS`; the last one
        is kept there
    reset : for one cycle, when the host asks for it
    """

    def __init__(self, *, clock_hz: int, memory_bytes: int, data_width: int, register_width: int):
        self._clock_hz, self._memory_bytes = clock_hz, memory_bytes
        self._data_width = data_width
        memory = AXI4Signature(address_width=32, data_width=data_width, id_width=1)
        super().__init__(
            {
                "bus": In(HostBusSignature()),
                "memory": Out(memory),
                "registers": Out(AXI4LiteSignature(address_width=register_width)),
                "memory_ready": In(1),
                "interrupt": In(1),
                "overrun": In(1),
                "reset": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus, memory, registers = self.bus, self.memory, self.registers
        words = self._data_width // 32
        lane_bits = (words - 1).bit_length()
        lane = bus.address[:lane_bits] if lane_bits else 0
        address = bus.address << 2
        m.d.comb += [
            memory.araddr.eq(address),
            memory.awaddr.eq(address),
            registers.araddr.eq(address),
            registers.awaddr.eq(address),
            registers.wdata.eq(bus.write_data),
            registers.wstrb.eq(0xF),
            memory.wdata.eq(bus.write_data.replicate(words)),
            memory.wstrb.eq(0xF << (lane * 4) if words > 1 else 0xF),
            memory.wlast.eq(1),
        ]
        for name in ("ar", "aw"):
            m.d.comb += [
                getattr(memory, f"{name}size").eq((self._data_width // 8).bit_length() - 1),
                getattr(memory, f"{name}burst").eq(_BURST_INCR),
                getattr(memory, f"{name}cache").eq(0b0011),
            ]
        read_lane = memory.rdata.word_select(lane, 32)

        region = bus.address[26:]
        to_memory = ~bus.address[29]
        to_registers = region == ACCELERATOR_BASE >> 28
        to_system = region == SYSTEM_BASE >> 28
        kept = Signal(name="overrun_kept")
        with m.FSM():
            with m.State("idle"):
                with m.If(bus.valid):
                    with m.If(to_memory | to_registers):
                        m.next = "start"
                    with m.Else():
                        m.d.comb += bus.ready.eq(1)
                        with m.If(to_system):
                            self._system(m, kept)
            with m.State("start"):
                # Valid signals rise here and fall when they have been taken.
                for there, port in ((to_memory, memory), (to_registers, registers)):
                    with m.If(there):
                        m.d.sync += [
                            port.arvalid.eq(~bus.write),
                            port.awvalid.eq(bus.write),
                            port.wvalid.eq(bus.write),
                        ]
                m.next = "wait"
            with m.State("wait"):
                for there, port, value in (
                    (to_memory, memory, read_lane), (to_registers, registers, registers.rdata)
                ):  # fmt: skip
                    for name in ("ar", "aw", "w"):
                        valid = getattr(port, f"{name}valid")
                        with m.If(getattr(port, f"{name}ready")):
                            m.d.sync += valid.eq(0)
                    with m.If(there):
                        m.d.comb += [port.rready.eq(1), port.bready.eq(1), bus.read_data.eq(value)]
                        with m.If(Mux(bus.write, port.bvalid, port.rvalid)):
                            m.d.comb += bus.ready.eq(1)
                            m.next = "idle"
        with m.If(self.overrun):
            m.d.sync += kept.eq(1)
        return m

    def _system(self, m, kept):
        """The registers of the board; read or written in this cycle."""
        bus = self.bus
        with m.Switch(bus.address[:4]):
            for register, value in (
                (System.MAGIC, MAGIC),
                (System.STATUS, self.memory_ready << Status.MEMORY_READY
                 | self.interrupt << Status.INTERRUPT | kept << Status.OVERRUN),
                (System.MEMORY_BYTES, self._memory_bytes),
                (System.CLOCK_HZ, self._clock_hz),
            ):  # fmt: skip
                with m.Case(register):
                    m.d.comb += bus.read_data.eq(value)
            with m.Case(System.CONTROL):
                with m.If(bus.write):
                    m.d.comb += self.reset.eq(bus.write_data[Control.RESET])
                    with m.If(bus.write_data[Control.CLEAR]):
                        m.d.sync += kept.eq(0)
