"""The search: what cannot be on the front any more is not counted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perf.analytic.shapes import Layer
from perf.counted import Cell, Count

from .bound import least_cycles
from .budget import Budget
from .space import Candidate

__all__ = ["Point", "Search", "cycles_of", "front"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A machine that fits.

    Members
    -------
    candidate, cell : which, and its batch
    costs : resource -> amount
    least : cycles that a batch takes at least
    cycles : of a batch; with predictions the mean of one of each phase. None where it was not
        counted
    reason : why it was not
    """

    candidate: Candidate
    cell: Cell
    costs: Mapping[str, float]
    least: float
    cycles: float | None = None
    reason: str = ""


def cycles_of(found: Count) -> float:
    """Cycles of a batch; with predictions the mean of a batch of either phase (schedule B)."""
    own = [batch.cycles for batch in found.batches.values()]
    return sum(own) / len(own)


def front(points: Iterable[Point], shown: str) -> list[Point]:
    """Points to which no other one is equal or better in both, cycles and cost; cheapest first."""
    counted = [(each.costs[shown], each.cycles, each) for each in points if each.cycles is not None]
    best: list[Point] = []
    fastest = float("inf")
    for _, cycles, point in sorted(counted, key=lambda found: found[:2]):
        if cycles < fastest:
            best.append(point)
            fastest = cycles
    return best


class Search:
    """Counts the machines that may be on the front.

    Those with the smallest bound go first: they are the fastest ones, and one that is cheaper than
    others and faster than their bounds rules these out.

    Parameters
    ----------
    cells : makes the batch of a machine
    layers, images : of the network, for the bound
    budget : what there is
    """

    def __init__(
        self, candidates: Iterable[Candidate], cells: Callable[[Candidate], Cell],
        layers: Sequence[Layer], images: int, budget: Budget,
    ) -> None:  # fmt: skip
        self.budget = budget
        self.looked_at = 0
        self._open: list[Point] = []
        self.points: list[Point] = []
        for candidate in candidates:
            self.looked_at += 1
            _, costs = budget.fitting(candidate.config)
            if budget.fits(costs):
                cell = cells(candidate)
                least = least_cycles(layers, candidate.config, images, gp=cell.method == "adagp")
                self._open.append(Point(candidate=candidate, cell=cell, costs=costs, least=least))
        self._open.sort(key=lambda point: (point.least, point.costs[budget.shown]))
        self.fitting = len(self._open)

    def wave(self, most: int) -> list[Point]:
        """Up to ``most`` machines to count next; those that are ruled out go to ``points``."""
        chosen: list[Point] = []
        while self._open and len(chosen) < most:
            point = self._open.pop(0)
            rival = self._better(point)
            if rival is None:
                chosen.append(point)
            else:
                self._close(point, None, f"{rival.candidate.text} is better than its bound")
        return chosen

    def counted(self, point: Point, found: Count) -> None:
        """What became of a machine of :meth:`wave`."""
        if found.reason is not None:
            self._close(point, None, found.reason)
        else:
            self._close(point, cycles_of(found), "")

    def give_up(self) -> None:
        """What is left is not counted."""
        while self._open:
            self._close(self._open.pop(0), None, "not counted: the limit was reached")

    def _better(self, point):
        shown = self.budget.shown
        for other in self.points:
            if other.cycles is not None and other.cycles <= point.least:
                if other.costs[shown] <= point.costs[shown]:
                    return other
        return None

    def _close(self, point, cycles, reason):
        self.points.append(
            Point(candidate=point.candidate, cell=point.cell, costs=point.costs, least=point.least,
                  cycles=cycles, reason=reason)
        )  # fmt: skip
