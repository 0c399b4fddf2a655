"""Who is faster at the same cost: a variant with predictions, or a bigger baseline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from golden.prediction.schedule import ScheduleConfig
from perf.analytic.training import Batches
from perf.counted import Cell, Count

from .designs import COSTS, VARIANTS, Design, bigger_baseline, designs_of, wider_baseline

__all__ = ["EPOCHS", "Comparison", "Efficiency", "cells_of", "compare", "efficiencies", "speeds"]

#: Of schedule A, the paper's whole training.
EPOCHS = 90


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A variant beside the baseline of its cost.

    Members
    -------
    network, variant, cost : which; ``cost`` of :data:`~perf.area.designs.COSTS`
    rival : the bigger baseline, the faster one of that with more columns alone and that with more
        lanes, too, of those that were counted; None where there is none: the variant costs less
        than one more step of columns, and the baseline itself is the rival, or nothing was counted
    speed : of the variant over ``baseline`` by schedule, "A" and "B"
    rival_speed : of the rival over ``baseline``, with backpropagation alone; None if none was
        counted
    missing : rivals that were not counted
    state : of the project, by which all this was counted, each once
    """

    network: str
    variant: str
    cost: str
    rival: Design | None
    speed: Mapping[str, float]
    rival_speed: float | None
    missing: Sequence[Design] = ()
    state: str = ""

    def wins(self, schedule: str) -> bool | None:
        """Whether the variant is the faster one; None as long as a rival that was not counted may
        be faster than it."""
        if self.rival_speed is not None and self.speed[schedule] <= self.rival_speed:
            return False
        return None if self.missing else True


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Of a design for a network: speed over ``baseline``, and speed for what it costs over
    ``baseline``'s, by name of the cost; with ADA-GP by schedule B."""

    network: str
    design: Design
    speed: float
    per_cost: Mapping[str, float]


def cells_of(
    report: Mapping[str, Any], batch: Cell, variants: Sequence[str] = VARIANTS
) -> list[Cell]:
    """What has to be counted for a batch of a network, to compare ``variants``."""
    return [design.cell(batch) for design in _all_designs(report, variants).values()]


def _all_designs(report, variants=VARIANTS):
    found = {
        name: design
        for name, design in designs_of(report).items()
        if name in ("baseline", *variants)
    }
    for variant in [name for name in VARIANTS if name in variants]:
        for cost in COSTS:
            for rival in _rivals(report, variant, cost):
                found.setdefault(rival.name, rival)
    return found


def _rivals(report, variant, cost):
    rivals = (make(report, variant, cost) for make in (bigger_baseline, wider_baseline))
    return [rival for rival in rivals if rival is not None]


def speeds(baseline: Count, own: Count) -> dict[str, float]:
    """Speed-ups by schedule of batches with predictions over the baseline's."""
    batches = Batches(plain=baseline.bp.cycles, learning=own.bp.cycles, predicted=own.gp.cycles)
    return {"A": batches.training(ScheduleConfig(), EPOCHS), "B": batches.steady}


def compare(
    report: Mapping[str, Any], batch: Cell, get: Callable[[Cell], Count | None]
) -> list[Comparison]:
    """Every variant at every cost; what has no program is left out, and so is a variant that was
    not counted, and all of a network whose baseline was not."""
    designs = designs_of(report)

    def counted(design: Design) -> Count | None:
        found = get(design.cell(batch))
        return found if found is not None and found.reason is None else None

    base, found = counted(designs["baseline"]), []
    if base is None:
        return []
    for variant in VARIANTS:
        own = counted(designs[variant])
        for cost in COSTS:
            if own is None:
                continue
            rivals = _rivals(report, variant, cost)
            missing = [rival for rival in rivals if get(rival.cell(batch)) is None]
            others = [(rival, count) for rival in rivals if (count := counted(rival)) is not None]
            if rivals and not others and not missing:
                continue
            rival, other = min(others, key=lambda each: each[1].bp.cycles, default=(None, None))
            if not rivals:
                other = base
            counts = [base, own, *(count for _, count in others)]
            found.append(
                Comparison(
                    network=batch.network, variant=variant, cost=cost, rival=rival,
                    speed=speeds(base, own), missing=missing,
                    rival_speed=None if other is None else base.bp.cycles / other.bp.cycles,
                    state=", ".join(dict.fromkeys(each.state for each in counts if each.state)),
                )
            )  # fmt: skip
    return found


def efficiencies(
    report: Mapping[str, Any], batch: Cell, get: Callable[[Cell], Count | None]
) -> list[Efficiency]:
    """All designs of which there are counts; ``baseline`` is 1."""
    found: list[Efficiency] = []
    designs = _all_designs(report)
    base = get(designs["baseline"].cell(batch))
    if base is None or base.reason is not None:
        return found
    for design in designs.values():
        own = get(design.cell(batch))
        if own is None or own.reason is not None:
            continue
        if design.variant == "baseline":
            speed = base.bp.cycles / own.bp.cycles
        else:
            speed = speeds(base, own)["B"]
        costs = {
            name: speed * designs["baseline"].costs[name] / cost
            for name, cost in design.costs.items()
        }
        found.append(Efficiency(network=batch.network, design=design, speed=speed, per_cost=costs))
    return found
