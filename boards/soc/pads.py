"""Pins of an ECP5 with their flip-flops: of the SDRAM, and single ones."""

from amaranth.hdl import ClockSignal, Const, Instance, IOPort, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from .sdram.phy import PinsSignature

__all__ = ["SDRAM_PINS", "SdramPads", "input_pad", "output_pad"]

#: Pins of the chip: name -> (bits, direction).
SDRAM_PINS = {
    "clk": (1, "o"), "cke": (1, "o"), "cs_n": (1, "o"), "ras_n": (1, "o"), "cas_n": (1, "o"),
    "we_n": (1, "o"), "ba": (2, "o"), "a": (13, "o"), "dqm": (2, "o"), "dq": (16, "io"),
}  # fmt: skip


def input_pad(m: Module, name: str, port: IOPort) -> Signal:
    """The level of a pin."""
    level = Signal(name=f"{name}_level")
    m.submodules[f"{name}_pad"] = Instance("IB", i_I=port, o_O=level)
    return level


def output_pad(m: Module, name: str, port: IOPort, value) -> None:
    """Drive a pin."""
    m.submodules[f"{name}_pad"] = Instance("OB", i_I=value, o_O=port)


def _flip_flop(m, kind, name, d, q):
    m.submodules[name] = Instance(
        kind, i_SCLK=ClockSignal("sdram"), i_SP=Const(1), i_CD=Const(0), i_D=d, o_Q=q
    )


class SdramPads(wiring.Component):
    """The pins of the chip, each with an IO flip-flop in the domain ``sdram`` outwards, inwards
    and for its output enable. The chip's clock is that of ``sdram``, inverted.

    Parameters
    ----------
    ports : name in :data:`SDRAM_PINS` -> IOPort

    Members
    -------
    pins : from the controller
    """

    def __init__(self, ports: dict[str, IOPort]):
        self._ports = ports
        super().__init__({"pins": In(PinsSignature())})

    def elaborate(self, platform):
        m = Module()
        ports, pins = self._ports, self.pins
        clock = Signal()
        # Low while the clock is high: the chip's edge is half a cycle behind.
        m.submodules.clk_ddr = Instance(
            "ODDRX1F", i_SCLK=ClockSignal("sdram"), i_RST=Const(0), i_D0=Const(0), i_D1=Const(1),
            o_Q=clock,
        )  # fmt: skip
        output_pad(m, "clk", ports["clk"], clock)
        output_pad(m, "cke", ports["cke"], Const(1))
        output_pad(m, "cs_n", ports["cs_n"], Const(0))
        for name in ("ras_n", "cas_n", "we_n", "ba", "a", "dqm"):
            value = getattr(pins, name)
            for bit in range(len(value)):
                q = Signal(name=f"{name}{bit}_q")
                _flip_flop(m, "OFS1P3DX", f"{name}{bit}_ff", value[bit], q)
                output_pad(m, f"{name}{bit}", ports[name][bit], q)
        for bit in range(16):
            o, t, i = (Signal(name=f"dq{bit}_{what}") for what in "oti")
            _flip_flop(m, "OFS1P3DX", f"dq{bit}_o_ff", pins.dq_o[bit], o)
            _flip_flop(m, "OFS1P3DX", f"dq{bit}_t_ff", pins.dq_t, t)
            m.submodules[f"dq{bit}_pad"] = Instance(
                "BB", i_I=o, i_T=t, o_O=i, io_B=ports["dq"][bit]
            )
            _flip_flop(m, "IFS1P3DX", f"dq{bit}_i_ff", i, pins.dq_i[bit])
        return m
