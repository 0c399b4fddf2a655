"""Sections of the synthesis report that compare: overheads, equal baselines, budget, per MAC."""

from . import paper_figures
from .tables import MISSING, count, figure, percent, square_mm, table

__all__ = ["at_a_glance", "equal_baselines", "overheads", "per_mac", "predictor_array"]

#: What it is, rows and column of the paper's Tables 4 and 5.
_PAPER_OVERHEADS = (
    ("total area, Table 5", paper_figures.ASIC_AREA, "total area"),
    ("power of the cells, Table 5", paper_figures.ASIC_POWER, "total"),
    ("LUT, Table 4", paper_figures.FPGA_RESOURCES, "CLB LUTs"),
    ("FF, Table 4", paper_figures.FPGA_RESOURCES, "CLB registers"),
    ("RAMB36, Table 4", paper_figures.FPGA_RESOURCES, "RAMB36"),
    ("power on the FPGA, Table 4", paper_figures.FPGA_POWER, "total"),
)

_ISO_NAMES = {
    "asic_logic": "area of the standard cells",
    "asic_total": "area of standard cells and SRAM",
    "xc7_lut": "7-series look-up tables",
    "asic_power": "power of the standard cells",
    "asic_power_total": "power of standard cells and SRAM",
}


def at_a_glance(designs: dict, analysis: dict) -> list[str]:
    """One line per design."""
    rows = []
    over = analysis["overhead_percent"]
    for variant, design in designs.items():
        arrays = " + ".join(f"{rows_} × {columns}" for rows_, columns in design["arrays"])
        fmax = analysis["fmax_mhz"].get(variant)
        ours = ["", ""]
        if variant != "baseline":
            ours = [percent(over["asic_logic"][variant]), percent(over["xc7_lut"][variant])]
        known = paper_figures.AREA_OVERHEAD_PERCENT.get(variant)
        fits = {True: "yes", False: "no"}.get(design.get("ecp5", {}).get("fits"), MISSING)
        rows.append(
            [
                variant,
                arrays,
                *ours,
                "" if known is None else f"+{known} %",
                square_mm(design.get("sram", {}).get("area_um2")),
                fits,
                figure(fmax["median"], 1) if fmax else MISSING,
            ]
        )
    headings = ["design", "PEs", "cells", "xc7 LUT", "paper, cells", "SRAM mm²", "fits ECP5"]
    return [
        "## At a glance",
        "",
        *table([*headings, "Fmax ECP5 MHz"], rows, left=2),
        "cells, xc7 LUT: logic beyond `baseline`; the memories are apart. paper, cells: the area "
        "overhead that its text states. Fmax: median of the seeds, after place and route.",
        "",
    ]


def overheads(analysis: dict) -> list[str]:
    """This project's overheads beside the paper's."""
    rows = []
    for name, label in (
        ("asic_logic", "standard cells, logic"),
        ("asic_memory", "SRAM"),
        ("asic_total", "standard cells and SRAM"),
        ("xc7_lut", "7-series LUT"),
        ("xc7_ff", "7-series FF"),
        ("xc7_ram", "7-series block RAM"),
        ("ecp5_lut4eq", "ECP5 LUT4 + 2 CCU2C"),
        ("asic_power", "power, logic"),
        ("asic_power_total", "power, logic and SRAM"),
    ):
        values = analysis["overhead_percent"][name]
        rows.append([label, *(percent(values[variant]) for variant in values)])
    known = paper_figures.AREA_OVERHEAD_PERCENT
    for label, theirs, column in _PAPER_OVERHEADS:
        values = paper_figures.beyond_baseline_percent(theirs, column)
        rows.append([f"**paper**: {label}", *(percent(values[variant]) for variant in known)])
    lines = ["## Overhead over the baseline", "", *table(["beyond `baseline`", *known], rows)]
    verdicts = []
    for variant in ("low", "efficient"):
        ours = analysis["overhead_percent"]["asic_logic"][variant]
        if ours is not None:
            word = "no more than" if ours <= known[variant] else "more than"
            verdicts.append(f"`{variant}` {percent(ours)}, {word} the paper's +{known[variant]} %")
    if verdicts:
        lines += [
            f"Logic in standard cells: {'; '.join(verdicts)}. The paper's designs predict "
            "gradients with circuits, those here with programs (see Scope): these overheads are "
            "not those of the same thing. Area and power of the paper's cells are to be read "
            "beside those of the standard cells here, its LUT beside the 7-series LUT.",
            "",
        ]
    names = {"asic": "standard cells", "xc7": "7-series look-up tables"}
    loop = analysis["batch_control_percent"]
    if loop:
        shares = ", ".join(f"{share:.1f} % of its {names[flow]}" for flow, share in loop.items())
        lines += [
            f"`baseline` holds the loop over batches and phases as well: {shares}. Against one "
            "without it every overhead above would be larger by about as much.",
            "",
        ]
    return lines


