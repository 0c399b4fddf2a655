"""Cycles over area: all machines that were counted, and the front."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing

from .budget import Budget
from .search import Point

__all__ = ["plot_front"]

_MARKS = {"baseline": "o", "low": "v", "efficient": "s", "max": "D"}


def plot_front(
    points: Sequence[Point], best: Sequence[Point], budget: Budget, title: str, path: str | Path
) -> None:
    """A mark for each machine that was counted, the front as a line whose machines have numbers."""
    figure, axes = pyplot.subplots(figsize=(9.5, 4.8), layout="constrained")
    shown = budget.shown
    for variant, mark in _MARKS.items():
        own = [p for p in points if p.cycles is not None and p.candidate.variant == variant]
        if own:
            axes.plot([p.costs[shown] for p in own], [p.cycles for p in own], mark, alpha=0.6,
                      ms=5, label=variant)  # fmt: skip
    axes.step([p.costs[shown] for p in best], [p.cycles for p in best], where="post",
              color="0.3", lw=1, label="front")  # fmt: skip
    if (limit := budget.available.get(shown)) is not None:
        axes.axvline(limit, color="tab:red", lw=1, ls="--", label=f"limit of {budget.name}")
    for number, point in enumerate(best, 1):
        place = point.costs[shown], point.cycles
        axes.annotate(f"{number}", place, fontsize=8, weight="bold",
                      textcoords="offset points", xytext=(3, 4))  # fmt: skip
        machine = point.candidate
        sizes = f"{machine.arrays.replace(' × ', '×')}, {machine.config.axi_data_width} bit"
        axes.plot([], [], " ", label=f"{number}: {machine.variant} {sizes}")
    axes.set(xlabel=f"{shown}, by the model of area", ylabel="cycles of a batch", yscale="log")
    axes.set_title(title, fontsize=9, loc="left")
    axes.margins(0.1)
    axes.grid(alpha=0.3, which="both")
    # Beside the axes: neighbours on a front would write over each other, and over marks.
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
