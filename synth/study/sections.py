"""Sections of the synthesis report that show measurements; each returns lines of Markdown."""

from hw.config import make_config
from synth.fpga.report import misfit
from synth.fpga.tables import fmax_summary

from . import paper_figures
from .analysis import area_by_block
from .tables import MISSING, count, delta, figure, square_mm, table

__all__ = ["blocks", "ecp5", "memories", "standard_cells", "xilinx"]

#: Parts of the power of standard cells, here and in Table 5.
_POWER_PARTS = ("internal", "switching", "leakage", "total")


def _reason(designs, flow):
    """Why a flow has no figures for any design; None if it has some."""
    results = [design.get(flow, {"failed": "not asked for"}) for design in designs.values()]
    failures = [result.get("failed") for result in results]
    return None if None in failures else "; ".join(dict.fromkeys(failures))


def _used(design, flow, resource):
    return design.get(flow, {}).get("resources", {}).get(resource, {}).get("used")


def xilinx(designs: dict) -> list[str]:
    """Table 4: look-up tables, flip-flops, block RAMs and DSP blocks."""
    lines = ["## Xilinx 7-series, beside the paper's Table 4", ""]
    if reason := _reason(designs, "xc7"):
        return [*lines, f"Not available: {reason}.", "", *_paper_fpga_power()]
    base = designs["baseline"]
    rows = []
    for variant, design in designs.items():
        ours, theirs = [variant, "here"], ["", "paper"]
        for resource, column in paper_figures.RESOURCE_NAMES.items():
            used, before = _used(design, "xc7", resource), _used(base, "xc7", resource)
            ours.append(_beyond(count(used), used, before, variant))
            used, before = (
                paper_figures.FPGA_RESOURCES[row][column] for row in (variant, "baseline")
            )
            theirs.append(_beyond(count(used), used, before, variant))
        rows += [ours, theirs]
    lines += table(["design", "of", *paper_figures.RESOURCE_NAMES], rows, left=2)
    lines += [
        "In brackets: beyond the `baseline` of the same source. *here*: counted by yosys "
        "`synth_xilinx -family xc7`, before placement. *paper*: Table 4. The predictor memory of "
        f"the paper (`efficient`, `max`) adds {paper_figures.PREDICTOR_MEMORY_RAMB36} RAMB36.",
        "",
        "**Compared** is how much a variant takes beyond the baseline of its own source. **Not "
        "compared** are the cells of one source with the cells of the other. "
        + _different_baselines(base)
        + "The table of the paper does not say how a PE is built (number format, multipliers in "
        "look-up tables or in DSP48E1), nor what it counts besides the PEs. The figures here are "
        "those of the whole accelerator: arrays, engines, command queues, DMA and bus.",
        "",
    ]
    return lines + _paper_fpga_power()


def _beyond(text, value, base, variant):
    """``text`` with what ``value`` is beyond ``base`` in brackets, but for the baseline."""
    return text if variant == "baseline" or value is None else f"{text} ({delta(value, base)})"


def _different_baselines(base):
    """One sentence about the two baselines at the same number of PEs, "" where that differs."""
    luts, dsps = (_used(base, "xc7", resource) for resource in ("LUT", "DSP48E1"))
    if None in (luts, dsps) or base["pes"] != make_config(variant="baseline", preset="paper").pes:
        return ""
    theirs = paper_figures.FPGA_RESOURCES["baseline"]
    most, fewer = paper_figures.FPGA_RESOURCES["max"], paper_figures.FPGA_RESOURCES["efficient"]
    beyond = {column: most[column] - fewer[column] for column in most}
    return (
        f"With {base['pes']} PEs the paper's baseline takes {count(theirs['CLB LUTs'])} LUT and "
        f"{theirs['DSP48E1']} DSP48E1, the baseline here {count(luts)} and {dsps}; what its `max` "
        f"has beyond `efficient` is {beyond['CLB LUTs']} LUT and {beyond['DSP48E1']} DSP48E1. They "
        "are different designs. "
    )