def equal_baselines(analysis: dict) -> list[str]:
    """How many more PEs the baseline could have for the same area or power."""
    title = "## Baselines of equal area and equal power"
    probe = analysis["probes"].get("probe_main")
    if probe is None:
        reason = "no design with more columns was measured, so the cost of a PE is not known"
        return [title, "", f"Not available: {reason}.", ""]
    rows = []
    for name, label in _ISO_NAMES.items():
        slope = analysis["marginal_per_pe"][name]
        for variant, equal in analysis["equal_baseline"][name].items():
            rows.append(
                [
                    label,
                    variant,
                    _slope(name, slope),
                    MISSING if equal is None else f"{equal['extra_pes']:+.1f}",
                    percent(equal and equal["pes_percent"]),
                    MISSING if equal is None else f"{equal['rows']} × {equal['columns']}",
                ]
            )
    headings = ["same", "as", "one more PE costs", "more PEs", "of all", "whole columns"]
    basis = (
        "The cost of a PE is the measured difference between `baseline` and the same design with "
        f"{probe[0]} × {probe[1]} PEs, over the PEs that differ: everything that grows with the "
        "array is in it (columns, accumulators, post-processing of more channels)."
    )
    return [
        title,
        "",
        "How many PEs more a baseline without gradient prediction could have for what each variant "
        "takes.",
        "",
        *table(headings, rows, left=2),
        basis,
        "",
        "The baselines of equal cost that the paper uses have "
        f"{paper_figures.EQUAL_COST_PES_PERCENT['asic_area']} % more PEs for the area of the cells "
        f"and {paper_figures.EQUAL_COST_PES_PERCENT['fpga_power']} % more for the power on the "
        "FPGA.",
        "",
    ]


def _slope(name, slope):
    if slope is None:
        return MISSING
    if name == "xc7_lut":
        return f"{slope:.0f} LUT"
    return f"{slope:.3f} mW" if "power" in name else f"{slope:.0f} µm²"


def predictor_array(analysis: dict) -> list[str]:
    """What the predictor array of ``max`` costs, and what the paper's share of area buys."""
    lines = ["## The predictor array of `max`", ""]
    budgets = {name: value for name, value in analysis["predictor_budget"].items() if value}
    if not budgets:
        return [*lines, "Not available: `max` or its smaller probe was not measured.", ""]
    rows = []
    for name, value in budgets.items():
        unit = _ISO_NAMES[name]
        rows.append(
            [
                unit,
                percent(value["array_percent"]),
                percent(value["fixed_percent"]),
                percent(value["array_percent"] + value["fixed_percent"]),
                f"{value['array_alone_pes']:.0f} PEs",
                f"{value['rows']} × {value['columns']}" if value["columns"] else "none",
            ]
        )
    share = next(iter(budgets.values()))["percent"]
    columns = next(iter(analysis["probes"]["probe_predictor"][1:]))
    headings = ["of the baseline's", "grows with its columns", "the rest", "all of it"]
    lines += table(
        [*headings, f"{share} % buys, array alone", f"{share} % buys, all included"], rows
    )
    lines += [
        f"Split by the slope from an array of {columns} columns to the full one. *The rest* is "
        "what a second core needs with any array: command queues, address generators, "
        "transfers, buffer ports, post-processing, its share of the sequencer. *Array alone* "
        "counts nothing but columns.",
        "",
    ]
    for flow, label in (("asic", "standard cells"), ("xc7", "7-series LUT")):
        growth = analysis["block_growth"].get("max", {}).get(flow)
        if growth:
            ordered = sorted(growth.items(), key=lambda item: -item[1])
            lines += table(
                [f"`max` beyond `baseline`, {label}", "of all of the baseline's"],
                [[block, percent(value, 2)] for block, value in ordered],
            )
    return lines


def per_mac(designs: dict, analysis: dict) -> list[str]:
    """Look-up tables for each multiply-accumulate unit, over whole arrays."""
    lines = ["## Look-up tables per multiply-accumulate, ECP5", ""]
    rows = []
    for variant, value in analysis["luts_per_mac"].items():
        if value:
            rows.append(
                [
                    variant,
                    count(value["array_luts"]),
                    figure(value["array"], 1),
                    count(value["accelerator_luts"]),
                    figure(value["accelerator"], 1),
                    count(value["multipliers"]),
                ]
            )
    if not rows:
        return [*lines, "Not available: no design was synthesised for ECP5.", ""]
    headings = ["design", "array", "per MAC", "accelerator", "per MAC", "MULT18X18D"]
    return [
        *lines,
        *table(headings, rows),
        "LUT4-equivalents: LUT4 + 2 CCU2C. Array: columns and what feeds them, of all cores. "
        "Multipliers beyond the device's MULT18X18D are made of look-up tables and counted. "
        "Measured again, without the cache:",
        "",
        "```console",
        *(
            f"{designs[variant]['ecp5']['command']} --refresh"
            for variant, value in analysis["luts_per_mac"].items()
            if value
        ),
        "```",
        "",
    ]
