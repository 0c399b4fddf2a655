"""The top module of a ULX3S: pins, clocks, and the system between them."""

from amaranth.hdl import Cat, IOPort, Module, Signal
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from .pads import SDRAM_PINS, SdramPads, input_pad, output_pad
from .pll import PllSettings, add_clocks
from .system import System, SystemConfig

__all__ = ["TOP_PINS", "Ulx3sTop"]

#: Pins beside those of the SDRAM: name -> (bits, direction).
TOP_PINS = {"clk25": (1, "i"), "uart_rx": (1, "i"), "uart_tx": (1, "o"), "led": (8, "o")}
_DIRECTIONS = {
    "i": PortDirection.Input, "o": PortDirection.Output, "io": PortDirection.Inout,
}  # fmt: skip


class Ulx3sTop(wiring.Component):
    """The accelerator on a ULX3S, an ECP5 with an SDRAM of 16 bits and a serial line to USB.

    LEDs: 0 memory initialised, 1 interrupt, 2 access to memory, 3 the line is low, 7 blinks with
    the accelerator's clock divided by 2^25.

    Members
    -------
    pins : port of the top module -> (IOPort, direction)
    """

    def __init__(self, config: SystemConfig, clocks: PllSettings):
        self.config, self._clocks = config, clocks
        named = TOP_PINS | {f"sdram_{name}": pin for name, pin in SDRAM_PINS.items()}
        self.pins = {
            name: (IOPort(bits, name=name), _DIRECTIONS[way]) for name, (bits, way) in named.items()
        }
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        ports = {name: port for name, (port, _) in self.pins.items()}
        add_clocks(m, self._clocks, input_pad(m, "clk25", ports["clk25"]))
        m.submodules.system = system = System(self.config)
        m.submodules.sdram = pads = SdramPads({name: ports[f"sdram_{name}"] for name in SDRAM_PINS})
        connect(m, system.pins, pads.pins)
        m.d.comb += system.rx.eq(input_pad(m, "uart_rx", ports["uart_rx"]))
        output_pad(m, "uart_tx", ports["uart_tx"], system.tx)

        blink = Signal(25)
        m.d.sync += blink.eq(blink + 1)
        leds = Signal(8)
        m.d.sync += leds.eq(
            Cat(system.memory_ready, system.interrupt, system.busy, ~system.rx, 0, 0, 0, blink[-1])
        )
        for bit in range(8):
            output_pad(m, f"led{bit}", ports["led"][bit], leds[bit])
        return m