def _paper_fpga_power():
    columns = list(paper_figures.FPGA_POWER["baseline"])
    rows, unlisted = [], []
    for variant, watts in paper_figures.FPGA_POWER.items():
        parts = [figure(watts[column], 3) for column in columns]
        parts[-1] = _beyond(
            parts[-1], watts["total"], paper_figures.FPGA_POWER["baseline"]["total"], variant
        )
        rows.append([variant, *parts])
        unlisted.append(2 * watts["total"] - sum(watts.values()))
    return [
        *table(["paper, power / W", *columns], rows),
        "Power on an FPGA is not measured here, so nothing is compared: no open tool estimates it "
        f"for 7-series. The parts that the paper lists add up to about {figure(max(unlisted))} W "
        "less than its totals.",
        "",
    ]


def ecp5(designs: dict) -> list[str]:
    """Utilisation, Fmax over the seeds and critical path after place and route."""
    lines = ["## ECP5: utilisation, place and route", ""]
    if reason := _reason(designs, "ecp5"):
        return [*lines, f"Not available: {reason}.", ""]
    resources = []
    for design in designs.values():
        for name in design.get("ecp5", {}).get("resources", {}):
            if name not in resources:
                resources.append(name)
    rows = []
    for variant, design in designs.items():
        measured = design.get("ecp5", {})
        row = [variant, measured.get("device", MISSING)]
        for resource in resources:
            entry = measured.get("resources", {}).get(resource, {})
            used, available = entry.get("used"), entry.get("available")
            share = f" ({100 * used / available:.0f} %)" if used is not None and available else ""
            row.append(count(used) + share)
        rows.append([*row, {True: "yes", False: "no"}.get(measured.get("fits"), MISSING)])
    lines += table(["design", "device", *resources, "fits"], rows, left=2)
    rows = []
    for variant, design in designs.items():
        summary = fmax_summary(design.get("ecp5", {}))
        values = [figure(summary[key], 1) for key in ("min", "median", "max")] if summary else []
        path = design.get("ecp5", {}).get("critical_path") or {}
        place = f"{path.get('from', '?')} → {path.get('to', '?')}" if path else MISSING
        rows.append(
            [
                variant,
                place,
                path.get("block", MISSING),
                *(values or [MISSING] * 3),
                str(summary["seeds"]) if summary else "0",
            ]
        )
    if any(fmax_summary(design.get("ecp5", {})) for design in designs.values()):
        headings = ["design", "critical path", "block", "min MHz", "median", "max", "seeds"]
        lines += table(headings, rows, left=3)
    else:
        lines += ["No design was placed and routed, so there is no Fmax.", ""]
    for variant, design in designs.items():
        measured = design.get("ecp5", {})
        if measured.get("fits") is False:
            lines += [f"`{variant}`: {misfit(measured)}.", ""]
        elif measured.get("not_routed"):
            lines += [f"`{variant}` is not placed: {measured['not_routed']}.", ""]
    rows_in_luts = {
        variant: design["ecp5"]["config"]["lut_multiplier_rows"]
        for variant, design in designs.items()
        if design.get("ecp5", {}).get("config", {}).get("lut_multiplier_rows")
    }
    if rows_in_luts:
        counted = ", ".join(f"`{variant}` {number}" for variant, number in rows_in_luts.items())
        lines += [
            "The device has fewer multiplier blocks than PEs. Rows of the main array whose "
            f"multipliers are made of look-up tables: {counted}.",
            "",
        ]
    return lines


