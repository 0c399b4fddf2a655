"""Plots of finished runs, as PNG. Needs matplotlib."""

from itertools import groupby
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

from cli.atomic_files import replacing

__all__ = ["evenly", "phase_spans", "plot_accuracy", "plot_predictions"]

_SHADES = {"W": ("#CCCCCC", "warm-up"), "G": ("#9ED8BE", "Phase GP")}
_LEGEND = 16  # layers, at most
_PANELS = (
    ("mape", "MAPE in %", "log"),
    ("mse", "mean squared error", "log"),
    ("cosine", "cosine to the true gradient", "linear"),
    ("gate", "gate", "linear"),
)


def phase_spans(phases: str) -> list[tuple[str, int, int]]:
    """Runs of equal letters as (letter, first batch, batch behind the last)."""
    spans, place = [], 0
    for letter, run in groupby(phases):
        length = len(list(run))
        spans.append((letter, place, place + length))
        place += length
    return spans


def evenly(values: list, most: int) -> list:
    """All values, or ``most`` of them at even distances, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[round(place)] for place in np.linspace(0, len(values) - 1, most)]


def plot_accuracy(comparison, path) -> Path:
    """Test accuracy over batches, every method, phases of the first that has Phase GP shaded."""
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for number, runs in enumerate(comparison.methods):
        values = 100 * np.array(
            [[epoch["accuracy"] for epoch in record["epochs"]] for record in runs.records]
        )
        batches = runs.records[0]["batches"] * np.arange(1, values.shape[1] + 1)
        middle, spread = values.mean(0), values.std(0)
        style = ("-", "--", ":")[number // 10 % 3]
        label = f"{runs.method}, {runs.learning_rate:g}"
        (line,) = axes.plot(batches, middle, style, label=label, linewidth=1.2)
        axes.fill_between(
            batches, middle - spread, middle + spread, color=line.get_color(), alpha=0.12, lw=0
        )
    scheduled = next((runs for runs in comparison.methods if runs.count(True)), None)
    if scheduled is not None:
        spans = phase_spans(scheduled.records[0]["phases"])
        for letter, (colour, label) in _SHADES.items():
            places = [(first, last - first) for kind, first, last in spans if kind == letter]
            axes.broken_barh(
                places, (0, 1), transform=axes.get_xaxis_transform(), color=colour, alpha=0.35,
                linewidth=0, zorder=0, label=f"{label} ({scheduled.method})",
            )  # fmt: skip
    axes.set(xlabel="batches", ylabel="test accuracy in %", title=comparison.title)
    axes.legend(fontsize="small", loc="lower right", ncols=2)
    return _save(figure, path)


def plot_predictions(runs, title, path) -> Path:
    """MAPE, mean squared error, cosine and gate of each layer over epochs, means over seeds.

    Guesses are those made before the batch was learnt from, without the gate. The legend has 16
    layers at most.
    """
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained", sharex=True)
    layers = list(runs.records[0]["epochs"][0]["layers"])
    colours = pyplot.get_cmap("viridis")(np.linspace(0, 0.95, len(layers)))
    for panel, (value, label, scale) in zip(axes.flat, _PANELS):
        for colour, layer in zip(colours, layers):
            numbers = np.ma.masked_invalid(
                np.array(
                    [
                        [epoch["layers"][layer][value] for epoch in record["epochs"]]
                        for record in runs.records
                    ],
                    float,
                )
            )
            middle = numbers.mean(0)
            style = {"color": colour, "linewidth": 1 if len(layers) > _LEGEND else 1.5}
            panel.plot(np.arange(1, len(middle) + 1), middle, ".-", label=layer, **style)
        panel.set(ylabel=label, yscale=scale)
    for panel in axes[1]:
        panel.set_xlabel("epoch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    title_of_legend = "layer" if len(layers) <= _LEGEND else f"{_LEGEND} of {len(layers)} layers"
    figure.legend(
        handles=evenly(axes[0, 0].get_lines(), _LEGEND), title=title_of_legend,
        fontsize="x-small", loc="outside right upper",
    )  # fmt: skip
    figure.suptitle(f"{runs.method}, learning rate {runs.learning_rate:g}: {title}", fontsize=10)
    return _save(figure, path)


def _save(figure, path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        figure.savefig(file, dpi=110, format="png")
    pyplot.close(figure)
    return Path(path)
