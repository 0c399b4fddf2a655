"""``python -m synth sram``: area, access energy, leakage and access time of every memory."""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from hw.config.selection import DEFAULT_PRESET, add_settings
from synth.common.command_line import check_json, selected_config, today, write_json
from synth.common.memories import memories_of
from synth.common.reproduce import options_of
from synth.common.wheels import WHEELS

from .cacti import CELL_TYPES, NODES, Technology, sram_macro

__all__ = ["add_arguments", "measure", "run", "sensitivity"]

#: Limits of the method, printed with every table.
NOTES = (
    "CACTI: analytic estimate of SRAM, not a memory compiler's layout; two-port cells (one read, "
    "one write port), smallest area.",
    "Write energy is that of a whole word; group write enables, redundancy and test logic are "
    "not in it. Area and leakage: of all memories of a row; energy (per read and write) and access "
    "time: of one.",
)


def measure(
    config,
    *,
    technology: Technology | None = None,
    verilog: str | None = None,
    refresh: bool = False,
    progress=lambda text: None,
) -> dict:
    """Memories of a configuration with what CACTI says about them.

    Parameters
    ----------
    technology : 45 nm, low operating power, 300 K by default
    verilog : of the accelerator, where it is at hand already
    progress : called with one line per step

    Returns
    -------
    dict
        ``memories``: a list, each as :meth:`~synth.common.memories.Memory.as_json` with ``each``
        (of one memory, see :func:`~synth.sram.cacti.sram_macro`), ``area_um2`` and ``leakage_mw``
        (of all of them); ``area_um2`` and ``leakage_mw`` in all, ``area_by_purpose_um2``;
        ``in_logic``: small arrays that the logic holds; ``technology``, ``tools``, ``commands``,
        ``date`` (on which the last of the memories was measured)

    Raises :class:`ToolError`.
    """
    technology = technology or Technology()
    if verilog is None:
        progress("writing the Verilog")
    macros, arrays = [], []
    for memory in memories_of(config, verilog):
        if not memory.macro:
            arrays.append(memory.as_json())
            continue
        progress(f"CACTI: {memory.purpose}, {memory.words} x {memory.width}")
        each = sram_macro(
            words=memory.words,
            width=memory.width,
            read_ports=memory.read_ports,
            write_ports=memory.write_ports,
            technology=technology,
            refresh=refresh,
        )
        macros.append(
            {
                **memory.as_json(),
                "each": each,
                "area_um2": each["area_um2"] * memory.count,
                "leakage_mw": each["leakage_mw"] * memory.count,
            }
        )
    by_purpose: dict[str, float] = {}
    for macro in macros:
        by_purpose[macro["purpose"]] = by_purpose.get(macro["purpose"], 0) + macro["area_um2"]
    settings = f"--node {technology.node_nm} --cell-type {technology.cell_type}"
    return {
        "variant": config.variant,
        "configuration_hash": config.hash,
        "technology": asdict(technology),
        "memories": macros,
        "in_logic": arrays,
        "in_logic_bits": sum(array["bits"] for array in arrays),
        "area_um2": sum(macro["area_um2"] for macro in macros),
        "leakage_mw": sum(macro["leakage_mw"] for macro in macros),
        "area_by_purpose_um2": by_purpose,
        "notes": list(NOTES),
        "tools": {WHEELS["cacti"].name: WHEELS["cacti"].version},
        "date": max((macro["each"]["date"] for macro in macros), default=today()),
        "commands": [
            f"python -m synth sram {options_of(config)} {settings} "
            f"--temperature {technology.temperature_k}"
        ],
    }


def sensitivity(config, *, refresh: bool = False, progress=lambda text: None) -> list[dict]:
    """Area, leakage, read energy and access time for each type of transistor, else defaults.

    Energy and access time are those of the largest memory. The type is a choice that this estimate
    cannot make, and leakage depends on it by four orders of magnitude.
    """
    results = []
    for cell_type in CELL_TYPES:
        result = measure(
            config, technology=Technology(cell_type=cell_type), refresh=refresh, progress=progress
        )
        each = result["memories"][0]["each"]
        results.append(
            {
                "cell_type": cell_type,
                "area_um2": result["area_um2"],
                "leakage_mw": result["leakage_mw"],
                "read_energy_pj": each["read_energy_pj"],
                "access_time_ns": each["access_time_ns"],
            }
        )
    return results


def print_report(result: dict, console: Console) -> None:
    node = result["technology"]
    table = Table(
        title=f"Memories of {result['variant']}: {node['node_nm']} nm, {node['cell_type']}, "
        f"{node['temperature_k']} K",
        caption=" ".join(result["notes"]),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    table.add_column("memory", overflow="fold")  # the only one that a narrow terminal folds
    headings = ("number ×\nwords×bits", "KiB", "mm²", "pJ read/\nwrite", "leakage\nmW", "ns")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    marked = False
    for memory in result["memories"]:
        each = memory["each"]
        marked = marked or not each["exact"]
        table.add_row(
            memory["purpose"] + ("" if each["exact"] else " *"),
            f"{memory['count']}×{memory['words']}×{memory['width']}",
            f"{memory['bits'] / 8192:.1f}",
            f"{memory['area_um2'] / 1e6:.3f}",
            f"{each['read_energy_pj']:.1f}/{each['write_energy_pj']:.1f}",
            f"{memory['leakage_mw']:.3g}",
            f"{each['access_time_ns']:.2f}",
        )
    table.add_section()
    bits = sum(memory["bits"] for memory in result["memories"])
    total = (f"{bits / 8192:.1f}", f"{result['area_um2'] / 1e6:.3f}", "")
    table.add_row("all", "", *total, f"{result['leakage_mw']:.3g}", "")
    console.print(table)
    if marked:
        console.print("* larger than asked for: the smallest, or the next whole bytes, of CACTI")
    console.print(
        f"{len(result['in_logic'])} small arrays (queues, FIFOs, counters: "
        f"{result['in_logic_bits']} bits) are no macros: they count as logic."
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--variant", help="baseline, low, efficient or max (max)")
    add("--preset", help=f"named sizes ({DEFAULT_PRESET})")
    add_settings(parser)
    low, high = NODES
    add("--node", type=int, default=45, metavar="NM", help=f"feature size, {low} to {high} nm (45)")
    add("--cell-type", default="itrs-lop", help=f"{', '.join(CELL_TYPES)} (itrs-lop)")
    add("--temperature", type=int, default=300, metavar="K", help="300 to 400 kelvin (300)")
    add("--refresh", action="store_true", help="compute again what is in the cache")
    add("--json", type=Path, metavar="FILE", help="write the figures there, too")


def run(arguments: argparse.Namespace) -> None:
    check_json(arguments.json)
    technology = Technology(
        node_nm=arguments.node,
        cell_type=arguments.cell_type,
        temperature_k=arguments.temperature,
    )
    config = selected_config(arguments)
    with Console(stderr=True).status("starting") as status:
        result = measure(
            config, technology=technology, refresh=arguments.refresh, progress=status.update
        )
    print_report(result, Console())
    write_json(arguments.json, result)
