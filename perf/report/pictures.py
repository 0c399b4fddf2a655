"""The report's pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing
from compiler.networks.summary import PHASES
from perf.machine.layers import BEHIND

__all__ = ["draw_layers", "draw_speed_ups", "draw_sweep"]

_PHASE_COLORS = dict(zip(PHASES, ("#A9C4EB", "#999999", "#F2B880", "#C7A0D8", "#9ED8BE")))
_BAR_COLORS = ("#C8C8C8", "#9ED8BE", "#A9C4EB", "#E8924A")


def draw_layers(
    batches: Mapping[str, Mapping[str, Mapping[str, int]]], title: str, path: Path
) -> None:
    """A panel for each batch: a bar for each layer, its phases on top of each other."""
    layers = [
        layer
        for layer in dict.fromkeys(name for found in batches.values() for name in found)
        if layer != BEHIND
    ]
    figure, panels = pyplot.subplots(
        len(batches), 1, figsize=(10, 1.5 * len(batches) + 1), layout="constrained", squeeze=False,
        sharex=True, sharey=True,
    )  # fmt: skip
    places = np.arange(len(layers))
    for axes, (name, found) in zip(panels[:, 0], batches.items(), strict=True):
        base = np.zeros(len(layers))
        for phase in PHASES:
            counts = np.array([found.get(layer, {}).get(phase, 0) for layer in layers]) / 1e6
            if counts.any():
                axes.bar(places, counts, 0.8, bottom=base, label=phase, color=_PHASE_COLORS[phase])
            base += counts
        axes.set_title(f"{name}: {base.sum():,.1f} million cycles", loc="left", fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.tick_params(labelsize=7)
    panels[-1, 0].set_xticks(places, layers, rotation=60, ha="right", fontsize=7)
    panels[-1, 0].set_xlabel("layer (torch's number)", fontsize=8)
    figure.supylabel("million cycles", fontsize=8)
    handles: dict = {}
    for axes in panels[:, 0]:
        own, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, own))
    figure.legend(
        handles.values(), handles.keys(), ncols=len(handles), fontsize=8, loc="outside upper right"
    )
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    _save(figure, path)


def draw_speed_ups(
    networks: Sequence[str],
    panels: Mapping[str, tuple[Mapping[str, Sequence[float | None]], float]],
    path: Path, legend: str = "",
) -> None:  # fmt: skip
    """A panel for each data set: bars by network; None is no bar but a mark; the paper's mean as a
    line. ``legend`` stands above the names of the bars."""
    figure, rows = pyplot.subplots(
        len(panels), 1, figsize=(11, 2.6 * len(panels) + 0.8), layout="constrained", squeeze=False,
        sharex=True,
    )  # fmt: skip
    places = np.arange(len(networks))
    for axes, (title, (bars, mean)) in zip(rows[:, 0], panels.items(), strict=True):
        width = 0.86 / len(bars)
        for number, (name, speeds) in enumerate(bars.items()):
            at = places + (number - (len(bars) - 1) / 2) * width
            heights = [np.nan if speed is None else speed for speed in speeds]
            color = _BAR_COLORS[number % len(_BAR_COLORS)]
            axes.bar(at, heights, width * 0.95, label=name, color=color)
            for place, speed in zip(at, speeds):
                if speed is None:
                    axes.text(place, 1.005, "·", ha="center", va="bottom", fontsize=9, color="gray")
        axes.axhline(mean, color="black", lw=1, ls="--", label="paper, max, mean")
        known = [speed for speeds in bars.values() for speed in speeds if speed is not None]
        axes.set(
            ylim=(min([1.0, *(speed - 0.03 for speed in known)]), max([*known, mean]) + 0.04),
            ylabel="speed-up B",
        )
        unknown = len(known) < sum(len(speeds) for speeds in bars.values())
        axes.set_title(f"{title}; a dot: not known" if unknown else title, loc="left", fontsize=9)
        axes.grid(axis="y", alpha=0.3)
    rows[-1, 0].set_xticks(places, networks, rotation=30, ha="right", fontsize=8)
    handles, labels = rows[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, ncols=len(labels), fontsize=8, loc="outside upper center", title=legend,
        title_fontsize=8,
    )  # fmt: skip
    _save(figure, path)


def draw_sweep(
    sizes: Sequence[int], networks: Mapping[str, Mapping[str, Sequence[float | None]]], path: Path,
    label: str,
) -> None:  # fmt: skip
    """A panel for each network: speed-ups over sizes of what ``label`` says, formulas dashed."""
    figure, panels = pyplot.subplots(
        1, len(networks), figsize=(5.5 * len(networks) + 1.5, 3.8), layout="constrained",
        squeeze=False, sharey=True,
    )  # fmt: skip
    for axes, (network, lines) in zip(panels[0], networks.items(), strict=True):
        for name, speeds in lines.items():
            known = [(size, speed) for size, speed in zip(sizes, speeds) if speed is not None]
            if known:
                axes.plot(*zip(*known), "--" if name.startswith("formulas") else "o-", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set(xlabel=label, title=network)
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("speed-up B")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside right upper")
    _save(figure, path)


def _save(figure, path):
    with replacing(path) as file:
        figure.savefig(file, dpi=110, format="png")
    pyplot.close(figure)
