"""The designs that are compared: the variants, and baselines with as many more columns as each of
them costs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from compiler.networks.registry import usual_method
from hw.config import AdaGPConfig
from perf.counted import Cell
from synth.study.analysis import equal_baseline, marginal_per_pe, metric

from .model import fitted

__all__ = [
    "COSTS",
    "ESTIMATED",
    "VARIANTS",
    "Cost",
    "Design",
    "bigger_baseline",
    "designs_of",
    "wider_baseline",
]

#: Variants with a predictor.
VARIANTS = ("low", "efficient", "max")


#: The source of costs that the model of area gives.
ESTIMATED = "model of area"


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
    costs : name of :data:`COSTS` -> amount in the metric's unit; what is not known is missing
    source : how its costs are known
    """

    name: str
    variant: str
    columns: int
    settings: tuple[str, ...] = ()
    costs: Mapping[str, float]
    source: str = "synthesised"

    def cell(self, batch: Cell) -> Cell:
        """A batch on this design."""
        method = usual_method(self.variant)
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


def wider_baseline(report: Mapping[str, Any], variant: str, cost: str) -> Design | None:
    """``baseline`` with twice the lanes of vector engine and post-processing, and the most columns
    that cost no more than ``variant`` by the model of area. None where it has not more columns, and
    for power, of which there is no model."""
    base, limit = designs_of(report)["baseline"], designs_of(report)[variant].costs[cost]
    config = AdaGPConfig(**report["baseline"]["configuration"])
    lanes = 2 * config.cores[0].post_lanes
    found = None
    for columns in range(lanes, config.rows * config.rows, lanes):
        design = _wide(report, base, config, columns, lanes)
        if cost not in design.costs or design.costs[cost] > limit:
            break
        found = design
    return found if found is not None and found.columns > base.columns else None


def _wide(report, base, config, columns, lanes):
    own = replace(config, columns=columns, post_lanes=lanes)
    # What the model is off the baseline itself is not the wider one's fault.
    cells, lut = (
        base.costs[name] + fitted(flow).estimate(own)[resource]
        - fitted(flow).estimate(config)[resource]
        for name, flow, resource in (("cells", "asic", "um2"), ("lut", "xc7", "LUT"))
    )  # fmt: skip
    memory = marginal_per_pe(dict(report), "asic_memory") or 0.0
    sram = base.costs["chip"] - base.costs["cells"]
    sram += memory * config.rows * (columns - base.columns)
    return replace(
        base, name=f"baseline {config.rows} × {columns}, {lanes} lanes", columns=columns,
        costs={"cells": cells, "chip": cells + sram, "lut": lut}, source=ESTIMATED,
        settings=(f"columns={columns}", f"post_lanes={lanes}"),
    )  # fmt: skip


def _baseline(report, rows, columns, lanes):
    base = designs_of(report)["baseline"]
    more = rows * (columns - base.columns)
    costs = {
        name: base.costs[name] + more * marginal_per_pe(dict(report), COSTS[name].metric)
        for name in COSTS
    }
    return replace(
        base, name=f"baseline {rows} × {columns}", columns=columns, costs=costs,
        source="columns added",
        settings=(f"columns={columns}", f"post_lanes={lanes}"),
    )  # fmt: skip
