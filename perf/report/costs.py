"""Figure 21, energy, and baselines of the same cost: what the counts are worth."""

from collections.abc import Mapping
from typing import Any

import paper
from hw.config.selection import DEFAULT_PRESET
from perf.area.designs import COSTS
from perf.area.document import comparison_lines, verdict_lines
from perf.area.measured import report_designs
from perf.area.verdict import cells_of, compare
from perf.counted import Cell, Store
from perf.energy.batches import epoch_share, network_energy
from perf.energy.command import MEMORY
from perf.energy.prices import DRAM_PJ_PER_BIT, prices_of

from .section import NOT_RUN, Section, Table, of_networks
from .wanted import EPOCHS, Wanted

__all__ = ["figure_21", "same_cost"]


def _cell(wanted: Wanted, network: str, variant: str) -> Cell:
    return wanted.cell(network, wanted.first_data, variant)


def _is_paper(wanted: Wanted) -> bool:
    """Energy and area are known of this preset only."""
    return wanted.preset == DEFAULT_PRESET and not wanted.settings


def figure_21(wanted: Wanted, store: Store) -> list[Section]:
    """One section, none for another preset than that of the paper."""
    if not _is_paper(wanted):
        return []
    mean = paper.figures()["figure_21_energy"]["mean_reduction_percent"]
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
            rows.append([network, f"`{variant}`", *(f"{p:+.1f} %" for p in percents.values())])
    known = {name: own["max"]["memories, B"] for name, own in numbers.items() if "max" in own}
    text = of_networks(known, "{:+.1f} %")
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
            paper=f"accesses of memory take on the average {mean} % less energy; nothing else is "
            "counted.",
            why="the paper counts activations and weights. Here predictor, its updates and "
            "reorganised gradients move through memory as well, and weights, momentum and "
            "predictor weigh more than activations where a batch has few images. More of it, other "
            "prices and causes: [evaluation_cost.md](evaluation_cost.md#energy).",
            parts=[table if rows else f"Energy of every network: {NOT_RUN} (see Figure 17)."],
            data={"beyond_baseline_percent": numbers},
            glance=[("Figure 21: energy of memories, `max`", f"−{mean} %", text)],
        )
    ]  # fmt: skip


def same_cost(
    wanted: Wanted, store: Store, report: Mapping[str, Any] | None = None
) -> list[Section]:
    """One section, none for another preset than that of the paper."""
    if not _is_paper(wanted):
        return []
    designs = report_designs() if report is None else report
    batches = [_cell(wanted, network, "baseline") for network in wanted.networks]
    compared = [each for batch in batches for each in compare(designs, batch, store.get)]
    missing = [
        cell for batch in batches for cell in cells_of(designs, batch) if store.get(cell) is None
    ]
    theirs = paper.figures()["same_cost_baseline_percent"]
    said = "; ".join(
        f"{entry['more_pes']} % more PEs at the {name.removeprefix('same_').replace('_', ' ')} of "
        f"`max` gain {min(entry['mean_speed_up'].values())} to "
        f"{max(entry['mean_speed_up'].values())} %"
        for name, entry in theirs.items()
    )
    lines = [*verdict_lines(compared), *comparison_lines(compared)] if compared else [
        f"Baselines of the same cost: {NOT_RUN}."
    ]  # fmt: skip
    wins = {cost: [each for each in compared if each.cost == cost] for cost in COSTS}
    return [
        Section(
            key="same-cost", title="A baseline of the same cost",
            paper=f"{said}, and `max` itself about 46 %.",
            why="80 PEs and what feeds them cost 54 % of the logic here and not 8.3 %, so the "
            "baseline of the same cost has far more PEs than the paper's. Costs, efficiency and "
            "equal time with skipping: [evaluation_cost.md](evaluation_cost.md).",
            parts=["\n".join(lines)], missing=missing,
            data={
                "comparisons": [
                    {"network": each.network, "variant": each.variant, "cost": cost,
                     "rival": each.rival.name if each.rival else "baseline",
                     "rival_speed": each.rival_speed, "speed": dict(each.speed)}
                    for cost, own in wins.items() for each in own
                ]
            },
        )
    ]  # fmt: skip
