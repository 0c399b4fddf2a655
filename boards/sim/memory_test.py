"""Traffic on the memory controller with the model of the chip at its pins."""

import subprocess
from dataclasses import dataclass

from amaranth.hdl._ir import PortDirection

from boards.soc.pads import SDRAM_PINS
from boards.soc.sdram.controller import SdramController
from boards.soc.sdram.timing import SdramChip, SdramCycles, fault
from hw.primitives.shared_module import emit_verilog
from rtl_gen.ports import top_ports
from verif.sim import runner

from .memory_bench import SdramBench
from .program import IO_MODELS, chip_times, compile_program

__all__ = ["KINDS", "LEAST", "MemoryResult", "memory_test", "sdram_ports"]

#: Kinds of traffic: bursts of random length anywhere; one after the other; both with pauses.
KINDS = ("random", "stream", "stalls")
#: Bytes per SDRAM cycle that each kind reaches at least; 2 is what the pins can do.
LEAST = {"random": 1.3, "stream": 1.8, "stalls": 0.0}


@dataclass(frozen=True, kw_only=True)
class MemoryResult:
    """One run of traffic.

    Members
    -------
    bytes, cycles : moved, and SDRAM cycles that it took
    violations, wrong : of the chip's rules; of data, IDs and answers
    text : the first of each
    """

    kind: str
    seed: int
    bytes: int
    cycles: int
    violations: int
    wrong: int
    refreshes: int
    text: str

    @property
    def rate(self) -> float:
        """Bytes per SDRAM cycle."""
        return self.bytes / max(self.cycles, 1)

    @property
    def passed(self) -> bool:
        return not self.violations and not self.wrong and self.rate >= LEAST[self.kind]


def sdram_ports(ports) -> dict:
    """The chip's pins as ports of a top module, for :func:`emit_verilog`."""
    ways = {"o": PortDirection.Output, "io": PortDirection.Inout}
    return {f"sdram_{name}": (ports[name], ways[way]) for name, (_, way) in SDRAM_PINS.items()}


def memory_test(
    chip: SdramChip, *, clock_mhz: float, ratio: int, data_width: int, kind: str, requests: int,
    seed: int, longest: int = 16, broken: str = "",
) -> MemoryResult:  # fmt: skip
    """Run ``requests`` bursts of up to ``longest`` beats.

    Parameters
    ----------
    chip : that the controller is made for, and that is simulated
    clock_mhz : of the SDRAM
    ratio, data_width : see :class:`~boards.soc.sdram.controller.SdramController`
    kind : of :data:`KINDS`
    broken : of :data:`~boards.soc.sdram.timing.FAULTS`: controller and chip do not fit

    Raises
    ------
    BuildFailed
        the simulation cannot be built
    """
    made_for, chip = fault(chip, broken)
    controller = SdramController(
        SdramCycles(chip=made_for, clock_mhz=clock_mhz), ratio=ratio, data_width=data_width
    )
    bench = SdramBench(controller)
    text = emit_verilog(
        bench, name="sdram_bench", ports=top_ports(bench) | sdram_ports(bench.ports),
        clocks=("sdram",),
    )  # fmt: skip
    design = runner.build(
        text, toplevel="sdram_bench", files=[IO_MODELS], extra_args=["--pins-inout-enables"]
    )
    times = chip_times(
        SdramCycles(chip=chip, clock_mhz=clock_mhz), RATIO=ratio, DATA_WIDTH=data_width
    )
    program = compile_program(design, "memory_test.cpp", {"chip_times.h": times})
    done = subprocess.run(
        [program, kind, str(requests), str(seed), str(longest)], capture_output=True, text=True
    )
    if done.returncode:
        raise runner.BuildFailed(f"the memory test ended with {done.returncode}: {done.stderr}")
    first, *rest = done.stdout.splitlines()
    words = first.split()
    figures = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return MemoryResult(kind=kind, seed=seed, text="\n".join(rest), **figures)
