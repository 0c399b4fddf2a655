"""The controller with its pins, by itself: what the memory test simulates."""

from amaranth.hdl import IOPort, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from boards.soc.pads import SDRAM_PINS, SdramPads
from boards.soc.sdram.controller import SdramController

__all__ = ["SdramBench"]


class SdramBench(wiring.Component):
    """An :class:`~boards.soc.sdram.controller.SdramController` between its AXI port and the pins of
    the chip.

    Members
    -------
    axi, ready : of the controller
    ports : name of a pin, as in :data:`boards.soc.pads.SDRAM_PINS` -> IOPort
    """

    def __init__(self, controller: SdramController):
        self._controller = controller
        self.ports = {
            name: IOPort(bits, name=f"sdram_{name}") for name, (bits, _way) in SDRAM_PINS.items()
        }
        super().__init__({"axi": In(controller.signature.members["axi"].signature.flip()),
                          "ready": Out(1)})  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.controller = controller = self._controller
        m.submodules.pads = pads = SdramPads(self.ports)
        connect(m, flipped(self.axi), controller.axi)
        connect(m, controller.pins, pads.pins)
        m.d.comb += self.ready.eq(controller.ready)
        return m
