"""``python -m synth asic``: area, timing and power of an accelerator in standard cells."""

import argparse
from dataclasses import asdict
from pathlib import Path

from hw.config.selection import DEFAULT_PRESET, add_settings
from rtl_gen.generate import top_name
from synth.asic.liberty import read as liberty
from synth.asic.liberty.model import Library
from synth.asic.netlist.fanout_repair import repair_fanout
from synth.asic.netlist.flat_netlist import FlatNetlist, flatten
from synth.asic.netlist.static_timing import MemoryTiming, TimingGraph
from synth.common.cache import cached_and_dated, text_hash, tool_versions
from synth.common.command_line import (
    check_json,
    make_kept,
    selected_config,
    work_directory,
    write_json,
)
from synth.common.emitted_verilog import emitted_verilog
from synth.common.memories import macro_size
from synth.common.reproduce import options_of
from synth.sram.cacti import Technology, sram_macro

from .activity import WORKLOADS
from .area import areas, block_areas
from .mapping import map_to_cells
from .power_report import power_report
from .tables import print_report
from .timing_report import timing_report

__all__ = [
    "CLOCK_NS",
    "TARGET_NS",
    "add_arguments",
    "implement",
    "measure",
    "memory_timings",
    "run",
]

#: Clock period that cells are chosen and sized for.
TARGET_NS = 1.0

#: Clock period of slack and power, the same for every design so that power can be compared.
CLOCK_NS = 2.5

#: Feature size of libraries that do not say it, by hash.
_NODES = {"0f936d453c0a26809975b1226cef893a02d26c6f4c3477b4acd6e9b09ec8a148": 45}

BASIS = (
    "netlist before placement: cells by Yosys and abc, buffer trees where a net exceeds what its "
    "driver may carry, clock and reset ideal (no clock tree), wires as capacitance from the "
    "library's wire-load model"
)

NOT_AVAILABLE = {
    "net interconnect area": "the wire-load models of the library state no area, and nothing is "
    "placed and routed",
}

_SETUP_NS = 0.1

#: What runs for power unless told otherwise.
WORKLOAD = "conv"

#: Changes whenever the same input gives other figures.
METHOD = 5


def memory_timings(modules) -> dict[str, MemoryTiming]:
    """Timing of the memory modules ``adagp_ram_<words>x<width>_<granularity>``.

    Access time from CACTI (45 nm, low operating power); setup, slew and pin capacitance are
    assumptions, see :class:`~synth.asic.netlist.static_timing.MemoryTiming`.
    """
    found = {}
    for module in sorted(modules):
        words, width = macro_size(module)
        macro = sram_macro(words=words, width=width, technology=Technology())
        found[module] = MemoryTiming(access_ns=macro["access_time_ns"], setup_ns=_SETUP_NS)
    return found


def implement(
    verilog: str,
    *,
    top: str,
    library: Library,
    target_ns: float = TARGET_NS,
    wire_load: str | None = None,
    memory=memory_timings,
    directory: Path,
    refresh: bool = False,
    progress=lambda text: None,
) -> tuple[FlatNetlist, TimingGraph, int]:
    """Map, flatten, put in buffer trees, time.

    Parameters
    ----------
    wire_load : see :meth:`~synth.asic.liberty.model.Library.wire_load`
    memory : names of memory modules -> their timing
    directory : for what Yosys reads and writes
    refresh : map even what was mapped before

    Returns
    -------
    tuple
        the netlist, its timing, and the number of buffers in trees

    Raises :class:`ToolError`.
    """
    wires = library.wire_load(wire_load)
    design = map_to_cells(
        verilog,
        top=top,
        library=library,
        target_ns=target_ns,
        directory=directory,
        refresh=refresh,
        progress=progress,
    )
    progress("reading the netlist")
    netlist = flatten(design.modules, top, library, design.memories)
    timings = memory(design.memories)
    progress("timing")
    graph = TimingGraph(netlist, wire_load=wires, memory=timings)
    ideal = [int(net) for name in ("clk", "rst") for net in netlist.inputs.get(name, ())]
    netlist, buffers = repair_fanout(netlist, graph.load.max(axis=1), wires, ideal=ideal)
    if buffers:
        graph = TimingGraph(netlist, wire_load=wires, memory=timings)
    return netlist, graph, buffers


