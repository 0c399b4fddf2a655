"""The whole accelerator in Verilator, compiled with its memory."""

import contextlib
import functools
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from rtl_gen.generate import accelerator_verilog, top_name
from verif.sim import runner
from verif.sim.axi_ram import AXI_RAM
from verif.sim.instrument import current
from verif.sim.technology import MODELS

__all__ = ["MINIMUM_MEMORY_BYTES", "SIMULATED_TOP", "Simulator", "build", "with_memory"]

#: Least size of the simulated memory: programs that fit share one build.
MINIMUM_MEMORY_BYTES = 1 << 20
_LEAST: ContextVar[int] = ContextVar("least", default=MINIMUM_MEMORY_BYTES)

#: The accelerator with its memory, as it is simulated.
SIMULATED_TOP = Path(__file__).parents[1] / "sim" / "rtl" / "adagp_sim.v"


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A compiled accelerator with ``memory_bytes`` of memory.

    Members
    -------
    emission_seconds : time to make the Verilog
    verilog_bytes : its size
    """

    config: AdaGPConfig
    design: runner.Build
    memory_bytes: int
    emission_seconds: float
    verilog_bytes: int


@contextlib.contextmanager
def with_memory(least_bytes: int) -> Iterator[None]:
    """Builds inside have so much memory at least: programs of all sizes share one."""
    token = _LEAST.set(least_bytes)
    try:
        yield
    finally:
        _LEAST.reset(token)


@functools.cache
def _emit(config, sources):
    """Name, Verilog text and the seconds that making it took."""
    begin = time.perf_counter()
    text, _ports = accelerator_verilog(config, sources=sources)
    return top_name(config), text, time.perf_counter() - begin


def build(
    config: AdaGPConfig, *, memory_bytes: int = 0, waves: bool = False, text: str | None = None
) -> Simulator:
    """Emit what ``python -m rtl_gen`` writes and compile it with ``memory_bytes`` or more;
    ``text``: other Verilog of the same ports in its place, to see that something fails."""
    size = max(_LEAST.get(), 1 << (memory_bytes - 1).bit_length())
    tool = current()
    name, seconds = top_name(config), 0.0
    if text is None:
        name, text, seconds = _emit(config, tool is not None)
    watching = tool.watch(config, text) if tool is not None else {}
    two = config.has_predictor_core
    design = runner.build(
        {f"{name}.v": text, **watching},
        toplevel="adagp_sim",
        files=[AXI_RAM, SIMULATED_TOP, *MODELS[config.technology]],
        parameters={
            "DATA_WIDTH": config.axi_data_width,
            "ADDRESS_WIDTH": config.axi_address_width,
            "ID_WIDTH": axi_id_width(1 + len(config.cores)),
            "SIZE_BYTES": size,
        },
        defines={"ADAGP_TOP": name} | ({"ADAGP_TWO_CORES": 1} if two else {}),
        waves=waves,
    )
    return Simulator(
        config=config,
        design=design,
        memory_bytes=size,
        emission_seconds=seconds,
        verilog_bytes=len(text),
    )
