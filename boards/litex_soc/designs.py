"""LiteX SoCs as Verilog: one to simulate at the pins of an SDR SDRAM, those for boards."""

import contextlib
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from boards.catalogue import BoardError
from boards.soc.system import SystemConfig
from rtl_gen.generate import accelerator_verilog, top_name

__all__ = ["NATIVE_WIDTHS", "TARGETS", "LiteXDesign", "board_soc", "simulated"]

#: LiteDRAM's refreshes come later than its timer says; set to so much less they keep their rate.
_REFRESH_CYCLES = 4
_INSTALL = "LiteX is not installed: pip install '.[litex]'"


@dataclass(frozen=True, kw_only=True)
class LiteXDesign:
    """A SoC as Verilog.

    Members
    -------
    top : name of the top module
    files : name -> text
    csrs : LiteX's name of a register -> its byte address
    memory_sequence : LiteDRAM's initialisation: (what it is, address, bank, command, cycles) each
    """

    top: str
    files: dict[str, str]
    csrs: dict[str, int]
    memory_sequence: list[tuple[str, int, int, str, int]]


def simulated(config: SystemConfig) -> LiteXDesign:
    """The SoC with pins of an SDRAM of 16 bits. Its clocks are ``sys_clk`` and ``sys2x_clk`` with
    twice the frequency; the SDRAM's is the second one, inverted. Raises BoardError."""
    with _litex():
        from litex.build.generic_platform import GenericPlatform, Pins, Subsignal

        from .clocks import SimulatedClocks

        widths = {"cke": 1, "cs_n": 1, "ras_n": 1, "cas_n": 1, "we_n": 1, "ba": 2, "a": 13,
                  "dm": 2, "dq": 16}  # fmt: skip
        sdram = [Subsignal(name, Pins(width)) for name, width in widths.items()]
        serial = [Subsignal(name, Pins(1)) for name in ("tx", "rx")]
        single = ("sys_clk", "sys2x_clk", "sdram_clk", "locked")
        pins = [("sdram", 0, *sdram), ("serial", 0, *serial)]
        pins += [(name, 0, Pins(1)) for name in single]
        platform = GenericPlatform("", pins, name="litex_board")
        return _half_rate(config, platform, SimulatedClocks(platform))


def _ulx3s(config: SystemConfig) -> LiteXDesign:
    """A ULX3S, its SDRAM at twice the clock of the SoC."""
    from litex_boards.platforms import radiona_ulx3s

    from .clocks import Ulx3sClocks

    platform = radiona_ulx3s.Platform(device="LFE5U-85F", toolchain="trellis")
    return _half_rate(config, platform, Ulx3sClocks(platform, config.clock_hz))


def _half_rate(config, platform, clocks):
    from litedram.modules import MT48LC16M16
    from litedram.phy import HalfRateGENSDRPHY

    if config.ratio != 2:
        raise BoardError("the LiteX SoC has its SDRAM at twice the clock: ratio must be 2")
    phy = HalfRateGENSDRPHY(platform.request("sdram"), config.clock_hz)
    module = MT48LC16M16(config.clock_hz, "1:2")
    module.timing_settings.tREFI -= _REFRESH_CYCLES
    return _design(config, platform, clocks, phy, module)


def _ecpix5(config: SystemConfig) -> LiteXDesign:
    """An ECPIX-5, with DDR3."""
    from litedram.modules import MT41K256M16
    from litedram.phy import ECP5DDRPHY
    from litex_boards.platforms import lambdaconcept_ecpix5

    from .clocks import Ecpix5Clocks

    platform = lambdaconcept_ecpix5.Platform(device="85F", toolchain="trellis")
    clocks = Ecpix5Clocks(platform, config.clock_hz)
    phy = ECP5DDRPHY(platform.request("ddram"), sys_clk_freq=config.clock_hz)
    clocks.comb += [clocks.stop.eq(phy.init.stop), clocks.reset.eq(phy.init.reset)]
    return _design(config, platform, clocks, phy, MT41K256M16(config.clock_hz, "1:2"))


#: Board -> what makes its SoC of a configuration; raises BoardError.
_MAKERS: dict[str, Callable[[SystemConfig], LiteXDesign]] = {"ulx3s": _ulx3s, "ecpix5": _ecpix5}
TARGETS = tuple(_MAKERS)
#: Bits of LiteDRAM's native port there, which the accelerator's memory bus must have.
NATIVE_WIDTHS = {"ulx3s": 32, "ecpix5": 128}


def board_soc(name: str, config: SystemConfig) -> LiteXDesign:
    """The SoC for a board of :data:`TARGETS`. Raises BoardError."""
    if name not in _MAKERS:
        raise BoardError(f"board must be one of {', '.join(TARGETS)}, not {name!r}")
    with _litex():
        return _MAKERS[name](config)


@contextlib.contextmanager
def _litex() -> Iterator[None]:
    """What LiteX says on the way is not shown, and where it is missing that is said."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except ModuleNotFoundError as error:
        raise BoardError(f"{_INSTALL} ({error})") from None
    finally:
        logging.disable(before)


def _design(config: SystemConfig, platform, clocks, phy, module) -> LiteXDesign:
    from litedram.init import get_sdram_phy_init_sequence
    from litex.soc.integration.export import get_csr_json

    from .soc import AcceleratorSoC

    text, ports = accelerator_verilog(config.accelerator)
    try:
        soc = AcceleratorSoC(
            platform, clocks, config.accelerator, ports, clock_hz=config.clock_hz,
            baud=config.baud, phy=phy, module=module,
        )  # fmt: skip
    except ValueError as error:
        raise BoardError(str(error)) from None
    soc.finalize()
    fragment = soc.get_fragment()
    platform.finalize(fragment)
    verilog = platform.get_verilog(
        fragment, ios=platform.constraint_manager.get_io_signals(), name=platform.name
    )
    registers = json.loads(get_csr_json(soc.csr_regions))["csr_registers"]
    sequence, _ = get_sdram_phy_init_sequence(phy.settings, module.timing_settings)
    return LiteXDesign(
        top=platform.name,
        files={
            f"{platform.name}.v": _without_date(verilog.main_source),
            f"{top_name(config.accelerator)}.v": text,
        },
        csrs={name: entry["addr"] for name, entry in registers.items()},
        memory_sequence=sequence,
    )


def _without_date(text: str) -> str:
    """The same SoC is the same text, whenever it is made."""
    changing = r"(?m)^// (?:LiteX sha1|Date|Filename) *:.*\n|Auto-Generated by LiteX on.*"
    return re.sub(changing, "", text)
