"""A LiteX SoC without a processor: UARTBone, LiteDRAM, the accelerator on a port of its own."""

import re

from litedram.core.controller import ControllerSettings
from litedram.frontend.axi import LiteDRAMAXI2Native
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import wishbone
from litex.soc.interconnect.axi import AXIInterface, AXILiteInterface
from migen import Case, ClockSignal, Constant, Instance, Module, ResetSignal, Signal

from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from hw.registers.board import ACCELERATOR_BASE, MAGIC, SYSTEM_BASE, Control, Status, System
from hw.registers.map import ADDRESS_WIDTH
from rtl_gen.generate import top_name
from rtl_gen.manifest import PortTable

__all__ = ["AcceleratorSoC"]

_CSR_BASE = 0xF000_0000


class SystemRegisters(Module):
    """The registers of the board, :class:`hw.registers.board.System`, on a Wishbone bus."""

    def __init__(self, *, clock_hz: int, memory_bytes: int):
        self.bus = bus = wishbone.Interface(data_width=32, address_width=32, addressing="word")
        self.memory_ready, self.interrupt, self.reset = Signal(), Signal(), Signal()
        values = {
            System.MAGIC: MAGIC,
            System.MEMORY_BYTES: memory_bytes,
            System.CLOCK_HZ: clock_hz,
            System.STATUS: self.memory_ready << Status.MEMORY_READY
            | self.interrupt << Status.INTERRUPT,
        }
        chosen = bus.cyc & bus.stb & ~bus.ack
        self.sync += bus.ack.eq(chosen)
        self.comb += Case(
            bus.adr[:4],
            {int(register): bus.dat_r.eq(value) for register, value in values.items()},
        )
        self.sync += self.reset.eq(
            chosen & bus.we & (bus.adr[:4] == int(System.CONTROL)) & bus.dat_w[Control.RESET]
        )


class AcceleratorSoC(SoCCore):
    """Memory, registers of the accelerator and of the board are where
    :mod:`hw.registers.board` has them; LiteX's own are from 0xF0000000 on.

    Parameters
    ----------
    platform : LiteX's
    crg : module with the clock domains
    config, ports : of the accelerator; its memory bus is as wide as LiteDRAM's native port
    clock_hz, baud : of ``sys``, of the serial line
    phy, module : LiteDRAM's, of the memory

    Raises
    ------
    ValueError
        the memory bus has another width
    """

    mem_map = {**SoCCore.mem_map, "main_ram": 0, "csr": _CSR_BASE}

    def __init__(
        self, platform, crg, config: AdaGPConfig, ports: PortTable, *, clock_hz, baud, phy, module
    ):
        self.crg = crg
        SoCCore.__init__(
            self, platform, clock_hz, cpu_type=None, integrated_sram_size=0, with_uart=False,
            with_timer=False, with_ctrl=False, uart_baudrate=baud, with_uartbone=True,
        )  # fmt: skip
        self.sdrphy = phy
        # The model of the chip has no automatic precharge.
        settings = ControllerSettings(with_auto_precharge=False)
        self.add_sdram(
            "sdram", phy=phy, module=module, l2_cache_size=0, controller_settings=settings
        )
        native = self.sdram.crossbar.get_port()
        if native.data_width != config.axi_data_width:
            raise ValueError(
                f"axi_data_width must be {native.data_width}, LiteDRAM's native width, not "
                f"{config.axi_data_width}"
            )
        memory_bytes = self.bus.regions["main_ram"].size
        system = SystemRegisters(clock_hz=clock_hz, memory_bytes=memory_bytes)
        self.submodules.system = system
        self.bus.add_slave("system", system.bus, SoCRegion(SYSTEM_BASE, 0x1000, cached=False))
        control = self.sdram.dfii._control.storage
        # LiteDRAM's controller would send refreshes before the chip may have any command.
        control.reset = Constant(0, len(control))
        self.comb += system.memory_ready.eq(control[0])

        registers = AXILiteInterface(data_width=32, address_width=32)
        region = SoCRegion(ACCELERATOR_BASE, 1 << ADDRESS_WIDTH, cached=False)
        self.bus.add_slave("accelerator", registers, region)
        id_width = axi_id_width(1 + len(config.cores))
        memory = AXIInterface(
            data_width=config.axi_data_width, address_width=32, id_width=id_width
        )  # fmt: skip
        self.submodules.memory_port = LiteDRAMAXI2Native(memory, native)
        self.specials += Instance(
            top_name(config),
            i_clk=ClockSignal(),
            i_rst=ResetSignal() | system.reset,
            o_irq=system.interrupt,
            **_connections(ports, {"s_axil": registers, "m_axi": memory}),
        )


def _connections(ports, buses):
    """Of an instance: the accelerator's buses with LiteX's."""
    found = {}
    for name, (direction, bits) in ports.items():
        if match := re.fullmatch(r"(s_axil|m_axi)_(aw|w|b|ar|r)(\w+)", name):
            bus, channel, field = match.groups()
            signal = getattr(getattr(buses[bus], channel), field)
            # LiteX's addresses have 32 bits, the accelerator's registers fewer.
            found[f"{direction[0]}_{name}"] = signal[:bits] if len(signal) > bits else signal
    return found
