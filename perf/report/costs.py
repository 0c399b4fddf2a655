"""Figure 21, energy, and baselines of the same cost: what the counts are worth."""

from collections.abc import Mapping, Sequence
from math import prod
from statistics import mean
from typing import Any

import paper
from perf.analytic.evaluation import published
from perf.area.designs import COSTS, designs_of
from perf.area.document import comparison_lines, verdict_lines
from perf.area.measured import report_designs
from perf.area.verdict import Comparison, cells_of, compare
from perf.counted import Cell, Store
from perf.energy.batches import epoch_share, network_energy
from perf.energy.command import MEMORY
from perf.energy.prices import DRAM_PJ_PER_BIT, prices_of

from .section import NOT_RUN, Section, Table, of_networks, percent
from .wanted import EPOCHS, Wanted

__all__ = ["figure_21", "same_cost"]


def _cell(wanted: Wanted, network: str, variant: str) -> Cell:
    return wanted.cell(network, wanted.first_data, variant)


def figure_21(wanted: Wanted, store: Store) -> list[Section]:
    """One section, none for another preset than that of the paper."""
    if not wanted.has_costs:
        return []
    theirs = paper.figures()["figure_21_energy"]["mean_reduction_percent"]
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    rows: list[list[str]] = []
    for network in wanted.networks:
        cells = {name: _cell(wanted, network, name) for name in wanted.with_baseline}
        counts = {name: store.get(cell) for name, cell in cells.items()}
        found = {
            name: network_energy(count, prices_of(name), DRAM_PJ_PER_BIT)
            for name, count in counts.items()
            if count is not None and count.batches
        }
        for variant in found:
            if variant == "baseline" or "baseline" not in found:
                continue
            own, base = found[variant], found["baseline"]
            steady, whole = epoch_share(None), epoch_share(EPOCHS)
            change = {
                "DRAM bytes, B": own.mean_bytes(steady) / base.mean_bytes(steady),
                "memories, B": own.mean(steady, MEMORY) / base.mean(steady, MEMORY),
                "all, B": own.mean(steady) / base.mean(steady),
                "all, A": own.mean(whole) / base.mean(whole),
            }
            percents = {name: 100 * (value - 1) for name, value in change.items()}
            numbers.setdefault(network, {})[variant] = percents
            rows.append([network, f"`{variant}`", *map(percent, percents.values())])
    known = {name: own["max"]["memories, B"] for name, own in numbers.items() if "max" in own}
    text = of_networks(known, percent)
    if known:
        text += f" (batch {wanted.batches_of(known, wanted.first_data)})"
    headings = ["network", "variant", "DRAM bytes, B", "memories, B", "all, B", "all, A"]
    table = Table(
        headings=headings, rows=rows, left=2,
        caption=f"Beyond `baseline`, DRAM at {DRAM_PJ_PER_BIT:g} pJ per bit, SRAM by CACTI, logic "
        f"by its synthesis; batch {wanted.batches_of(wanted.networks, wanted.first_data)}:",
    )  # fmt: skip
    return [
        Section(
            key="figure-21", title="Figure 21: energy",
            paper=f"accesses of memory take on the average {theirs} % less energy; nothing else is "
            "counted.",
            why="the paper counts activations and weights. Here predictor, its updates and "
            "reorganised gradients move through memory as well, and weights, momentum and "
            "predictor weigh more than activations where a batch has few images. More of it, other "
            "prices and causes: [evaluation_cost.md](evaluation_cost.md#energy).",
            parts=[table if rows else f"Energy of every network: {NOT_RUN} (see Figure 17)."],
            data={"beyond_baseline_percent": numbers},
            glance=[("Figure 21: energy of memories, `max`", f"−{theirs} %", text)],
        )
    ]  # fmt: skip


#: Costs -> the paper's, for which it says what a bigger baseline gains, in words.
_THEIRS = {
    "cells": ("same_asic_area", "ASIC area"), "chip": ("same_asic_area", "ASIC area"),
    "power": ("same_fpga_power", "FPGA power"),
}  # fmt: skip


