"""Plots of the synthesis report, as PNG files."""

import textwrap
from pathlib import Path

from cli.atomic_files import replacing
from synth.fpga.tables import fmax_summary

from .analysis import area_by_block
from .paper_figures import AREA_OVERHEAD_PERCENT, FPGA_RESOURCES, beyond_baseline_percent
from .tables import count

__all__ = ["VARIANTS_SHOWN", "draw_plots"]

VARIANTS_SHOWN = ("baseline", "low", "efficient", "max")

#: Colours that stay apart for colour-blind readers (Okabe and Ito), light to dark enough for print.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
    "#332288", "#AA4499", "#117733", "#882255",
)  # fmt: skip

_OURS, _OTHER = "#0072B2", "#DDDDDD"

#: How parts begin that are memories.
_SRAM = "SRAM: "


def draw_plots(designs: dict, analysis: dict, directory: Path) -> list[tuple[str, str]]:
    """Draw what was measured into ``directory``; returns (file name, caption) of each plot."""
    # Imported here: it takes a second, and the other commands do without it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    drawn = []
    for name, draw in (
        ("area_asic", _asic_area),
        ("area_xc7", _xc7_area),
        ("overhead", _overhead),
        ("fmax", _fmax),
        ("power", _power),
    ):
        figure, axes = pyplot.subplots(figsize=(7.5, 4.2), layout="constrained")
        try:
            caption = draw(axes, designs, analysis)
            if caption:
                with replacing(directory / f"{name}.png") as file:
                    figure.savefig(file, dpi=130, format="png")
                drawn.append((f"{name}.png", caption))
        finally:
            pyplot.close(figure)
    return drawn


def _shown(designs):
    return [variant for variant in VARIANTS_SHOWN if variant in designs]


def _merge_small(columns, smallest=1 / 50):
    """The columns with the parts below a fiftieth of the highest one put together, memories apart
    from what else there is; and the parts in order: memories first, then by size, then by name."""
    limit = max(sum(column.values()) for column in columns) * smallest
    largest: dict[str, float] = {}
    for column in columns:
        for part, value in column.items():
            largest[part] = max(largest.get(part, 0), value)
    renamed = {}
    for other in (f"{_SRAM}other", "other"):
        alike = [p for p in largest if p.startswith(_SRAM) == other.startswith(_SRAM)]
        small = [part for part in alike if largest[part] < limit]
        renamed |= dict.fromkeys(small, other) if len(small) > 1 else {}
    merged = []
    for column in columns:
        parts: dict[str, float] = {}
        for part, value in column.items():
            name = renamed.get(part, part)
            parts[name] = parts.get(name, 0) + value
        merged.append(parts)
    kept = {renamed.get(part, part) for part in largest}

    def rank(part):
        return not part.startswith(_SRAM), part.endswith("other"), -largest.get(part, 0), part

    return merged, sorted(kept, key=rank)


def _stack(axes, columns, labels, scale, *, smallest=1 / 50, named=None):
    """Stacked bars: ``columns`` is a list of {part: value}, one per label; memories at the bottom,
    else the largest part, the total above each bar. A part of the predictor has the colour of its
    like in the main core, hatched. ``named`` says what parts are called in the legend."""
    columns, ordered = _merge_small(columns, smallest)
    plain = list(dict.fromkeys(_like(part) for part in ordered if not part.endswith("other")))
    bottoms = [0.0] * len(columns)
    for part in ordered:
        heights = [column.get(part, 0) / scale for column in columns]
        axes.bar(
            labels,
            heights,
            0.6,
            bottom=bottoms,
            label=(named or {}).get(part, part),
            color=_OTHER
            if part.endswith("other")
            else _COLOURS[plain.index(_like(part)) % len(_COLOURS)],
            hatch="///" if _like(part) != part else "..." if part == f"{_SRAM}other" else None,
            edgecolor="white",
            linewidth=0.3,
        )
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]
    for index, total in enumerate(bottoms):
        axes.annotate(
            f"{total:.0f}" if total >= 100 else f"{total:.3g}",
            (index, total), ha="center", va="bottom", xytext=(0, 2), textcoords="offset points",
        )  # fmt: skip
    axes.margins(y=0.08)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
    )


def _like(part):
    """The part of the main core that a part of the predictor's is like; others: themselves."""
    return part.removeprefix("predictor ").replace(", core 1", ", core 0")


def _asic_area(axes, designs, _analysis):
    columns, labels = [], []
    for variant in _shown(designs):
        blocks = area_by_block(designs[variant], "asic")
        if blocks is None:
            continue
        memory = designs[variant].get("sram", {}).get("area_by_purpose_um2", {})
        columns.append({**blocks, **{_SRAM + name: area for name, area in memory.items()}})
        labels.append(variant)
    if not columns:
        return None
    named = {"other": "other logic", **_predictor_memory({v: designs[v] for v in labels})}
    _stack(axes, columns, labels, 1e6, named=named)
    axes.set_ylabel("area / mm²")
    node = next(designs[label]["asic"].get("node_nm") for label in labels)
    with_memory = any("area_um2" in designs[label].get("sram", {}) for label in labels)
    axes.set_title(f"Area by block, {node} nm standard cells{' and SRAM' * with_memory}")
    return "Area of standard cells by block and of SRAM by memory, before placement."


