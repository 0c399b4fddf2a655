"""Energy by cause as stacked bars."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing

from .batches import CAUSES, NetworkEnergy

__all__ = ["plot_energy"]

_COLORS = ("#27548A", "#6C9BCF", "#2E7D32", "#81C784", "#C5E1A5", "#F9A825", "#B0BEC5", "#E57373")


def plot_energy(found: Sequence[NetworkEnergy], dram: float, path: str | Path) -> None:
    """A panel for each network, a bar for each variant: the mean of a batch of either phase, per
    image."""
    networks = list(dict.fromkeys(each.network for each in found))
    figure, panels = pyplot.subplots(
        1, len(networks), figsize=(3.4 * len(networks) + 2.2, 3.8), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for axes, network in zip(panels[0], networks, strict=True):
        own = [each for each in found if each.network == network]
        bottom = np.zeros(len(own))
        for cause, color in zip(CAUSES, _COLORS, strict=True):
            heights = np.array([each.mean(0.5, (cause,)) / each.images for each in own])
            axes.bar([each.variant for each in own], heights, 0.7, bottom=bottom, color=color,
                     label=cause)  # fmt: skip
            bottom += heights
        axes.set_title(network, fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", alpha=0.3)
    panels[0, 0].set_ylabel(f"µJ per image, schedule B, DRAM at {dram:g} pJ per bit", fontsize=8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], fontsize=8, loc="outside right upper")
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