def measure(
    config,
    *,
    library: Library | None = None,
    target_ns: float = TARGET_NS,
    clock_ns: float = CLOCK_NS,
    wire_load: str | None = None,
    verilog: str | None = None,
    directory: Path | None = None,
    workload: str | None = WORKLOAD,
    refresh: bool = False,
    progress=lambda text: None,
) -> dict:
    """Area, timing and power of a configuration in standard cells; JSON.

    Parameters
    ----------
    library : by default the one that :func:`synth.asic.liberty.read.find` finds
    target_ns : period that the mapper aims at
    clock_ns : period that slack and power are for; met when ``timing["meets_clock"]``
    workload : what runs for power, of :data:`synth.asic.activity.WORKLOADS`; None for no power
    directory : keep scripts, logs and netlists there; then nothing comes from the cache
    progress : called with one line per step

    Returns
    -------
    dict
        ``area_um2`` (``combinational`` with ``buffers_inverters`` in it, ``sequential``,
        ``total``), ``blocks`` (area by block), ``hierarchy`` (the same in detail), ``cells``,
        ``registers``, ``fanout_buffers``; ``fmax_mhz``, ``critical_path`` and ``timing`` (see
        :func:`~synth.asic.timing_report.timing_report`); ``power_mw``, ``power_by_block_mw`` and
        ``memory_activity`` (see :func:`~synth.asic.power_report.power_report`); ``library``,
        ``node_nm``, ``corner``, ``supply_v``, ``temperature_c``, ``basis``, ``not_available``,
        ``memory_timing``, ``tools``, ``command``, ``date`` (of the measurement)

    Raises :class:`ToolError`.
    """
    library = library or liberty.read(liberty.find())
    verilog = emitted_verilog(config) if verilog is None else verilog
    tools = tool_versions()
    key = {
        "config": config.as_dict(),
        "verilog": text_hash(verilog),
        "library": library.sha256,
        "target_ns": target_ns,
        "clock_ns": clock_ns,
        "wire_load": wire_load,
        "workload": workload,
        "tools": tools,
        "method": METHOD,
    }

    def compute():
        with work_directory(directory, prefix="synth-asic-") as place:
            netlist, graph, buffers = implement(
                verilog,
                top=top_name(config),
                library=library,
                target_ns=target_ns,
                wire_load=wire_load,
                directory=place,
                refresh=refresh or directory is not None,
                progress=progress,
            )
            result = _result(config, library, netlist, graph, buffers, clock_ns)
            if workload is not None:
                result |= power_report(
                    config, netlist, graph, workload=workload, clock_ns=clock_ns, progress=progress
                )
            return {
                **result,
                "wire_load": wire_load or library.default_wire_load or "none",
                "target_ns": target_ns,
                "tools": tools,
                "command": _command(config, library, target_ns, clock_ns, wire_load, workload),
            }

    return cached_and_dated("asic", key, compute, refresh=refresh or directory is not None)


def _command(config, library, target_ns, clock_ns, wire_load, workload):
    options = "" if library.sha256 in _NODES else f" --liberty {library.path.name}"
    options += f" --target {target_ns:g}" if target_ns != TARGET_NS else ""
    options += f" --clock-period {clock_ns:g}" if clock_ns != CLOCK_NS else ""
    options += f" --wire-load {wire_load}" if wire_load is not None else ""
    if workload != WORKLOAD:
        options += " --no-power" if workload is None else f" --workload {workload}"
    return f"python -m synth asic {options_of(config)}{options}"


def _result(config, library, netlist, graph, buffers, clock_ns):
    blocks, hierarchy = block_areas(netlist)
    timing = timing_report(graph, clock_ns=clock_ns)
    described = library.description()
    return {
        "config": config.as_dict(),
        "area_um2": areas(netlist),
        "blocks": blocks,
        "hierarchy": hierarchy,
        "cells": netlist.cells,
        "registers": sum(len(group.block) for group in netlist.registers()),
        "fanout_buffers": buffers,
        "fmax_mhz": timing["fmax_mhz"],
        "critical_path": timing["critical_path"],
        "timing": timing,
        "memory_timing": {
            module: asdict(graph.memory_timing(module))
            for module in sorted({macro.module for macro in netlist.macros})
        },
        **described,
        "node_nm": _NODES.get(library.sha256),
        "basis": BASIS,
        "not_available": NOT_AVAILABLE,
    }


def _period(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a time in nanoseconds, not {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variant", help="which cores and memories (max)")
    parser.add_argument("--preset", help=f"named sizes ({DEFAULT_PRESET})")
    add_settings(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="fields from a file")
    parser.add_argument(
        "--liberty", type=Path, metavar="FILE", help="cell library (the one that `fetch` gets)"
    )
    parser.add_argument(
        "--clock-period",
        type=_period,
        default=CLOCK_NS,
        metavar="NS",
        help=f"of slack and power ({CLOCK_NS})",
    )
    parser.add_argument(
        "--target", type=_period, default=TARGET_NS, metavar="NS", help="the mapper's (1.0)"
    )
    parser.add_argument("--wire-load", metavar="NAME", help="model of wires, or none (library's)")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default=WORKLOAD, help=f"for power ({WORKLOAD})"
    )
    parser.add_argument(
        "--no-power", action="store_true", help="area and timing only, no simulation"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep netlists and logs there")
    parser.add_argument("--refresh", action="store_true", help="compute again what is cached")


def run(arguments: argparse.Namespace) -> None:
    config = selected_config(arguments, file=arguments.config)
    check_json(arguments.json)
    make_kept(arguments.keep)
    from rich.console import Console

    library = liberty.read(liberty.find(arguments.liberty))
    with Console(stderr=True).status("starting") as status:
        result = measure(
            config,
            library=library,
            target_ns=arguments.target,
            clock_ns=arguments.clock_period,
            wire_load=arguments.wire_load,
            workload=None if arguments.no_power else arguments.workload,
            directory=arguments.keep,
            refresh=arguments.refresh,
            progress=status.update,
        )
    print_report(result, Console())
    write_json(arguments.json, result)
