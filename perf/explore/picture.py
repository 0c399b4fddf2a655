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
    """A mark for each machine that was counted, the front as a line with its arrays' sizes."""
    figure, axes = pyplot.subplots(figsize=(7.5, 4.8), layout="constrained")
    shown = budget.shown
    for variant, mark in _MARKS.items():
        own = [p for p in points if p.cycles is not None and p.candidate.variant == variant]
        if own:
            axes.plot([p.costs[shown] for p in own], [p.cycles for p in own], mark, alpha=0.6,
                      ms=5, label=variant)  # fmt: skip
    axes.step([p.costs[shown] for p in best], [p.cycles for p in best], where="post",
              color="0.3", lw=1, label="front")  # fmt: skip
    for point in best:
        arrays = point.candidate.arrays.replace(" × ", "×")
        axes.annotate(f"{arrays}, {point.candidate.config.axi_data_width} bit",
                      (point.costs[shown], point.cycles), fontsize=6.5, rotation=20,
                      textcoords="offset points", xytext=(4, 4))  # fmt: skip
    if (limit := budget.available.get(shown)) is not None:
        axes.axvline(limit, color="tab:red", lw=1, ls="--", label=f"limit of {budget.name}")
    axes.set(xlabel=f"{shown}, by the model of area", ylabel="cycles of a batch", yscale="log")
    axes.set_title(title, fontsize=9, loc="left")
    axes.margins(0.1)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
