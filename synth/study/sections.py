"""Sections of the synthesis report that show measurements; each returns lines of Markdown."""

from synth.fpga.report import misfit
from synth.fpga.tables import fmax_summary

from . import paper_figures
from .analysis import area_by_block
from .tables import MISSING, count, delta, figure, square_mm, table

__all__ = ["blocks", "ecp5", "memories", "standard_cells", "xilinx"]


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
        return [*lines, f"Not available: {reason}.", ""]
    base = designs["baseline"]
    rows = []
    for variant, design in designs.items():
        row = [variant]
        for resource in paper_figures.FPGA_COLUMNS:
            used, before = _used(design, "xc7", resource), _used(base, "xc7", resource)
            text = count(used)
            if variant != "baseline" and used is not None:
                text += f" ({delta(used, before)})"
            row.append(text)
        rows.append(row)
    rows.append(
        ["paper, every design", *[paper_figures.NOT_AT_HAND] * len(paper_figures.FPGA_COLUMNS)]
    )
    lines += table(["design", *paper_figures.FPGA_COLUMNS], rows)
    return [
        *lines,
        "In brackets: beyond `baseline`. Counted by yosys `synth_xilinx -family xc7`, before "
        "placement. The cells of the paper's table were not at hand, and nothing is estimated in "
        "their place; known is that its predictor memory (`efficient`, `max`) adds "
        f"{paper_figures.PREDICTOR_MEMORY_RAMB36} RAMB36.",
        "",
    ]


def ecp5(designs: dict) -> list[str]:
    """Utilisation, Fmax over the seeds and critical path after place and route."""
    lines = ["## ECP5, placed and routed", ""]
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
    headings = ["design", "critical path", "block", "min MHz", "median", "max", "seeds"]
    lines += table(headings, rows, left=3)
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
    parts = [part for part in paper_figures.ASIC_COLUMNS["area"] if part != "net interconnect"]
    rows = []
    for variant, design in designs.items():
        area = design.get("asic", {}).get("area_um2", {})
        cells = [square_mm(area.get(part)) for part in parts]
        cells.insert(-1, "not available")
        rows.append([variant, *cells, delta(area.get("total"), base.get("total"))])
    known = ", ".join(f"+{value} %" for value in paper_figures.AREA_OVERHEAD_PERCENT.values())
    rows.append(["paper, every design", *[paper_figures.NOT_AT_HAND] * 5, known])
    headings = ["mm²", "combinational", "sequential", "buffers, inverters", "net interconnect"]
    lines += table([*headings, "total", "beyond baseline"], rows)
    lines += ["Buffers and inverters are part of the combinational area.", ""]
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
                *[figure(power.get(part), 2) for part in paper_figures.ASIC_COLUMNS["power"]],
                figure(memory.get("dynamic"), 2),
                figure(memory.get("leakage"), 2),
                count(power.get("cycles")),
                figure(energy, 2),
            ]
        )
    if not first:
        return ["Power: not available, no simulation was asked for.", ""]
    rows.append(["paper, every design", *[paper_figures.NOT_AT_HAND] * 4, *[""] * 4])
    headings = ["power / mW", "internal", "switching", "leakage", "total"]
    headings += ["SRAM dynamic", "SRAM leakage", "cycles", "µJ in all"]
    lines = [
        f"At {first['clock_mhz']:g} MHz while this runs: {first.get('activity')}.",
        "",
        *table(headings, rows),
    ]
    if designs.get("max", {}).get("asic", {}).get("power_mw"):
        lines += ["In `max` both cores work on it: the batch is split.", ""]
    if "basis" in first:
        lines += [f"Basis: {first['basis']}.", ""]
    return lines


def memories(designs: dict) -> list[str]:
    """SRAM macros of every design, from CACTI."""
    lines = ["## Memories (SRAM, CACTI 7)", ""]
    if reason := _reason(designs, "sram"):
        return [*lines, f"Not available: {reason}.", ""]
    rows, first = [], None
    for variant, design in designs.items():
        sram = design.get("sram", {})
        if "memories" not in sram:
            continue
        first = first or sram
        for memory in sram["memories"]:
            each = memory["each"]
            rows.append(
                [
                    variant,
                    memory["purpose"] + ("" if each["exact"] else " *"),
                    f"{memory['count']} × {memory['words']} × {memory['width']}",
                    figure(memory["bits"] / 8192, 1),
                    square_mm(memory["area_um2"]),
                    figure(each["read_energy_pj"], 1),
                    figure(each["write_energy_pj"], 1),
                    figure(memory["leakage_mw"], 3),
                    figure(each["access_time_ns"]),
                ]
            )
        bits = sum(memory["bits"] for memory in sram["memories"])
        total = [figure(bits / 8192, 1), square_mm(sram["area_um2"]), "", ""]
        rows.append([variant, "**all**", "", *total, figure(sram["leakage_mw"], 3), ""])
    headings = ["design", "memory", "number × words × bits", "KiB", "mm²", "read pJ", "write pJ"]
    lines += table([*headings, "leakage mW", "access ns"], rows, left=3)
    node = first["technology"]
    lines += [
        f"{node['node_nm']} nm, transistors {node['cell_type']}, {node['temperature_k']} K. "
        + " ".join(first["notes"]),
        "",
    ]
    if any(" *" in row[1] for row in rows):
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
