"""What the compiler estimates for whole networks, where nothing has been counted yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from cli.build_directory import PROJECT_ROOT
from compiler.networks.cells import Outcome, read_outcomes
from perf.analytic.training import Batches
from perf.counted import Cell

from . import speed_columns
from .section import Table
from .wanted import Speed, Wanted, commits

__all__ = ["PUBLISHED", "Estimated", "Estimates", "estimated_glance", "estimated_table"]

#: What ``python -m compiler --table`` has left in the project.
PUBLISHED = PROJECT_ROOT / "docs" / "results_networks.jsonl"


@dataclass(frozen=True, kw_only=True)
class Estimated(Speed):
    """A :class:`~.wanted.Speed` at ``images`` of a batch, by the compiler's estimate."""

    images: int

    @property
    def summary(self) -> dict[str, Any]:
        """For JSON."""
        speeds: dict[str, Any] = {schedule: self.speed_up(schedule) for schedule in "AB"}
        return speeds | {"images": self.images, "commit": self.state}


class Estimates:
    """Outcomes of ``python -m compiler --table``.

    Parameters
    ----------
    path : of its file; nothing is known if there is none

    Raises
    ------
    CompileError
        for a line that is no outcome.
    """

    def __init__(self, path: Path = PUBLISHED) -> None:
        self._found: dict[tuple, dict[int, Outcome]] = {}
        for cell, outcome in read_outcomes(path).items():
            if outcome.reason is None:
                self._found.setdefault(_key(cell), {})[cell.batch] = outcome

    def speed(self, base: Cell, cell: Cell) -> Estimated | None:
        """Of ``cell`` beside ``base``, whatever their batches: at the largest one of which both
        have programs; None if there is none, or the classes are not the usual ones."""
        if cell.classes is not None:
            return None
        plain, own = (self._found.get(_key(each), {}) for each in (base, cell))
        both = [images for images in plain if images in own and "gp" in own[images].programs]
        if not both:
            return None
        images = max(both)
        first, second = plain[images], own[images]
        found = Batches(
            plain=first.programs["bp"]["cycles"],
            learning=second.programs["bp"]["cycles"],
            predicted=second.programs["gp"]["cycles"],
        )
        states = dict.fromkeys(each.state for each in (first, second))
        return Estimated(batches=found, state=", ".join(states), images=images)

    def of(self, wanted: Wanted, network: str, data: str, variant: str) -> Estimated | None:
        """Of a network on a data set."""
        base, cell = (wanted.cell(network, data, name) for name in ("baseline", variant))
        return self.speed(base, cell)


def _key(cell):
    return (cell.network, cell.input, cell.variant, cell.method, cell.preset, cell.settings,
            cell.width)  # fmt: skip


def estimated_table(wanted: Wanted, data: str, estimates: Estimates) -> list[str | Table]:
    """Speed-ups of every network of which there is a baseline, and their means."""
    _, *variants = wanted.with_baseline
    all_found = {
        network: [estimates.of(wanted, network, data, name) for name in variants]
        for network in wanted.networks
    }
    rows: list[Sequence[str]] = []
    for network, found in all_found.items():
        if known := [each for each in found if each is not None]:
            images = ", ".join(dict.fromkeys(str(each.images) for each in known))
            speeds = speed_columns.columns(found, [""] * len(found))
            rows.append([network, images, *speeds, commits(known)])
    if not rows:
        return []
    rows.append(["mean", "", *speed_columns.means(list(all_found.values())), ""])
    headings = ["network", "batch", *speed_columns.headings(variants), "commits"]
    caption = (
        f"{data}, *estimated*: by the compiler's own clock ([results_networks.md]"
        "(results_networks.md)), where loops go on as they have settled. Programs of different "
        "commits may differ for that reason alone. Means are of so many networks:"
    )
    return [Table(headings=headings, rows=rows, left=2, caption=caption)]


def estimated_glance(wanted: Wanted, data: str, estimates: Estimates) -> str:
    """For the summary; "" if nothing is known."""
    found = (estimates.of(wanted, network, data, "max") for network in wanted.networks)
    known = [each for each in found if each is not None]
    if not known:
        return ""
    value = mean(each.speed_up("B") for each in known)
    return f"; estimated {value:.2f} (mean of {len(known)})"
