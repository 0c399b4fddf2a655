"""Speed-ups of all networks as bars."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing

from .evaluation import FIGURES, Row, published

__all__ = ["plot_speed_ups"]


def plot_speed_ups(rows: Sequence[Row], flow: str, path: str | Path) -> None:
    """A panel for each data set: ``max``, and ``low`` or ``efficient``, by schedule B; the paper's
    mean as a line."""
    sets = list(dict.fromkeys((row.data, row.images) for row in rows))
    figure, panels = pyplot.subplots(
        len(sets), 1, figsize=(10, 2.6 * len(sets) + 0.8), layout="constrained", squeeze=False,
        sharex=True,
    )  # fmt: skip
    means = published(flow)["mean"]
    for axes, (data, images) in zip(panels[:, 0], sets, strict=True):
        own = [row for row in rows if (row.data, row.images) == (data, images)]
        places = np.arange(len(own))
        for shift, variant, label in ((-0.2, "low", "low, efficient"), (0.2, "max", "max")):
            speeds = [row.speed_up(variant, "B") for row in own]
            axes.bar(places + shift, speeds, 0.38, label=label)
        axes.axhline(means[data], color="black", lw=1, ls="--", label="paper, max, mean")
        axes.set(ylim=(1, None), ylabel="speed-up B", xticks=places)
        axes.set_xticklabels([row.network for row in own], rotation=35, ha="right", fontsize=8)
        axes.set_title(f"{data}, batch {images}", loc="left", fontsize=9)
        axes.grid(axis="y", alpha=0.3)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=len(labels), loc="outside upper right")
    title = f"{flow} (Figure {FIGURES[flow]}), by formulas"
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