def same_cost(
    wanted: Wanted, store: Store, report: Mapping[str, Any] | None = None
) -> list[Section]:
    """One section, none for another preset than that of the paper."""
    if not wanted.has_costs:
        return []
    designs = report_designs() if report is None else report
    variants = wanted.with_baseline[1:]
    batches = [_cell(wanted, network, "baseline") for network in wanted.networks]
    compared = [
        each
        for batch in batches
        for each in compare(designs, batch, store.get)
        if each.variant in variants
    ]
    missing = [
        cell
        for batch in batches
        for cell in cells_of(designs, batch, variants)
        if store.get(cell) is None
    ]
    lines = [*verdict_lines(compared), *comparison_lines(compared)] if compared else [
        f"Baselines of the same cost: {NOT_RUN}."
    ]  # fmt: skip
    wins = {cost: [each for each in compared if each.cost == cost] for cost in COSTS}
    return [
        Section(
            key="same-cost", title="A baseline of the same cost",
            paper=_said(), why=_why_same_cost(designs),
            parts=["\n".join(lines).strip()], missing=missing,
            data={
                "comparisons": [
                    {"network": each.network, "variant": each.variant, "cost": cost,
                     "rival": each.rival.name if each.rival else
                     NOT_RUN if each.rival_speed is None else "baseline",
                     "rival_speed": each.rival_speed, "speed": dict(each.speed),
                     "not_run": [rival.name for rival in each.missing], "commits": each.state}
                    for cost, own in wins.items() for each in own
                ]
            },
            glance=[_glance(cost, [each for each in own if each.variant == "max"])
                    for cost, own in wins.items() if "max" in variants],
        )
    ]  # fmt: skip


def _gains(name: str) -> tuple[int, list[float]]:
    """More PEs of the paper's bigger baseline, in per cent, and what they gain, by data set."""
    entry = paper.figures()["same_cost_baseline_percent"][name]
    return entry["more_pes"], list(entry["mean_speed_up"].values())


def _of_max() -> str:
    """What `max` gains in the paper, by data set."""
    found = [100 * (value - 1) for value in published("weight-stationary")["mean"].values()]
    return f"{min(found):.0f} to {max(found):.0f} %"


def _said() -> str:
    parts = []
    for name, words in dict.fromkeys(_THEIRS.values()):
        more, gains = _gains(name)
        parts.append(
            f"at the {words} of `max`, {more} % more PEs gain {min(gains):.1f} to {max(gains):.1f} "
            "% on the average"
        )
    return f"{'; '.join(parts)}. `max` itself gains {_of_max()}."


def _why_same_cost(designs: Mapping[str, Any]) -> str:
    costs = {name: own.costs["cells"] for name, own in designs_of(designs).items()}
    theirs = paper.figures()["overheads_percent"]["asic_area"]["max"]
    return (
        f"{prod(designs['max']['arrays'][1])} PEs and what feeds them cost "
        f"{100 * (costs['max'] / costs['baseline'] - 1):.0f} % of the logic here and not {theirs} "
        "%, so the baseline of the same cost has far more PEs than the paper's. Costs, efficiency "
        "and equal time with skipping: [evaluation_cost.md](evaluation_cost.md)."
    )


def _glance(cost: str, own: Sequence[Comparison]) -> tuple[str, str, str]:
    """Of `max` at a cost: who is the faster one."""
    theirs = "none"
    if cost in _THEIRS:
        name, words = _THEIRS[cost]
        _, gains = _gains(name)
        theirs = (
            f"{words}: baseline gains {min(gains):.1f} to {max(gains):.1f} %, `max` {_of_max()}"
        )
    known = [each for each in own if each.rival_speed is not None]
    text = NOT_RUN
    if known:
        rival = mean(each.rival_speed or 0 for each in known)
        wins = sum(each.wins("B") is True for each in known)
        text = (
            f"baseline {rival:.2f}, `max` {mean(each.speed['B'] for each in known):.2f} (mean of "
            f"{len(known)}); `max` is faster in {wins} of {len(own)}"
        )
        if undecided := sum(each.wins("B") is None for each in own):
            text += f", open in {undecided}"
        if incomplete := sum(bool(each.missing) for each in own):
            text += f"; a rival {NOT_RUN} in {incomplete}"
    return f"Baseline of the same {COSTS[cost].text}, and `max` (B)", theirs, text
