"""What limits a batch of every network: multiplications and bytes beside cycles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from perf.counted import Cell, Store
from perf.roofline.points import point_lines, points_of
from perf.roofline.work import Point

from .section import NOT_RUN, Picture, Section, of_networks
from .wanted import OTHERS, Wanted

__all__ = ["rooflines"]


def rooflines(wanted: Wanted, store: Store) -> Section:
    """One section: a table and a picture for small images, for large ones, and for the networks
    that do not classify images."""
    parts: list[str | Picture] = []
    glance: list[tuple[str, str, str]] = []
    missing: list[Cell] = []
    numbers: dict[str, list[dict[str, Any]]] = {}
    for name, batches, cells in _groups(wanted):
        missing += [cell for cell in cells if store.get(cell) is None]
        points = points_of(store, cells)
        numbers[name] = [
            asdict(point) | {"limit": point.limit, "share": point.share} for point in points
        ]
        shown = _shown(points)
        glance.append(
            (f"Roofline: of the cycles, the largest bound, `baseline`, {name}", "none",
             of_networks(_percents(shown), "{:.0f} %".format))
        )  # fmt: skip
        if not shown:
            parts.append(f"**{name}**, batch {batches}: {NOT_RUN} (see Figure 17).")
            continue
        parts.append(f"**{name}**, batch {batches}:")
        parts.append("\n".join(point_lines(shown)).rstrip())
        parts.append(
            Picture(
                name=f"roofline_{name.replace(' ', '_')}",
                text=f"Roofline of all networks, {name}",
                draw=partial(_draw, shown, f"Roofline, {name}, batch {batches}"),
            )
        )
    how = (
        "Bounds of a batch: products on the array, depthwise convolutions on the vector engine, "
        "bytes read, bytes written. *Limit* is the largest of them; *of the cycles, the limit* is "
        "how much of the time it explains. *Roof*: multiplications per cycle that array and bus "
        "allow. The rest of the time is products that do not fill the array (few input channels, "
        "edges of tiles), and work of the vector engine that overlaps with no product. Shown are a "
        "batch of `baseline`, and one with predicted gradients of the last variant; "
        "`python -m perf roofline` shows the others."
    )
    return Section(
        key="roofline", title="Roofline: what limits a batch",
        paper="has no roofline; its formulas know an array, and no bus, buffer or vector engine.",
        why=_why(numbers), parts=[how, *parts], glance=glance, missing=missing,
        data={"points": numbers},
    )  # fmt: skip


def _groups(wanted: Wanted) -> Iterator[tuple[str, str, list[Cell]]]:
    """(name, images of a batch, cells)."""
    large = [data for data in wanted.data if data == "imagenet"]
    for data in dict.fromkeys((wanted.first_data, *large)):
        cells = [
            wanted.cell(network, data, name)
            for network in wanted.networks
            for name in wanted.with_baseline
        ]
        yield data, wanted.batches_of(wanted.networks, data), cells
    if wanted.others:
        cells = [
            wanted.other_cell(network, name) for network in OTHERS for name in wanted.with_baseline
        ]
        batches = dict.fromkeys(str(cell.batch) for cell in cells)
        yield "other tasks", " or ".join(batches), cells


def _shown(points: Sequence[Point]) -> list[Point]:
    """Of every network, exact batches of the baseline and predicted ones of the last variant."""
    predicted = {point.network: point for point in points if point.phase == "gp"}
    plain = {point.network: point for point in points if point.variant == "baseline"}
    return [
        found[name]
        for name in dict.fromkeys(point.network for point in points)
        for found in (plain, predicted)
        if name in found
    ]


def _percents(points: Sequence[Point]) -> Mapping[str, float]:
    return {point.network: 100 * point.share for point in points if point.variant == "baseline"}


def _why(numbers: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    limits: dict[str, list[str]] = {}
    for found in numbers.values():
        for point in found:
            names = limits.setdefault(point["limit"], [])
            if point["network"] not in names:
                names.append(point["network"])
    if not limits:
        return "nothing has been counted."
    text = "; ".join(f"{limit}: {', '.join(names)}" for limit, names in limits.items())
    return (
        f"the largest bound, of any batch and variant, by network: {text}. Where it explains "
        "little of the time, layers between products on the vector engine do."
    )


def _draw(points: Sequence[Point], title: str, path: Path) -> None:
    from perf.roofline.picture import plot_roofline

    plot_roofline(points, path, title)
