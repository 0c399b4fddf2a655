"""The LiteX SoC in Verilator, at its serial line and the pins of the SDRAM chip."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from boards.litex_soc.designs import simulated
from boards.litex_soc.memory_start import start_memory
from boards.soc.system import SystemConfig
from runtime.serial_link import Line
from verif.sim import runner
from verif.sim.technology import MODELS

from .simulator import compile_top

__all__ = ["LITEX", "compile_litex"]

#: What it is called where a board has a name.
LITEX = "litex"
#: What board.cpp drives -> LiteX's names.
_NAMES = {
    "PLL_FAST": "sys2x_clk", "PLL_SLOW": "sys_clk", "PLL_LOCKED": "locked",
    "uart_rx": "serial_rx", "uart_tx": "serial_tx", "sdram_dqm": "sdram_dm",
}  # fmt: skip


def compile_litex(config: SystemConfig) -> tuple[Path, Callable[[Line], None]]:
    """The program that simulates it, or find it compiled; and what a host calls first, with the
    line, so that the memory is initialised.

    Raises
    ------
    BuildFailed
    BoardError
        LiteX is not installed, or cannot have this memory bus
    """
    design = simulated(config)
    verilated = runner.build(
        design.files, toplevel=design.top, files=MODELS[config.accelerator.technology],
        extra_args=["--pins-inout-enables", "-Wno-fatal"],
    )  # fmt: skip
    start = partial(start_memory, design=design, clock_hz=config.clock_hz)
    return compile_top(verilated, config, _NAMES), start
