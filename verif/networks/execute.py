"""Run a workload on the simulated accelerator and judge it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from verif.sim import waves
from verif.system import accelerator
from verif.system.accelerator import Outcome, Run, Simulator
from verif.system.record import BASE

from .scoreboard import Comparison, compare
from .workload import Workload

__all__ = ["Execution", "execute", "good_program"]

#: Cycles per estimated cycle that a run may take before it counts as hung, and the least.
_PATIENCE, _LEAST_CYCLES = 40, 20_000


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What came of a workload: one comparison and one outcome per repetition."""

    workload: Workload
    simulator: Simulator
    outcomes: list[Outcome]
    comparisons: list[Comparison]
    directory: Path
    waves_file: Path | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every repetition is right."""
        return all(comparison.passed for comparison in self.comparisons)

    @property
    def counters(self) -> dict:
        """Counters of the first repetition."""
        return self.outcomes[0].record.counters

    @property
    def speed(self) -> float:
        """Simulated cycles per second, all repetitions together."""
        records = [outcome.record for outcome in self.outcomes]
        return sum(r.cycles for r in records) / max(sum(r.seconds for r in records), 1e-9)

    def report(self) -> str:
        """What is wrong, as text; empty if nothing is."""
        return "\n".join(
            f"{self.workload.name}, run {index}: {comparison.report()}"
            for index, comparison in enumerate(self.comparisons)
            if not comparison.passed
        )


def execute(
    workload: Workload,
    *,
    repeat: int = 2,
    seed: int = 1,
    stall_share: float = 0.0,
    latency: int = 0,
    with_waves: bool = False,
    image: bytes | None = None,
    directory=None,
) -> Execution:
    """Run ``workload`` ``repeat`` times without a reset in between.

    Parameters
    ----------
    image : memory window to load instead of the workload's (to see the scoreboard fail)
    """
    image = workload.image if image is None else image
    simulator = accelerator.build(workload.config, memory_bytes=BASE + len(image), waves=with_waves)
    patience = _PATIENCE * (1 + 4 * stall_share) * (1 + latency / 10)
    begin = time.perf_counter()
    outcomes, result = accelerator.run(
        simulator,
        [Run(image=image, program_size=len(workload.program.commands))] * repeat,
        seed=seed,
        stall_share=stall_share,
        latency=latency,
        waves=with_waves,
        timeout_cycles=int(_LEAST_CYCLES + patience * workload.program.estimated_cycles),
        directory=directory,
    )
    save_file = None
    if with_waves:
        save_file = waves.write_save_file(result.waveform, workload.config)
    return Execution(
        workload=workload,
        simulator=simulator,
        outcomes=outcomes,
        comparisons=[compare(workload, o, base=BASE, image=image) for o in outcomes],
        directory=result.directory,
        waves_file=save_file,
        seconds=time.perf_counter() - begin,
    )


def good_program(workload: Workload, cycles: int) -> dict[str, str | bytes]:
    """Files for :mod:`verif.system.cocotb_errors`: a program that is right, and what it must store.

    ``cycles`` is how long the program takes.
    """
    program = workload.program
    after = bytearray(workload.image)
    outputs = []
    for tensor, expected in zip(program.outputs, workload.expected, strict=True):
        data = tensor.pack(expected)
        after[tensor.offset : tensor.offset + len(data)] = data
        outputs.append((tensor.name, tensor.offset, len(data)))
    description = {
        "config": workload.config.as_dict(),
        "size": len(workload.image),
        "program_size": len(program.commands),
        "outputs": outputs,
        "cycles": cycles,
        "timeout_cycles": _LEAST_CYCLES + _PATIENCE * cycles,
    }
    return {
        "good.json": json.dumps(description),
        "good.bin": workload.image,
        "good_after.bin": bytes(after),
    }
