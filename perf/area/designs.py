"""The designs that are compared: the variants, and baselines with as many more columns as each of
them costs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hw.config import AdaGPConfig
from perf.counted import Cell
from synth.study.analysis import equal_baseline, marginal_per_pe, metric

__all__ = ["COSTS", "VARIANTS", "Cost", "Design", "bigger_baseline", "designs_of"]

#: Variants with a predictor.
VARIANTS = ("low", "efficient", "max")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What may be equal: ``metric`` of :data:`synth.study.analysis.METRICS`, in words, and what one
    of ``unit`` is in the metric's units."""

    metric: str
    text: str
    unit: str
    size: float


#: Name -> cost.
COSTS = {
    "cells": Cost(metric="asic_logic", text="standard cells", unit="mm²", size=1e6),
    "chip": Cost(metric="asic_total", text="standard cells and SRAM", unit="mm²", size=1e6),
    "lut": Cost(metric="xc7_lut", text="7-series LUT", unit="kLUT", size=1e3),
    "power": Cost(
        metric="asic_power_total", text="power of cells and SRAM at 400 MHz", unit="mW", size=1
    ),
}


@dataclass(frozen=True, kw_only=True)
class Design:
    """A machine of preset ``paper``.

    Members
    -------
    name : for people
    variant, columns : of the main array
    settings : beyond the preset, as in "columns=18"
    costs : name of :data:`COSTS` -> amount in the metric's unit
    measured : whether it was synthesised; otherwise its costs are the baseline's and a column's
        for each more
    """

    name: str
    variant: str
    columns: int
    settings: tuple[str, ...] = ()
    costs: Mapping[str, float]
    measured: bool = True

    def cell(self, batch: Cell) -> Cell:
        """A batch on this design."""
        method = "bp" if self.variant == "baseline" else "adagp"
        return replace(batch, variant=self.variant, method=method, settings=self.settings)


def designs_of(report: Mapping[str, Any]) -> dict[str, Design]:
    """The four variants by name, with the costs that the synthesis report measured."""
    return {
        name: Design(
            name=name, variant=name, columns=report[name]["arrays"][0][1],
            costs={cost: _measured(report[name], COSTS[cost].metric) for cost in COSTS},
        )
        for name in ("baseline", *VARIANTS)
    }  # fmt: skip


def _measured(design: Mapping[str, Any], name: str) -> float:
    found = metric(dict(design), name)
    if found is None:
        raise ValueError(f"the synthesis report has no {name} of {design['options']}")
    return found


def bigger_baseline(report: Mapping[str, Any], variant: str, cost: str) -> Design | None:
    """``baseline`` with the most columns that cost no more than ``variant``.

    Columns are added as the report's probe has them, in steps of the width of the
    post-processing, so nothing else grows. None where not one step fits.
    """
    base = report["baseline"]
    found = equal_baseline(dict(report), COSTS[cost].metric)[variant]
    rows, columns = base["arrays"][0]
    lanes = AdaGPConfig(**base["configuration"]).cores[0].post_lanes
    if found is None or found["columns"] < columns + lanes:
        return None
    most = columns + (found["columns"] - columns) // lanes * lanes
    return _baseline(report, rows, most, lanes)


def _baseline(report, rows, columns, lanes):
    base = designs_of(report)["baseline"]
    more = rows * (columns - base.columns)
    costs = {
        name: base.costs[name] + more * marginal_per_pe(dict(report), COSTS[name].metric)
        for name in COSTS
    }
    return replace(
        base, name=f"baseline {rows} × {columns}", columns=columns, costs=costs, measured=False,
        settings=(f"columns={columns}", f"post_lanes={lanes}"),
    )  # fmt: skip