def standard_cells(designs: dict) -> list[str]:
    """Table 5: area, timing and power."""
    lines = ["## Standard cells, beside the paper's Table 5", ""]
    if reason := _reason(designs, "asic"):
        return [*lines, f"Not available: {reason}.", ""]
    first = next(design["asic"] for design in designs.values() if "area_um2" in design["asic"])
    lines += [
        f"{first.get('library', '?')}, {first.get('node_nm', '?')} nm, {first.get('corner', '?')}. "
        f"Basis: {first.get('basis', '?')}. Logic only; the memories are in the next section.",
        "",
    ]
    base = designs["baseline"].get("asic", {}).get("area_um2", {})
    columns = (
        ("combinational", "combinational"),
        ("sequential", None),
        ("buffers_inverters", "buffers and inverters"),
        (None, "net interconnect"),
        ("total", "total cell area"),
        (None, "total area"),
    )
    rows = []
    for variant, design in designs.items():
        area = design.get("asic", {}).get("area_um2", {})
        ours, theirs = [variant, "here"], ["", "paper"]
        for here, there in columns:
            text = square_mm(area.get(here)) if here else "not available"
            total = there is not None and there.startswith("total")
            value = area.get(here) if total else None
            ours.append(_beyond(text, value, base.get(here), variant))
            value, before = (
                paper_figures.ASIC_AREA[row][there] if there else None
                for row in (variant, "baseline")
            )
            theirs.append(_beyond(square_mm(value), value if total else None, before, variant))
        rows += [ours, theirs]
    headings = ["mm²", "of", "combinational", "sequential", "buffers, inverters"]
    headings += ["net interconnect", "total cell area", "total area"]
    stated = ", ".join(
        f"`{name}` +{v} %" for name, v in paper_figures.AREA_OVERHEAD_PERCENT.items()
    )
    lines += table(headings, rows, left=2)
    lines += [
        "In brackets: beyond the `baseline` of the same source. Buffers and inverters are part of "
        "the combinational area. *paper*: Table 5, which states no unit (taken as µm² here) and no "
        f"sequential area. Its text gives the overheads of the total area, cut off: {stated}.",
        "",
        "**Compared** is how much a variant takes beyond the baseline of its own source. **Not "
        "compared** are the areas themselves: the table of the paper names neither cell library "
        "nor feature size, does not say whether memories are in it, and belongs to another design "
        "(see Table 4). Here the memories are apart, and nothing is placed.",
        "",
    ]
    reasons = first.get("not_available", {})
    if isinstance(reasons, dict):
        lines += [f"Not available – {name}: {why}." for name, why in reasons.items()]
        lines += [""] if reasons else []
    rows = []
    for variant, design in designs.items():
        asic = design.get("asic", {})
        path = asic.get("critical_path") or {}
        place = f"{path.get('from', '?')} → {path.get('to', '?')}" if path else MISSING
        rows.append([variant, place, figure(asic.get("fmax_mhz"), 0)])
    lines += table(["timing", "critical path", "Fmax MHz"], rows, left=2)
    return lines + _power(designs)


def _power(designs):
    """The power part of Table 5."""
    rows, first = [], None
    for variant, design in designs.items():
        asic = design.get("asic", {})
        power, memory = asic.get("power_mw") or {}, asic.get("memory_power_mw") or {}
        first = first or power
        energy = None
        if power.get("cycles") and memory:
            total = power["total"] + memory["dynamic"] + memory["leakage"]
            energy = total * power["cycles"] / power["clock_mhz"] / 1000
        rows.append(
            [
                variant,
                *[figure(power.get(part), 2) for part in _POWER_PARTS],
                figure(memory.get("dynamic"), 2),
                figure(memory.get("leakage"), 2),
                count(power.get("cycles")),
                figure(energy, 2),
            ]
        )
    if not first:
        return ["Power: not available, no simulation was asked for.", "", *_paper_asic_power()]
    headings = ["power / mW", "internal", "switching", "leakage", "total"]
    headings += ["SRAM dynamic", "SRAM leakage", "cycles", "µJ in all"]
    lines = [
        f"At {first['clock_mhz']:g} MHz while this runs: {first.get('activity')}.",
        "",
        *table(headings, rows),
    ]
    if designs.get("max", {}).get("asic", {}).get("power_mw"):
        lines += ["In `max` both cores work on it: the batch is split.", ""]
    slow = [
        variant
        for variant, design in designs.items()
        if (design.get("asic", {}).get("fmax_mhz") or first["clock_mhz"]) < first["clock_mhz"]
    ]
    if slow:
        names = ", ".join(f"`{variant}`" for variant in slow)
        lines += [
            f"Clock not reached (see Fmax above): {names}; its power is stated at it all the same, "
            "so that all designs are compared at one clock.",
            "",
        ]
    if "basis" in first:
        lines += [f"Basis: {first['basis']}.", ""]
    return lines + _paper_asic_power(first)


