"""Accelerator, memory controller and host link, without pins: what is the same on every board."""

from dataclasses import dataclass

from amaranth.hdl import Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.accelerator import Accelerator
from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from hw.primitives.shared_module import add_shared
from hw.registers.map import ADDRESS_WIDTH

from .axi_arbiter import AxiArbiter
from .host_access import HostAccess
from .sdram.controller import SdramController
from .sdram.phy import PinsSignature
from .sdram.timing import SdramChip, SdramCycles
from .uart import UartReceiver, UartTransmitter, phase_step
from .uart_bridge import UartBridge

__all__ = ["System", "SystemConfig"]

#: Bytes from the host that wait while the memory is busy.
_RECEIVED = 32
#: Seconds without a byte after which a command of the host is forgotten.
_TIMEOUT_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """Everything that a board is built of.

    Members
    -------
    accelerator : its memory bus has 32, 64 or 128 bits of data and 32 of address
    chip : the SDRAM
    clock_mhz : of the accelerator
    ratio : cycles of the SDRAM in one of the accelerator, 1 or 2
    baud : bits per second of the host link

    Raises
    ------
    ValueError
        for other widths or ratios, and a clock or a rate that cannot be had
    """

    accelerator: AdaGPConfig
    chip: SdramChip
    clock_mhz: float
    ratio: int = 2
    baud: int = 3_000_000

    def __post_init__(self) -> None:
        if self.accelerator.axi_address_width != 32:
            raise ValueError(
                f"axi_address_width must be 32, not {self.accelerator.axi_address_width}"
            )
        if self.accelerator.axi_data_width not in (32, 64, 128):
            raise ValueError(
                f"axi_data_width must be 32, 64 or 128, not {self.accelerator.axi_data_width}"
            )
        if self.ratio not in (1, 2):
            raise ValueError(f"ratio must be 1 or 2, not {self.ratio!r}")
        phase_step(self.clock_hz, self.baud)
        _ = self.sdram

    @property
    def clock_hz(self) -> int:
        return round(self.clock_mhz * 1e6)

    @property
    def sdram(self) -> SdramCycles:
        return SdramCycles(chip=self.chip, clock_mhz=self.clock_mhz * self.ratio)


class System(wiring.Component):
    """The accelerator with its memory and its host.

    Clock domains are ``sync`` and ``sdram``, see :class:`.sdram.phy.SdramPhy`. After reset the
    memory is initialised; accesses to it wait until then.

    Members
    -------
    rx, tx : serial line from and to the host
    pins : of the SDRAM
    memory_ready, busy, interrupt : to look at
    """

    def __init__(self, config: SystemConfig):
        self.config = config
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "pins": Out(PinsSignature()),
                "memory_ready": Out(1),
                "busy": Out(1),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        width = config.accelerator.axi_data_width
        id_width = axi_id_width(1 + len(config.accelerator.cores))

        host = HostAccess(
            clock_hz=config.clock_hz, memory_bytes=config.chip.size_bytes, data_width=width,
            register_width=ADDRESS_WIDTH,
        )  # fmt: skip
        m.submodules.host = host
        self._serial(m, host)
        reset = Signal()
        m.d.sync += reset.eq(host.reset)
        accelerator = add_shared(
            m, platform, Accelerator(config.accelerator), name="accelerator",
            module_name=f"adagp_{config.accelerator.variant}", clear=reset,
        )  # fmt: skip
        connect(m, host.registers, accelerator.s_axil)

        widths = {"address_width": 32, "data_width": width}
        m.submodules.arbiter = arbiter = AxiArbiter(**widths, id_width=id_width)
        m.submodules.controller = controller = SdramController(
            config.sdram, ratio=config.ratio, **widths, id_width=id_width + 1
        )
        connect(m, accelerator.m_axi, arbiter.masters[0])
        self._connect_host(m, host.memory, arbiter.masters[1])
        connect(m, arbiter.slave, controller.axi)
        connect(m, controller.pins, flipped(self.pins))
        m.d.comb += [
            host.memory_ready.eq(controller.ready),
            host.interrupt.eq(accelerator.irq),
            self.memory_ready.eq(controller.ready),
            self.interrupt.eq(accelerator.irq),
            self.busy.eq(accelerator.m_axi.arvalid | accelerator.m_axi.awvalid),
        ]
        return m

    def _serial(self, m, host):
        """The line, and the bridge behind it."""
        config = self.config
        m.submodules.receiver = receiver = UartReceiver(config.clock_hz, config.baud)
        m.submodules.transmitter = transmitter = UartTransmitter(config.clock_hz, config.baud)
        m.submodules.received = received = fifo.SyncFIFO(width=8, depth=_RECEIVED)
        m.submodules.bridge = bridge = UartBridge(
            timeout_cycles=round(config.clock_hz * _TIMEOUT_SECONDS)
        )
        connect(m, bridge.bus, host.bus)
        connect(m, bridge.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            received.w_data.eq(receiver.o.payload),
            received.w_en.eq(receiver.o.valid),
            host.overrun.eq(receiver.o.valid & ~received.w_rdy),
            bridge.i.payload.eq(received.r_data),
            bridge.i.valid.eq(received.r_rdy),
            received.r_en.eq(bridge.i.ready),
        ]

    @staticmethod
    def _connect_host(m, memory, port):
        """The host has one ID, the accelerator some."""
        for path, member, value in memory.signature.flatten(memory):
            other = getattr(port, path[0])
            if member.flow == Out:
                m.d.comb += other.eq(value)
            else:
                m.d.comb += value.eq(other)
