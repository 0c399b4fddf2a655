"""Power of an accelerator in standard cells: a workload on the RTL, replayed on the netlist."""

from synth.asic.netlist.flat_netlist import FlatNetlist
from synth.asic.netlist.gate_simulation import simulate
from synth.asic.netlist.net_power import PowerModel
from synth.asic.netlist.static_timing import TimingGraph
from synth.common.memories import macro_size
from synth.sram.cacti import Technology, sram_macro

from .activity import Recording, record
from .area import block_of

__all__ = ["BASIS", "memory_activity", "power_report"]

BASIS = (
    "every net's changes counted by simulating the netlist with the inputs and memory contents "
    "that a simulation of the RTL recorded, and compared with it in every cycle; zero delay, so "
    "glitches are not in it; no clock gating, no clock tree"
)


def power_report(
    config,
    netlist: FlatNetlist,
    graph: TimingGraph,
    *,
    workload: str,
    clock_ns: float,
    progress=lambda text: None,
    recording: Recording | None = None,
) -> dict:
    """Power from the start of a workload to its interrupt.

    Parameters
    ----------
    recording : of the workload on this configuration; by default it is made

    Returns
    -------
    dict
        ``power_mw``: ``internal``, ``switching``, ``leakage``, ``total``, ``clock`` (a part of the
        first two), ``clock_mhz``, ``activity``, ``basis``, ``cycles``, ``changes_per_cycle`` (mean
        over all nets), ``utilisation`` (of each core's array: vectors per cycle);
        ``power_by_block_mw``; ``memory_activity``: see :func:`memory_activity`;
        ``memory_power_mw``: ``dynamic`` and ``leakage`` of the memories from CACTI

    Raises :class:`ToolError`.
    """
    recording = record(config, workload, progress=progress) if recording is None else recording
    counts = simulate(
        netlist,
        recording.values,
        window=(recording.first, recording.last),
        compare_from=recording.reset,
        progress=progress,
    )
    progress("adding up power")
    model = PowerModel(netlist, graph, counts)
    blocks = {}
    for block, value in zip(netlist.blocks, model.block_milliwatts(clock_ns)):
        name = block_of(block.name)
        blocks[name] = blocks.get(name, 0.0) + float(value)
    cycles = recording.last - recording.first
    memories = memory_activity(netlist, recording)
    return {
        "power_mw": {
            **model.milliwatts(clock_ns),
            "clock_mhz": round(1000 / clock_ns, 3),
            "activity": recording.workload,
            "basis": BASIS,
            "cycles": counts.cycles,
            "changes_per_cycle": round(
                float(counts.changes.sum() / counts.cycles / netlist.nets), 5
            ),
            "utilisation": {
                name.removesuffix("_VECTORS").lower(): round(value / cycles, 4)
                for name, value in recording.counters.items()
                if name.endswith("_VECTORS")
            },
        },
        "power_by_block_mw": {
            name: round(value, 4) for name, value in sorted(blocks.items(), key=lambda i: -i[1])
        },
        "memory_activity": memories,
        "memory_power_mw": _memory_power(memories, clock_ns),
    }


def memory_activity(netlist: FlatNetlist, recording: Recording) -> list[dict]:
    """For every memory ``path``, ``module``, and ``reads`` and ``writes`` per cycle."""
    found = []
    part = slice(recording.first, recording.last)
    for macro in netlist.macros:
        path = netlist.blocks[macro.block].name
        read = recording.values[f"{path}.read_en"][part, 0]
        write = recording.values[f"{path}.write_en"][part].any(axis=1)
        found.append(
            {
                "path": path,
                "module": macro.module,
                "reads": round(float(read.mean()), 5),
                "writes": round(float(write.mean()), 5),
            }
        )
    return found


def _memory_power(memories, clock_ns):
    """Accesses times energy, pJ per ns being mW, and leakage; a write counts as a whole word."""
    dynamic = leakage = 0.0
    for memory in memories:
        words, width = macro_size(memory["module"])
        macro = sram_macro(words=words, width=width, technology=Technology())
        energy = memory["reads"] * macro["read_energy_pj"]
        energy += memory["writes"] * macro["write_energy_pj"]
        dynamic += energy / clock_ns
        leakage += macro["leakage_mw"]
    return {"dynamic": round(dynamic, 4), "leakage": round(leakage, 4)}