def _paper_asic_power(ours=None):
    """The power part of Table 5, and why it is not compared with ``ours``, of the baseline."""
    rows = [
        [
            variant,
            *[figure(microwatts[part] / 1000, 2) for part in _POWER_PARTS[:-1]],
            _beyond(
                figure(microwatts["total"] / 1000, 2),
                microwatts["total"],
                paper_figures.ASIC_POWER["baseline"]["total"],
                variant,
            ),
        ]
        for variant, microwatts in paper_figures.ASIC_POWER.items()
    ]
    theirs = paper_figures.ASIC_POWER["baseline"]
    text = (
        "**Not compared**: the table of the paper names neither workload nor clock frequency. "
        f"Leakage is {100 * theirs['leakage'] / theirs['total']:.0f} % of the power of its "
        "baseline"
    )
    if ours:
        text += f", {100 * ours['leakage'] / ours['total']:.0f} % of that of the logic here"
    return [*table(["paper, power / mW", *_POWER_PARTS], rows), f"{text}.", ""]


def memories(designs: dict) -> list[str]:
    """SRAM macros of every design, from CACTI."""
    lines = ["## Memories (SRAM, CACTI 7)", ""]
    if reason := _reason(designs, "sram"):
        return [*lines, f"Not available: {reason}.", ""]
    first, found, totals = None, {}, []
    for variant, design in designs.items():
        sram = design.get("sram", {})
        if "memories" not in sram:
            continue
        first = first or sram
        for memory in sram["memories"]:
            each = memory["each"]
            row = (
                memory["purpose"] + ("" if each["exact"] else " *"),
                f"{memory['count']} × {memory['words']} × {memory['width']}",
                figure(memory["bits"] / 8192, 1),
                square_mm(memory["area_um2"]),
                figure(each["read_energy_pj"], 1),
                figure(each["write_energy_pj"], 1),
                figure(memory["leakage_mw"], 3),
                figure(each["access_time_ns"]),
            )
            found.setdefault(row, []).append(variant)
        bits = sum(memory["bits"] for memory in sram["memories"])
        total = [figure(bits / 8192, 1), square_mm(sram["area_um2"]), "", ""]
        totals.append(["**all**", variant, "", *total, figure(sram["leakage_mw"], 3), ""])
    rows = [
        [purpose, ", ".join(of) if len(of) < len(totals) else "all", *rest]
        for (purpose, *rest), of in found.items()
    ]
    headings = ["memory", "designs", "number × words × bits", "KiB", "mm²", "read pJ", "write pJ"]
    lines += table([*headings, "leakage mW", "access ns"], rows + totals, left=3)
    node = first["technology"]
    lines += [
        f"{node['node_nm']} nm, transistors {node['cell_type']}, {node['temperature_k']} K. "
        + " ".join(first["notes"]),
        "",
    ]
    if any(row[0].endswith(" *") for row in rows):
        lines += ["\\* modelled larger than asked for: CACTI's smallest, or whole bytes.", ""]
    if sensitivity := first.get("sensitivity"):
        rows = [
            [
                entry["cell_type"],
                square_mm(entry["area_um2"]),
                figure(entry["leakage_mw"], 3),
                figure(entry["read_energy_pj"], 1),
                figure(entry["access_time_ns"]),
            ]
            for entry in sensitivity
        ]
        lines += ["The choice of transistors, for the memories of `baseline`:", ""]
        headings = ["transistors", "mm²", "leakage mW", "pJ per read of the largest", "access ns"]
        lines += table(headings, rows)
    return lines


def blocks(designs: dict) -> list[str]:
    """Area by block of both flows, one table each."""
    lines = ["## Area by block", ""]
    for flow, title, unit in (
        ("asic", "Standard cells", 1e6),
        ("xc7", "Xilinx 7-series", 1),
        ("ecp5", "ECP5 (LUT4 + 2 CCU2C)", 1),
    ):
        columns = {variant: area_by_block(design, flow) for variant, design in designs.items()}
        columns = {variant: column for variant, column in columns.items() if column}
        if not columns:
            continue
        largest: dict[str, float] = {}
        for column in columns.values():
            for block, value in column.items():
                largest[block] = max(largest.get(block, 0), value)
        rows = []
        for block in sorted(largest, key=lambda block: -largest[block]):
            values = [column.get(block) for column in columns.values()]
            rows.append([block, *((square_mm if unit > 1 else count)(value) for value in values)])
        totals = [sum(column.values()) for column in columns.values()]
        rows.append(["**all**", *((square_mm if unit > 1 else count)(value) for value in totals)])
        name = f"{title}, mm²" if unit > 1 else f"{title}, look-up tables"
        lines += table([name, *columns], rows)
    return lines if len(lines) > 2 else [*lines, "Not available: nothing was mapped.", ""]
