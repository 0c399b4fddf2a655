"""What an access and a cycle cost, of the designs of the synthesis report (preset ``paper``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perf.area.measured import report_designs

__all__ = ["DRAM_PJ_PER_BIT", "DRAM_SOURCES", "Prices", "prices_of"]

#: pJ for each bit to or from DRAM -> where the figure is from. The results are printed for each.
DRAM_SOURCES = {
    3.9: "HBM2: M. O'Connor et al., Fine-Grained DRAM, MICRO 2017",
    20.0: "1.3 nJ for 64 bits: M. Horowitz, Computing's energy problem, ISSCC 2014, lower end",
    40.0: "2.6 nJ for 64 bits: the same, upper end",
}
#: Taken where one figure is shown.
DRAM_PJ_PER_BIT = 20.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Of a design.

    Members
    -------
    word_bytes : core -> bytes of a word of its buffer
    read, write : core -> pJ of a word of the memory that its engines work in: the global buffer,
        of the predictor's core the predictor memory
    sum_read, sum_write : core -> pJ of a vector of sums
    always : pJ of a cycle, whatever happens: clock and leakage of the logic, leakage of the SRAM
    at_work : core -> pJ of a vector that goes through its array: all other power of the logic in
        the workload of the synthesis report
    """

    word_bytes: Mapping[int, int]
    read: Mapping[int, float]
    write: Mapping[int, float]
    sum_read: Mapping[int, float]
    sum_write: Mapping[int, float]
    always: float
    at_work: Mapping[int, float]


def prices_of(variant: str, report: Mapping[str, Any] | None = None) -> Prices:
    """From CACTI's energies and the logic's power as the synthesis report has them.

    The memory that a core's engines work in is the global buffer, whatever a variant has besides:
    ``efficient`` has words of the same width in its predictor memory.
    """
    design = (report_designs() if report is None else report)[variant]
    memories = {m["purpose"]: m["each"] | {"width": m["width"]} for m in design["sram"]["memories"]}
    cores = range(len(design["arrays"]))
    buffers = {core: memories["predictor memory" if core else "global buffer"] for core in cores}
    sums = {core: memories[f"accumulators, core {core}"] for core in cores}
    power = design["asic"]["power_mw"]
    cycle_ns = 1e3 / power["clock_mhz"]
    blocks = design["asic"]["power_by_block_mw"]
    second = sum(own for block, own in blocks.items() if block.startswith("predictor "))
    share = {0: 1 - second / sum(blocks.values()), 1: second / sum(blocks.values())}
    always = power["clock"] + power["leakage"]
    moving = power["total"] - always
    return Prices(
        word_bytes={core: buffers[core]["width"] // 8 for core in cores},
        read={core: buffers[core]["read_energy_pj"] for core in cores},
        write={core: buffers[core]["write_energy_pj"] for core in cores},
        sum_read={core: sums[core]["read_energy_pj"] for core in cores},
        sum_write={core: sums[core]["write_energy_pj"] for core in cores},
        # mW × ns = pJ.
        always=(always + design["asic"]["memory_power_mw"]["leakage"]) * cycle_ns,
        at_work={
            core: moving * share[core] * cycle_ns / power["utilisation"][f"core{core}"]
            for core in cores
        },
    )
