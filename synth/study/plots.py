"""Plots of the synthesis report, as PNG files."""

from pathlib import Path

from rtl_gen.atomic import replacing
from synth.fpga.tables import fmax_summary

from .analysis import area_by_block
from .paper_figures import AREA_OVERHEAD_PERCENT

__all__ = ["VARIANTS_SHOWN", "draw_plots"]

VARIANTS_SHOWN = ("baseline", "low", "efficient", "max")

#: Colours that stay apart for colour-blind readers (Okabe and Ito), light to dark enough for print.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
    "#332288", "#AA4499", "#117733", "#882255",
)  # fmt: skip

_PAPER, _OURS, _OTHER = "#BBBBBB", "#0072B2", "#DDDDDD"


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


def _merge_small(columns):
    """The columns with the parts below a fiftieth of the highest one put together."""
    limit = max(sum(column.values()) for column in columns) / 50
    largest: dict[str, float] = {}
    for column in columns:
        for part, value in column.items():
            largest[part] = max(largest.get(part, 0), value)
    small = {part for part, value in largest.items() if value < limit}
    ordered = sorted(largest.keys() - small, key=lambda part: -largest[part])
    if len(small) < 2:
        return columns, sorted(largest, key=lambda part: -largest[part])
    merged = [
        {
            **{part: value for part, value in column.items() if part not in small},
            "other": sum(value for part, value in column.items() if part in small),
        }
        for column in columns
    ]
    return merged, [*ordered, "other"]


def _stack(axes, columns, labels, scale):
    """Stacked bars: ``columns`` is a list of {part: value}, one per label; the largest part at
    the bottom, the total above each bar. A part of the predictor has the colour of its like in
    the main core, hatched."""
    columns, ordered = _merge_small(columns)
    plain = list(dict.fromkeys(part.removeprefix("predictor ") for part in ordered))
    bottoms = [0.0] * len(columns)
    for part in ordered:
        heights = [column.get(part, 0) / scale for column in columns]
        axes.bar(
            labels,
            heights,
            0.6,
            bottom=bottoms,
            label=part,
            color=_OTHER
            if part == "other"
            else _COLOURS[plain.index(part.removeprefix("predictor ")) % len(_COLOURS)],
            hatch="///" if part.startswith("predictor ") else None,
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


def _asic_area(axes, designs, _analysis):
    columns, labels = [], []
    for variant in _shown(designs):
        blocks = area_by_block(designs[variant], "asic")
        if blocks is None:
            continue
        memory = designs[variant].get("sram", {}).get("area_by_purpose_um2", {})
        columns.append({**blocks, **{f"SRAM: {name}": area for name, area in memory.items()}})
        labels.append(variant)
    if not columns:
        return None
    _stack(axes, columns, labels, 1e6)
    axes.set_ylabel("area / mm²")
    node = next(designs[label]["asic"].get("node_nm") for label in labels)
    with_memory = any("area_um2" in designs[label].get("sram", {}) for label in labels)
    axes.set_title(f"Area by block, {node} nm standard cells{' and SRAM' * with_memory}")
    return "Standard-cell area by block, and SRAM area by memory, before placement."


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
    series = [
        (label, analysis["overhead_percent"][name])
        for label, name in (
            ("this project, xc7 LUT", "xc7_lut"),
            ("this project, standard cells", "asic_logic"),
        )
        if any(value is not None for value in analysis["overhead_percent"][name].values())
    ]
    if not series:
        return None
    series.append(("paper, area", AREA_OVERHEAD_PERCENT))
    variants = list(AREA_OVERHEAD_PERCENT)
    width = 0.8 / len(series)
    for index, (label, values) in enumerate(series):
        places = [at + (index - (len(series) - 1) / 2) * width for at in range(len(variants))]
        heights = [values[variant] if values[variant] is not None else 0 for variant in variants]
        colour = _PAPER if label.startswith("paper") else _COLOURS[index]
        axes.bar(places, heights, width * 0.92, label=label, color=colour)
        for at, variant, height in zip(places, variants, heights):
            text = "n/a" if values[variant] is None else f"{round(height, 1) + 0.0:.1f}"
            axes.annotate(
                text, (at, max(height, 0)), ha="center", va="bottom",
                xytext=(0, 2), textcoords="offset points",
            )  # fmt: skip
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(variants)), variants)
    axes.set_ylabel("logic area over baseline / %")
    axes.set_title("Logic over the baseline, memories apart")
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
        axes.plot([at] * len(values), values, "o", color=_OURS, markersize=7)
        axes.plot([at - 0.15, at + 0.15], [summary["median"]] * 2, color="black")
        axes.annotate(
            f"{summary['median']:.1f}", (at + 0.18, summary["median"]), va="center",
        )  # fmt: skip
        labels.append((variant, measured["device"]))
    if not labels:
        return None
    axes.axhline(50, color="#D55E00", linestyle="--", linewidth=1)
    axes.annotate("50 MHz", (-0.48, 50), va="bottom", color="#D55E00")
    axes.set_xticks(range(len(labels)), [f"{variant}\n{device}" for variant, device in labels])
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_ylim(0, 1.15 * max(50, axes.dataLim.y1))
    axes.set_ylabel("Fmax / MHz")
    axes.set_title("Clock frequency after place and route, ECP5")
    return "Fmax for each seed of place and route (dots), the median as a line."


def _power(axes, designs, _analysis):
    columns, labels = [], []
    for variant in _shown(designs):
        power = designs[variant].get("asic", {}).get("power_mw")
        if not power:
            continue
        column = {part: power[part] for part in ("internal", "switching", "leakage")}
        memory = designs[variant]["asic"].get("memory_power_mw", {})
        column |= {f"SRAM, {part}": value for part, value in memory.items()}
        columns.append(column)
        labels.append(variant)
    if not columns:
        return None
    _stack(axes, columns, labels, 1)
    clock = designs[labels[0]]["asic"]["power_mw"].get("clock_mhz")
    axes.set_ylabel("power / mW")
    axes.set_title(f"Power at {clock:g} MHz" if clock else "Power")
    return "Power of standard cells and SRAM under simulated activity."
