"""Clocks of an ECP5: the SDRAM's from the board's, and one that is a half of it, or the same."""

from dataclasses import dataclass

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, Signal

__all__ = ["PllSettings", "add_clocks", "pll_settings"]

#: Of the ECP5 (Lattice FPGA-DS-02012, sysCLOCK PLL timing), in MHz.
_OSCILLATOR_MHZ, _PHASE_DETECTOR_MHZ, _LEAST_OUTPUT_MHZ = (400, 800), (3.125, 400), 3.125
_MOST_DIVISION = 128


@dataclass(frozen=True, kw_only=True)
class PllSettings:
    """Divisions of input, feedback and outputs; the second output is ``ratio`` times slower."""

    input: int
    feedback: int
    output: int
    ratio: int
    input_mhz: float

    @property
    def fast_mhz(self) -> float:
        return self.input_mhz * self.feedback / self.input

    @property
    def slow_mhz(self) -> float:
        return self.fast_mhz / self.ratio

    @property
    def oscillator_mhz(self) -> float:
        return self.fast_mhz * self.output


def pll_settings(input_mhz: float, slow_mhz: float, ratio: int) -> PllSettings:
    """What gives ``slow_mhz`` exactly, to a thousandth, and ``ratio`` times that.

    Raises
    ------
    ValueError
        if there is none; the message has the next frequency that there is
    """
    fast = slow_mhz * ratio
    least, most = _OSCILLATOR_MHZ
    found = []
    for divided in range(1, _MOST_DIVISION + 1):
        if not _PHASE_DETECTOR_MHZ[0] <= input_mhz / divided <= _PHASE_DETECTOR_MHZ[1]:
            continue
        feedback = round(fast * divided / input_mhz)
        outputs = [n for n in range(1, _MOST_DIVISION // ratio + 1) if least <= fast * n <= most]
        if not 1 <= feedback <= _MOST_DIVISION or not outputs:
            continue
        settings = PllSettings(
            input=divided, feedback=feedback, ratio=ratio, input_mhz=input_mhz,
            output=min(outputs, key=lambda n: abs(fast * n - (least + most) / 2)),
        )  # fmt: skip
        if least <= settings.oscillator_mhz <= most:
            found.append(settings)
    if not found or slow_mhz < _LEAST_OUTPUT_MHZ:
        raise ValueError(f"no setting of the PLL gives {slow_mhz:g} and {fast:g} MHz")
    best = min(found, key=lambda s: (abs(s.fast_mhz - fast), s.input))
    if abs(best.slow_mhz - slow_mhz) > slow_mhz / 1000:
        raise ValueError(
            f"no setting of the PLL gives {slow_mhz:g} MHz; the next is {best.slow_mhz:.6g} MHz"
        )
    return best


def add_clocks(m: Module, settings: PllSettings, source) -> None:
    """Make the clock domains ``sdram`` (fast, without a reset) and ``sync`` (slow) from the board's
    clock, in the top module ``m``.

    The rising edges of ``sync`` are rising edges of ``sdram``. The reset of ``sync`` is high until
    the PLL is locked, and a few cycles longer. With a ratio of 1 both are one clock.
    """
    m.domains.sdram = ClockDomain("sdram", reset_less=True)
    m.domains.sync = sync = ClockDomain("sync")
    m.domains.start = ClockDomain("start", reset_less=True)
    fast, slow, locked = Signal(), Signal(), Signal()
    slow_division = settings.output * settings.ratio
    m.submodules.pll = Instance(
        "EHXPLLL",
        a_ICP_CURRENT="12", a_LPF_RESISTOR="8", a_MFG_ENABLE_FILTEROPAMP="1",
        a_MFG_GMCREF_SEL="2",
        p_PLLRST_ENA="DISABLED", p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED",
        p_DPHASE_SOURCE="DISABLED", p_OUTDIVIDER_MUXA="DIVA", p_OUTDIVIDER_MUXB="DIVB",
        p_OUTDIVIDER_MUXC="DIVC", p_OUTDIVIDER_MUXD="DIVD",
        p_CLKI_DIV=settings.input, p_CLKFB_DIV=settings.feedback,
        p_CLKOP_ENABLE="ENABLED", p_CLKOP_DIV=settings.output, p_CLKOP_FPHASE=0,
        p_CLKOP_CPHASE=settings.output - 1,
        p_CLKOS_ENABLE="ENABLED", p_CLKOS_DIV=slow_division, p_CLKOS_FPHASE=0,
        p_CLKOS_CPHASE=slow_division - 1,
        p_FEEDBK_PATH="CLKOP",
        i_RST=Const(0), i_STDBY=Const(0), i_PHASESEL0=Const(0), i_PHASESEL1=Const(0),
        i_PHASEDIR=Const(1), i_PHASESTEP=Const(1), i_PHASELOADREG=Const(1),
        i_PLLWAKESYNC=Const(0), i_ENCLKOP=Const(0), i_ENCLKOS=Const(0),
        i_CLKI=source, i_CLKFB=fast, o_CLKOP=fast, o_CLKOS=slow, o_LOCK=locked,
    )  # fmt: skip
    if settings.ratio == 1:
        slow = fast
    m.d.comb += [
        ClockSignal("sdram").eq(fast),
        ClockSignal("sync").eq(slow),
        ClockSignal("start").eq(slow),
    ]
    waiting = Signal(8, init=0xFF)
    m.d.start += waiting.eq(Cat(~locked, waiting))
    m.d.comb += sync.rst.eq(waiting[-1])
