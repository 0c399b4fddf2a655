"""Clock domains of the LiteX SoCs: ``sys``, and ``sys2x`` with twice its frequency."""

from litex.build.io import DDROutput
from litex.soc.cores.clock import ECP5PLL
from migen import ClockDomain, ClockSignal, Instance, Module, Signal
from migen.genlib.resetsync import AsyncResetSynchronizer

__all__ = ["Ecpix5Clocks", "SimulatedClocks", "Ulx3sClocks"]


class SimulatedClocks(Module):
    """Both from pins, with the SDRAM's, which is the faster one inverted."""

    def __init__(self, platform):
        self.clock_domains.cd_sys = ClockDomain("sys")
        self.clock_domains.cd_sys2x = ClockDomain("sys2x")
        fast, locked = platform.request("sys2x_clk"), platform.request("locked")
        self.comb += [
            self.cd_sys.clk.eq(platform.request("sys_clk")),
            self.cd_sys2x.clk.eq(fast),
            self.cd_sys.rst.eq(~locked),
            self.cd_sys2x.rst.eq(~locked),
            platform.request("sdram_clk").eq(~fast),
        ]


class Ulx3sClocks(Module):
    """A PLL; the SDRAM's clock is inverted, as on the other way to this board."""

    def __init__(self, platform, clock_hz):
        self.clock_domains.cd_sys = ClockDomain("sys")
        self.clock_domains.cd_sys2x = ClockDomain("sys2x")
        self.clock_domains.cd_sys2x_ps = ClockDomain("sys2x_ps", reset_less=True)
        self.submodules.pll = pll = ECP5PLL()
        self.comb += pll.reset.eq(platform.request("rst"))
        pll.register_clkin(platform.request("clk25"), 25e6)
        pll.create_clkout(self.cd_sys, clock_hz)
        pll.create_clkout(self.cd_sys2x, 2 * clock_hz)
        pll.create_clkout(self.cd_sys2x_ps, 2 * clock_hz, phase=180, with_reset=False)
        self.specials += DDROutput(
            1, 0, platform.request("sdram_clock"), ClockSignal("sys2x_ps")
        )  # fmt: skip


class Ecpix5Clocks(Module):
    """What LiteDRAM's PHY for DDR3 on an ECP5 asks for: the edge clock ``sys2x``, which it stops
    for its start, ``sys`` divided from it, and ``init`` for the start itself.

    Members
    -------
    stop, reset : from the PHY
    """

    def __init__(self, platform, clock_hz):
        self.stop, self.reset = Signal(), Signal()
        self.clock_domains.cd_init = ClockDomain("init")
        self.clock_domains.cd_edge = ClockDomain("edge", reset_less=True)
        self.clock_domains.cd_sys2x = ClockDomain("sys2x", reset_less=True)
        self.clock_domains.cd_sys = ClockDomain("sys")
        self.submodules.pll = pll = ECP5PLL()
        self.comb += pll.reset.eq(~platform.request("rst_n"))
        pll.register_clkin(platform.request("clk100"), 100e6)
        pll.create_clkout(self.cd_edge, 2 * clock_hz, with_reset=False)
        pll.create_clkout(self.cd_init, 25e6)
        self.specials += [
            Instance("ECLKSYNCB", i_ECLKI=self.cd_edge.clk, i_STOP=self.stop,
                     o_ECLKO=self.cd_sys2x.clk),
            Instance("CLKDIVF", p_DIV="2.0", i_ALIGNWD=0, i_CLKI=self.cd_sys2x.clk,
                     i_RST=self.reset, o_CDIVX=self.cd_sys.clk),
            AsyncResetSynchronizer(self.cd_sys, ~pll.locked | self.reset),
        ]  # fmt: skip