def _predictor_memory(designs):
    """Part -> name in the legend of the predictor memory: how large it is where, and why. It has
    one operand in a word for each row of the array that works on the predictor."""
    name = "predictor memory"
    found = {}
    for variant, design in designs.items():
        memories = design.get("sram", {}).get("memories", ())
        bits = sum(memory["bits"] for memory in memories if memory["purpose"] == name)
        if bits:
            found[variant] = (bits / 8192, design["arrays"][-1][0])
    if not found:
        return {}
    lines = [f"{_SRAM}{name}"]
    lines += [
        f"   {variant}: {kib:.0f} KiB, {rows} operands a word"
        for variant, (kib, rows) in found.items()
    ]
    if len({rows for _kib, rows in found.values()}) > 1:
        lines += ["   (one for each row of the array", "   that the predictor runs on)"]
    return {f"{_SRAM}{name}": "\n".join(lines)}


def _xc7_area(axes, designs, _analysis):
    columns, labels = [], []
    for variant in _shown(designs):
        blocks = area_by_block(designs[variant], "xc7")
        if blocks is not None:
            columns.append(blocks)
            labels.append(variant)
    if not columns:
        return None
    _stack(axes, columns, labels, 1e3)
    axes.set_ylabel("look-up tables / thousand")
    axes.set_title("Look-up tables by block, Xilinx 7-series")
    return "Look-up tables by block, yosys synth_xilinx for 7-series."


def _overhead(axes, _designs, analysis):
    """Each figure of this project, and in the same colour, pale, the paper's of the same kind."""
    over = analysis["overhead_percent"]
    series = [
        (*label_and_values, colour, alpha)
        for colour, name, *pair in (
            (
                _COLOURS[0],
                "xc7_lut",
                ("here, 7-series LUT", over["xc7_lut"]),
                ("paper, LUT (Table 4)", beyond_baseline_percent(FPGA_RESOURCES, "CLB LUTs")),
            ),
            (
                _COLOURS[1],
                "asic_logic",
                ("here, standard cells", over["asic_logic"]),
                ("paper, cells (its text)", AREA_OVERHEAD_PERCENT),
            ),
        )
        if any(value is not None for value in over[name].values())
        for label_and_values, alpha in zip(pair, (1, 0.4))
    ]
    if not series:
        return None
    variants = list(AREA_OVERHEAD_PERCENT)
    width = 0.84 / len(series)
    for index, (label, values, colour, alpha) in enumerate(series):
        places = [at + (index - (len(series) - 1) / 2) * width for at in range(len(variants))]
        heights = [values[variant] if values[variant] is not None else 0 for variant in variants]
        axes.bar(places, heights, width * 0.92, label=label, color=colour, alpha=alpha)
        for at, variant, height in zip(places, variants, heights):
            text = "n/a" if values[variant] is None else f"{round(height, 1) + 0.0:.1f}"
            axes.annotate(
                text, (at, max(height, 0)), ha="center", va="bottom",
                xytext=(0, 2), textcoords="offset points",
            )  # fmt: skip
    lowest = min(0, axes.dataLim.y0)
    axes.set_ylim(1.1 * lowest, 1.1 * axes.dataLim.y1)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(variants)), variants)
    axes.set_ylabel("area over baseline / %")
    axes.set_title("Area over the baseline of the same source (here: logic, memories apart)")
    axes.legend(frameon=False, loc="upper left")
    return "Area of the logic over that of the baseline, beside the paper's overheads."


def _fmax(axes, designs, _analysis):
    labels = []
    for variant in _shown(designs):
        measured = designs[variant].get("ecp5", {})
        summary = fmax_summary(measured)
        if summary is None:
            continue
        at = len(labels)
        values = sorted(measured["fmax_mhz"].values())
        names = (None, None) if labels else ("one seed", "median")
        axes.plot([at] * len(values), values, "o", color=_OURS, markersize=7, label=names[0])
        middle = summary["median"]
        axes.plot([at - 0.15, at + 0.15], [middle] * 2, color="black", label=names[1])
        axes.annotate(f"{middle:.1f}", (at + 0.18, middle), va="center")
        labels.append((variant, measured["device"]))
    if not labels:
        return None
    axes.set_xticks(range(len(labels)), [f"{variant}\n{device}" for variant, device in labels])
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_ylim(0, 1.15 * axes.dataLim.y1)
    axes.legend(frameon=False, loc="lower right")
    axes.set_ylabel("Fmax / MHz")
    axes.set_title("Clock frequency after place and route, ECP5")
    return "Fmax for each seed of place and route (dots), the median as a line."


def _power(axes, designs, _analysis):
    columns, labels = [], []
    for variant in _shown(designs):
        power = designs[variant].get("asic", {}).get("power_mw")
        if not power:
            continue
        column = {f"logic: {part}": power[part] for part in ("internal", "switching", "leakage")}
        memory = designs[variant]["asic"].get("memory_power_mw", {})
        column |= {_SRAM + part: value for part, value in memory.items()}
        columns.append(column)
        labels.append(variant)
    if not columns:
        return None
    first = designs[labels[0]]["asic"]
    power = first["power_mw"]
    _stack(axes, columns, labels, 1, smallest=0)
    ticks = [
        f"{label}\n{count(cycles)} cycles" if cycles else label
        for label in labels
        for cycles in [designs[label]["asic"]["power_mw"].get("cycles")]
    ]
    axes.set_xticks(range(len(labels)), ticks)
    axes.set_ylabel("power / mW")
    node = f"{first['node_nm']} nm, " if first.get("node_nm") else ""
    axes.set_title(
        f"Power at {power['clock_mhz']:g} MHz, {first.get('library', '?')} "
        f"({node}{first.get('corner', '?')}) and CACTI SRAM\n"
        + textwrap.fill(power.get("activity", "?"), 60),
        fontsize=10,
    )
    return (
        f"Power of standard cells ({first.get('library', '?')}) and SRAM (CACTI) at "
        f"{power['clock_mhz']:g} MHz, while this runs: {power.get('activity', '?')}."
    )
