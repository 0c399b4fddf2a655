"""Columns of a table with speed-ups of schedules B and A, variant by variant."""

from collections.abc import Sequence
from statistics import mean

from .section import ratio
from .wanted import Speed

__all__ = ["columns", "headings", "means"]

_SCHEDULES = "BA"


def headings(variants: Sequence[str]) -> list[str]:
    """Of all columns."""
    return [f"`{name}` {schedule}" for name in variants for schedule in _SCHEDULES]


def columns(found: Sequence[Speed | None], unknown: Sequence[str]) -> list[str]:
    """Of a network; ``unknown`` says what stands where a variant's speed-up is not known."""
    return [
        ratio(own.speed_up(schedule)) if own is not None else text
        for own, text in zip(found, unknown, strict=True)
        for schedule in _SCHEDULES
    ]


def means(networks: Sequence[Sequence[Speed | None]]) -> list[str]:
    """Of each variant over all networks where it is known, and of how many these are."""
    row = []
    for found in zip(*networks, strict=True):
        known = [own for own in found if own is not None]
        for schedule in _SCHEDULES:
            speeds = [own.speed_up(schedule) for own in known]
            row.append(f"{ratio(mean(speeds))} ({len(speeds)})" if speeds else "")
    return row
