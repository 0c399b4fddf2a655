"""Pictures of a comparison, as PNG."""

import math
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing

from .contestants import CONTESTANTS, REFERENCE
from .tournament import Result

__all__ = ["plot_curves", "plot_delays", "plot_kept"]

_LABELS = {
    "backward": "share of the backward pass that is computed",
    "norm": "s, share of the gradient's norm to keep",
    "cosine": "cosine of prediction and true gradient",
    "late": "cosine of the gradient that is applied and the present one",
}


def _mean_curve(curves):
    """(shares, mean over the seeds) of curves whose points differ a little."""
    end = np.linspace(0.05, 1, 20)
    values = [np.interp(end, *np.array(curve).T) for curve in curves]
    return end, np.mean(values, axis=0), np.std(values, axis=0)


def _save(figure, path):
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
    return True


def plot_curves(results: list[Result], path: str | Path) -> bool:
    """Test accuracy over time, the mean of all seeds and its standard deviation: for every method
    without a delay a panel, in which the reference is as well; False if there is no such method."""
    shown = [result for result in results if not CONTESTANTS[result.method].delay]
    curves = {
        result.method: _mean_curve([record["curve"] for record in result.records])
        for result in shown
    }
    reference = curves.pop(REFERENCE)
    if not curves:
        return False
    figure, panels = _grid(len(curves), 2.6, 2.3, sharex=True, sharey=True)
    for axes, (name, curve) in zip(panels, curves.items(), strict=True):
        for (time, middle, spread), color in ((reference, "black"), (curve, "C1")):
            axes.plot(time, 100 * middle, color=color, lw=1.2)
            axes.fill_between(time, 100 * (middle - spread), 100 * (middle + spread),
                              color=color, alpha=0.15, lw=0)  # fmt: skip
        last, difference = curve[1][-1], curve[1][-1] - reference[1][-1]
        axes.set_title(f"{name}, {100 * last:.1f} % ({100 * difference:+.1f})", fontsize="small")
    # What a method does before the reference has learned anything may lie below the panel.
    middle, ends = reference[1], [curve[1][-1] for curve in (reference, *curves.values())]
    low, high = 100 * min(middle[2], *ends), 100 * max(middle.max(), *ends)
    margin = (high - low) / 10 or 1
    panels[0].set_ylim(low - margin, high + margin)
    figure.supxlabel("share of the time", fontsize="small")
    figure.supylabel("test accuracy in %", fontsize="small")
    figure.suptitle(f"black: {REFERENCE}, {100 * middle[-1]:.1f} %", fontsize="medium")
    return _save(figure, path)


def plot_kept(results: list[Result], path: str | Path) -> bool:
    """Ratios of VCAS and cosines of predictions over time; False if there is nothing to show."""
    names = sorted({name for result in results for r in result.records for name in r["kept"]})
    if not names:
        return False
    figure, panels = _grid(len(names), 5, 4, most=2)
    for axes, name in zip(panels, names, strict=True):
        for result in results:
            curves = [record["kept"][name] for record in result.records if name in record["kept"]]
            if curves:
                time, middle, _ = _mean_curve(curves)
                axes.plot(time, middle, label=result.method)
        axes.set(xlabel="share of the time", title=_LABELS.get(name, name))
        axes.title.set_fontsize("small")
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))
    return _save(figure, path)


def _grid(count, width, height, most=4, **options):
    """(figure, ``count`` panels), at most so many a row, each so many inches wide and high."""
    columns = min(most, count)
    rows = math.ceil(count / columns)
    figure, panels = pyplot.subplots(
        rows, columns, figsize=(width * columns, height * rows + 0.4), layout="constrained",
        squeeze=False, **options,
    )  # fmt: skip
    for axes in panels.flat[count:]:
        axes.set_axis_off()
    for axes in panels.flat[:count]:
        axes.grid(alpha=0.3)
    return figure, list(panels.flat[:count])


def plot_delays(results: list[Result], path: str | Path) -> bool:
    """Accuracy over the delay, and the cosine of the gradient that is applied and the present one,
    both with and without braking; False if no method has a delay."""
    if not any(CONTESTANTS[result.method].delay for result in results):
        return False
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    accuracy, cosine = panels
    for label, braked in (("SGD with momentum", False), ("with Adaptive Braking", True)):
        points = sorted(
            (CONTESTANTS[result.method].delay, result.accuracies, _mean_late(result))
            for result in results
            if bool(CONTESTANTS[result.method].braking) == braked
            and (CONTESTANTS[result.method].delay or result.method in (REFERENCE, "braking"))
        )
        delays = [delay for delay, *_ in points]
        means = [100 * np.mean(values) for _, values, _ in points]
        errors = [100 * np.std(values, ddof=1) for _, values, _ in points]
        accuracy.errorbar(delays, means, errors, marker="o", capsize=3, label=label)
        cosine.plot(delays, [late for *_, late in points], marker="o", label=label)
    accuracy.set(ylabel="test accuracy in %")
    cosine.set(ylabel="cosine of applied and present gradient")
    for axes in panels:
        axes.set(xlabel="delay of the gradients in steps")
        axes.legend()
        axes.grid(alpha=0.3)
    return _save(figure, path)


def _mean_late(result: Result) -> float:
    """Over time and seeds; 1 without a delay, NaN where nobody measured."""
    if not CONTESTANTS[result.method].delay:
        return 1.0
    values = [value for record in result.records for _, value in record["kept"].get("late", [])]
    return float(np.mean(values)) if values else math.nan
