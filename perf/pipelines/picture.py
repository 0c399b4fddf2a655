"""A schedule as a picture: devices over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import Patch

from cli.atomic_files import replacing

from .simulate import Placed, makespan

__all__ = ["plot_timelines"]

_COLORS = {"GP": "#9ED8BE", "forward": "#A9C4EB", "backward": "#F2B880"}
_NAMES = {"GP": "Phase GP", "forward": "forward", "backward": "backward"}


def plot_timelines(schedules: Mapping[str, Sequence[Placed]], path: str | Path) -> None:
    """A panel for each schedule: what every device does, with the number of the micro-batch."""
    most = max(makespan(placed) for placed in schedules.values())
    devices = max(each.task.device for placed in schedules.values() for each in placed) + 1
    figure, panels = pyplot.subplots(
        len(schedules), 1, figsize=(11, (0.34 * devices + 0.75) * len(schedules) + 0.5),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for axes, (title, placed) in zip(panels[:, 0], schedules.items(), strict=True):
        for each in placed:
            task, width = each.task, float(each.task.time)
            axes.barh(task.device, width, left=float(each.begin), height=0.9, edgecolor="white",
                      color=_COLORS[task.kind])  # fmt: skip
            if width > float(most) / 90:
                axes.text(float(each.begin) + width / 2, task.device, task.micro_batch + 1,
                          ha="center", va="center", fontsize=7)  # fmt: skip
        axes.set(xlim=(0, float(most)), ylim=(devices - 0.4, -0.6), yticks=range(devices))
        axes.set_title(f"{title}: {float(makespan(placed)):.4g} steps", fontsize=9, loc="left")
        axes.set_ylabel("device", fontsize=8)
        axes.tick_params(labelsize=7)
    panels[-1, 0].set_xlabel("steps; the numbers are those of the micro-batches", fontsize=8)
    kinds = [Patch(color=color, label=_NAMES[kind]) for kind, color in _COLORS.items()]
    figure.legend(handles=kinds, ncols=3, fontsize=8, loc="outside upper right")
    with replacing(Path(path)) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)
