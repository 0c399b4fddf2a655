"""The roofline, and speed-ups over what is varied."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing
from perf.area.designs import VARIANTS

from .needs import Setting, in_words
from .work import Point

__all__ = ["plot_needs", "plot_roofline"]

_MARKS = {"baseline": "o", "low": "v", "efficient": "s", "max": "D"}


def plot_roofline(points: Sequence[Point], path: str | Path, title: str) -> None:
    """Multiplications per cycle over those per byte; a color for each network, of up to 20.

    Filled: a batch with backpropagation; hollow: one with predicted gradients. Roofs are of the
    first point's array, with buses of 64 to 512 bits.
    """
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    names = dict.fromkeys(point.network for point in points)
    colors = dict(zip(names, cycle(pyplot.colormaps["tab20"].colors), strict=False))
    low = min(point.intensity for point in points) / 8
    high = max(max(point.intensity for point in points) * 2, points[0].pes)
    intensity = np.geomspace(low, high, 200)
    for beat in (8, 16, 32, 64):
        own = beat == points[0].beat
        axes.plot(intensity, np.minimum(points[0].pes, intensity * beat), color="black",
                  lw=1.6 if own else 0.6, alpha=1 if own else 0.5)  # fmt: skip
        axes.annotate(
            f"{8 * beat} bit", (low, low * beat), xytext=(-3, 0), textcoords="offset points",
            fontsize=7, va="center", ha="right",
        )  # fmt: skip
    for point in points:
        color = colors[point.network]
        axes.plot(point.intensity, point.rate, _MARKS[point.variant], color=color, ms=7,
                  mfc=color if point.phase == "bp" else "none")  # fmt: skip
    for network, color in colors.items():
        axes.plot([], [], "o", color=color, label=network)
    for variant, mark in _MARKS.items():
        for phase in dict.fromkeys(each.phase for each in points if each.variant == variant):
            name = variant if variant == "baseline" else f"{variant}, Phase {phase.upper()}"
            filled = "0.3" if phase == "bp" else "none"
            axes.plot([], [], mark, color="0.3", mfc=filled, label=name)
    axes.set(xscale="log", yscale="log", xlabel="multiplications per byte, busier direction",
             ylabel="multiplications per cycle", xlim=(low * 0.6, None))  # fmt: skip
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.3, which="both")
    figure.legend(fontsize=8, loc="outside right upper")
    _save(figure, path)


def plot_needs(found: Sequence[Setting], path: str | Path) -> None:
    """A panel for each thing that is varied."""
    names = list(dict.fromkeys(setting.name for setting in found))
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(3.6 * len(names) + 0.4, 3.4), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    for axes, name in zip(panels[0], names, strict=True):
        for variant in VARIANTS:
            own = [
                (each.value, each.speed[variant]) for each in found
                if each.name == name and each.speed[variant] is not None
            ]  # fmt: skip
            if own:
                axes.plot(*zip(*own, strict=True), _MARKS[variant] + "-", ms=5, label=variant)
        axes.axhline(1, color="black", lw=1)
        ticks = [each.value for each in found if each.name == name]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(value) for value in ticks], fontsize=8)
        axes.set_xlabel(in_words(name), fontsize=9)
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("speed-up B over baseline", fontsize=9)
    panels[0, 0].legend(fontsize=8)
    _save(figure, path)


def _save(figure, path):
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
