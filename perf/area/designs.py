"""The designs that are compared: the variants, and baselines with as many more columns as each of
them costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from compiler.networks.registry import usual_method
from hw.config import AdaGPConfig
from perf.counted import Cell
from synth.study.analysis import marginal_per_pe, metric

from .measured import syntheses
from .model import fitted

__all__ = [
    "COSTS",
    "ESTIMATED",
    "SYNTHESISED",
    "VARIANTS",
    "Cost",
    "Design",
    "bigger_baseline",
    "designs_of",
    "wider_baseline",
]

#: Variants with a predictor.
VARIANTS = ("low", "efficient", "max")


#: The sources of costs.
ESTIMATED, SYNTHESISED = "model of area", "synthesised"


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
    variant, columns, lanes : of the main array, and of vector engine and post-processing
    settings : beyond the preset, as in "columns=18"
    costs : name of :data:`COSTS` -> amount in the metric's unit; what is not known is missing
    source : how its costs are known
    """

    name: str
    variant: str
    columns: int
    lanes: int
    settings: tuple[str, ...] = ()
    costs: Mapping[str, float]
    source: str = SYNTHESISED

    def cell(self, batch: Cell) -> Cell:
        """A batch on this design."""
        method = usual_method(self.variant)
        return replace(batch, variant=self.variant, method=method, settings=self.settings)


def designs_of(report: Mapping[str, Any]) -> dict[str, Design]:
    """The four variants by name, with the costs that the synthesis report measured."""
    return {
        name: Design(
            name=name, variant=name, columns=report[name]["arrays"][0][1],
            lanes=AdaGPConfig(**report[name]["configuration"]).cores[0].post_lanes,
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

    Columns are added in steps of the width of the post-processing, so nothing else grows; what a
    column costs is what the report's probe says, where such a baseline has not been synthesised.
    None where not one step fits.
    """
    base = designs_of(report)["baseline"]
    config = AdaGPConfig(**report["baseline"]["configuration"])
    column = {name: _per_column(report, base, config, name) for name in ("cells", "lut", "power")}
    wider = (
        _baseline(report, base, replace(config, columns=columns, post_lanes=base.lanes), column)
        for columns in range(base.columns + base.lanes, config.rows * config.rows, base.lanes)
    )
    return _largest(wider, cost, designs_of(report)[variant].costs[cost])


def wider_baseline(report: Mapping[str, Any], variant: str, cost: str) -> Design | None:
    """``baseline`` with twice the lanes of vector engine and post-processing, and the most columns
    that cost no more than ``variant``, by the model of area where such a baseline has not been
    synthesised; for power, of which there is no model, of those that have. None where it has not
    more columns."""
    base = designs_of(report)["baseline"]
    config = AdaGPConfig(**report["baseline"]["configuration"])
    lanes = 2 * base.lanes
    wider = (
        _wide(report, base, config, replace(config, columns=columns, post_lanes=lanes))
        for columns in range(lanes, config.rows * config.rows, lanes)
    )
    found = _largest(wider, cost, designs_of(report)[variant].costs[cost])
    return found if found is not None and found.columns > base.columns else None


def _largest(wider: Iterable[Design], cost: str, limit: float) -> Design | None:
    """The last design, of such that cost more and more, that is within the limit."""
    found = None
    for design in wider:
        if cost in design.costs:
            if design.costs[cost] > limit:
                break
            found = design
    return found


def _wide(report, base, config, own):
    # What the model is off the baseline itself is not the wider one's fault.
    cells, lut = (
        base.costs[name] + fitted(flow).estimate(own)[resource]
        - fitted(flow).estimate(config)[resource]
        for name, flow, resource in (("cells", "asic", "um2"), ("lut", "xc7", "LUT"))
    )  # fmt: skip
    name = f"baseline {own.rows} × {own.columns}, {own.post_lanes} lanes"
    return _priced(report, base, own, name, {"cells": cells, "lut": lut}, ESTIMATED)


def _baseline(report, base, own, column):
    more = own.columns - base.columns
    costs = {name: base.costs[name] + more * each for name, each in column.items()}
    name = f"baseline {own.rows} × {own.columns}"
    return _priced(report, base, own, name, costs, "columns added")


def _per_column(report, base, config, cost):
    """What a column costs: on the way to the widest of such that was synthesised, or else by the
    report's probe."""
    known = {
        each.config.columns: _synthesised(each.config)[cost]
        for each in syntheses()
        if each.config.columns > base.columns and each.config.post_lanes == base.lanes
        and each.config == replace(config, columns=each.config.columns, post_lanes=base.lanes)
        and cost in _synthesised(each.config)
    }  # fmt: skip
    if not known:
        return config.rows * marginal_per_pe(dict(report), COSTS[cost].metric)
    return (known[max(known)] - base.costs[cost]) / (max(known) - base.columns)


def _priced(report, base, own, name, costs, source):
    """A baseline with these costs, or those of its synthesis if there is one, and its SRAM."""
    known = _synthesised(own)
    costs = costs | known
    memory = marginal_per_pe(dict(report), "asic_memory") or 0.0
    sram = base.costs["chip"] - base.costs["cells"]
    sram += memory * own.rows * (own.columns - base.columns)
    return replace(
        base, name=name, columns=own.columns, lanes=own.post_lanes,
        costs=costs | {"chip": costs["cells"] + sram},
        source=SYNTHESISED if "cells" in known else source,
        settings=(f"columns={own.columns}", f"post_lanes={own.post_lanes}"),
    )  # fmt: skip


@cache
def _synthesised(config: AdaGPConfig) -> Mapping[str, float]:
    """Name of a cost -> what a synthesis of exactly this machine has measured."""
    found = {}
    for each in syntheses():
        if each.config == config:
            for name, kind in (("cells", "um2"), ("power", "mw"), ("lut", "LUT")):
                if kind in each.totals:
                    found[name] = each.totals[kind]
    return found
