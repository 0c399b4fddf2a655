"""What was compared, as Markdown."""

from collections.abc import Mapping, Sequence

import paper
from synth.study.tables import table

from .designs import COSTS, Design
from .model import LeftOut
from .skipping import Skipping
from .verdict import Comparison, Efficiency

__all__ = ["comparison_lines", "design_lines", "efficiency_lines", "model_lines", "skipping_lines",
           "verdict_lines"]  # fmt: skip


def design_lines(designs: Sequence[Design]) -> list[str]:
    """What the designs cost."""
    rows = [
        [
            design.name, "synthesised" if design.measured else "columns added",
            *(f"{design.costs[name] / cost.size:,.2f}" for name, cost in COSTS.items()),
        ]
        for design in designs
    ]  # fmt: skip
    headings = [f"{cost.text}, {cost.unit}" for cost in COSTS.values()]
    return table(["design", "costs", *headings], rows, left=2)


def _alike(found: Sequence[Comparison]) -> list[tuple[str, list[Comparison]]]:
    """Costs in words, and the comparisons at these costs: for a variant those with the same rival
    belong together."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in found:
        groups.setdefault((each.variant, each.rival.name if each.rival else ""), []).append(each)
    return [
        (", ".join(dict.fromkeys(COSTS[each.cost].text for each in own)), own)
        for own in groups.values()
    ]


def comparison_lines(found: Sequence[Comparison]) -> list[str]:
    """A row for every network, variant and rival."""
    rows = []
    for network in dict.fromkeys(each.network for each in found):
        for costs, own in _alike([each for each in found if each.network == network]):
            first = own[0]
            rival = first.rival.name if first.rival else "baseline: no step of columns fits"
            speeds = [f"{first.speed[schedule]:.3f}" for schedule in "AB"]
            winners = [first.variant if first.wins(schedule) else "baseline" for schedule in "AB"]
            rows.append([network, first.variant, costs, rival, f"{first.rival_speed:.3f}",
                         *speeds, *winners])  # fmt: skip
    headings = ["network", "variant", "at equal", "rival", "its speed", "variant, A", "variant, B"]
    return table([*headings, "faster, A", "faster, B"], rows, left=4)


def efficiency_lines(found: Sequence[Efficiency]) -> list[str]:
    """Speed for what a design costs, `baseline` is 1."""
    rows = [
        [each.network, each.design.name, f"{each.speed:.3f}",
         *(f"{each.per_cost[name]:.3f}" for name in COSTS)]
        for each in found
    ]  # fmt: skip
    headings = ["per mm² of cells", "per mm² with SRAM", "per LUT", "per joule"]
    return table(["network", "design", "speed", *headings], rows, left=2)


def skipping_lines(found: Sequence[Skipping]) -> list[str]:
    """What backpropagation does in the time of ADA-GP."""
    rows = [
        [each.network, each.variant, f"{each.free:.2f}", f"{each.forward:.2f}"] for each in found
    ]
    headings = ["exact batches, skipping costs nothing", "exact batches, it costs a forward pass"]
    return table(["network", "variant", *headings], rows, left=2)


def model_lines(left_out: Mapping[str, list[LeftOut]]) -> list[str]:
    """How far the model of area is off designs that it has not seen."""
    rows = []
    for flow, errors in left_out.items():
        for resource in dict.fromkeys(each.resource for each in errors):
            own = [each for each in errors if each.resource == resource]
            worst = max(own, key=lambda each: abs(each.error))
            middle = sum(abs(each.error) for each in own) / len(own)
            rows.append([flow, resource, worst.name, str(len(own)), f"{100 * middle:.1f} %",
                         f"{100 * worst.error:+.1f} %"])  # fmt: skip
    headings = ["flow", "resource", "worst of them", "designs left out", "mean error", "its error"]
    return table(headings, rows, left=3)


def verdict_lines(found: Sequence[Comparison]) -> list[str]:
    """Who is the faster one how often, in a sentence for each variant and rival."""
    lines = []
    for costs, own in _alike(found):
        first = own[0]
        each_once = {each.network: each for each in own}.values()
        wins = {s: sum(each.wins(s) for each in each_once) for s in "AB"}
        rival = first.rival.name if first.rival else "baseline, of which not one step more fits,"
        lines.append(
            f"- `{first.variant}` at equal {costs}: faster than {rival} in {wins['A']} of "
            f"{len(each_once)} networks by schedule A, {wins['B']} by schedule B."
        )
    theirs = paper.figures()["same_cost_baseline_percent"]
    for name, words in (("same_fpga_power", "power on an FPGA"), ("same_asic_area", "chip area")):
        gains = theirs[name]["mean_speed_up"].values()
        lines.append(
            f"- Paper: at the {words} of `max`, a baseline has {theirs[name]['more_pes']} % more "
            f"PEs and is {min(gains):.1f} to {max(gains):.1f} % faster."
        )
    return [*lines, ""]
