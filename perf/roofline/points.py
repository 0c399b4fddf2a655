"""Counted batches beside what they have to do, and their table."""

from collections.abc import Iterable, Sequence
from functools import cache

from compiler.networks.registry import network, read_shape
from perf.counted import Cell, Store
from synth.study.tables import table

from .work import Point, Work, point_of, work_of

__all__ = ["point_lines", "points_of"]


def points_of(store: Store, cells: Iterable[Cell]) -> list[Point]:
    """The counted batches of cells."""
    points: list[Point] = []
    for cell in cells:
        found = store.get(cell)
        if found is None or found.reason is not None:
            continue
        for phase, batch in found.batches.items():
            work = _work(cell, phase == "bp")
            points.append(point_of(cell.network, cell.variant, phase, cell.config, work, batch))
    return points


def _work(cell: Cell, backward: bool) -> Work:
    return _work_of(cell.network, cell.input, cell.classes, cell.width, cell.batch, backward)


@cache
def _work_of(name, size, classes, width, images, backward) -> Work:
    shape = read_shape(size)
    model = network(name, shape, classes=classes, width=width)
    return work_of(model, shape, images, backward=backward)


def point_lines(points: Sequence[Point]) -> list[str]:
    """A row for every batch."""
    rows = [
        [p.network, p.variant, p.phase.upper(), p.limit, f"{p.macs / 1e6:,.0f}",
         f"{p.cycles / 1e6:,.2f}", f"{p.intensity:.1f}", f"{p.rate:.1f}", f"{p.roof:.1f}",
         f"{100 * p.share:.1f} %", *(f"{100 * own:.0f} %" for own in p.busy.values())]
        for p in points
    ]  # fmt: skip
    headings = ["network", "variant", "phase", "limit", "million MACs", "million cycles",
                "MACs per byte", "MACs per cycle", "roof", "of the cycles, the limit",
                *(f"{name} at work" for name in (points[0].busy if points else ()))]  # fmt: skip
    return table(headings, rows, left=4)
