"""Speed over cost, network by network."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from cli.atomic_files import replacing

from .designs import COSTS
from .verdict import Efficiency

__all__ = ["plot_designs"]

#: Marker and color.
_MARKS = {
    "baseline, more lanes": ("P", "tab:red"), "low": ("v", "tab:blue"),
    "efficient": ("s", "tab:orange"), "max": ("D", "tab:green"),
}  # fmt: skip


def plot_designs(found: Sequence[Efficiency], path: str | Path, *, title: str = "") -> None:
    """A row for each network, a panel for each cost: baselines with more columns as a line, those
    with more lanes and variants as points, with their columns. A point above the line is faster
    than the baseline of its cost."""
    networks = list(dict.fromkeys(each.network for each in found))
    least = min(each.design.lanes for each in found)
    figure, panels = pyplot.subplots(
        len(networks), len(COSTS), figsize=(3.1 * len(COSTS), 2.6 * len(networks) + 0.7),
        layout="constrained", squeeze=False, sharey="row",
    )  # fmt: skip
    for row, network in zip(panels, networks, strict=True):
        own = [each for each in found if each.network == network]
        for axes, (name, cost) in zip(row, COSTS.items(), strict=True):
            bases = sorted(
                (each.design.costs[name] / cost.size, each.speed)
                for each in own
                if each.design.variant == "baseline" and each.design.lanes == least
            )  # fmt: skip
            axes.plot(*zip(*bases, strict=True), "o-", color="0.4", ms=4,
                      label="baseline, more columns")  # fmt: skip
            for each in own:
                kind, lanes = each.design.variant, each.design.lanes
                if kind == "baseline" and lanes > least:
                    kind = "baseline, more lanes"
                if kind not in _MARKS or name not in each.design.costs:
                    continue
                place = each.design.costs[name] / cost.size, each.speed
                marker, color = _MARKS[kind]
                axes.plot(*place, marker, color=color, ls="", label=kind)
                if each.design.variant == "baseline":
                    axes.annotate(
                        str(each.design.columns), place, (0, 6), textcoords="offset points",
                        ha="center", fontsize=7,
                    )  # fmt: skip
            axes.margins(y=0.12)
            axes.grid(alpha=0.3)
            axes.tick_params(labelsize=8)
        row[0].set_ylabel(f"{network}\nspeed over baseline", fontsize=8)
    for axes, cost in zip(panels[-1], COSTS.values(), strict=True):
        axes.set_xlabel(f"{cost.text},\n{cost.unit}", fontsize=8)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once.keys(), ncols=5, fontsize=8,
                  loc="outside upper center")  # fmt: skip
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
