"""What was compared, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from synth.study.tables import table

from .designs import COSTS, Design
from .model import AreaModel, LeftOut
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


def comparison_lines(found: Sequence[Comparison]) -> list[str]:
    """A row for every network, variant and cost."""
    rows = []
    for each in found:
        rival = each.rival.name if each.rival else "baseline, not one step more"
        speeds = [f"{each.speed[schedule]:.3f}" for schedule in "AB"]
        winners = [each.variant if each.wins(schedule) else "baseline" for schedule in "AB"]
        rows.append([each.network, each.variant, COSTS[each.cost].text, rival,
                     f"{each.rival_speed:.3f}", *speeds, *winners])  # fmt: skip
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


def model_lines(
    models: Mapping[str, AreaModel], left_out: Mapping[str, list[LeftOut]]
) -> list[str]:
    """How far the model of area is off designs that it has not seen."""
    rows = [
        [flow, each.name, each.resource, f"{each.measured:,.0f}", f"{each.predicted:,.0f}",
         f"{100 * each.error:+.1f} %"]
        for flow, errors in left_out.items() for each in errors
    ]  # fmt: skip
    lines = table(["flow", "design", "resource", "measured", "predicted", "error"], rows, left=3)
    for flow, model in models.items():
        for resource in model.resources:
            middle, worst = model.error(resource, left_out[flow])
            lines.append(f"- {flow}, {resource}: {100 * middle:.1f} % on the average, "
                         f"{100 * worst:.1f} % at most")  # fmt: skip
    return [*lines, ""]


def verdict_lines(found: Sequence[Comparison]) -> list[str]:
    """Who is the faster one how often, in a sentence for each variant and cost."""
    lines = []
    for variant in dict.fromkeys(each.variant for each in found):
        for cost in dict.fromkeys(each.cost for each in found):
            own = [each for each in found if (each.variant, each.cost) == (variant, cost)]
            if not own:
                continue
            wins: dict[str, Any] = {s: sum(each.wins(s) for each in own) for s in "AB"}
            rival = own[0].rival.name if own[0].rival else "baseline"
            lines.append(
                f"- `{variant}` at equal {COSTS[cost].text}: faster than {rival} in "
                f"{wins['A']} of {len(own)} networks by schedule A, {wins['B']} by schedule B."
            )
    return [*lines, ""]
