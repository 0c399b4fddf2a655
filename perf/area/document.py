"""What was compared, as Markdown."""

from collections.abc import Mapping, Sequence

import paper
from synth.study.tables import MISSING, table

from .designs import COSTS, Design
from .model import LeftOut
from .skipping import Skipping
from .verdict import Comparison, Efficiency

__all__ = ["comparison_lines", "design_lines", "efficiency_lines", "model_lines", "skipping_lines",
           "verdict_lines"]  # fmt: skip


#: Name of a cost -> what speed for it is called.
_PER = {"cells": "per mm² of cells", "chip": "per mm² with SRAM", "lut": "per LUT",
        "power": "per joule"}  # fmt: skip


def design_lines(designs: Sequence[Design]) -> list[str]:
    """What the designs cost."""
    rows = [
        [
            design.name, design.source,
            *(f"{design.costs[name] / cost.size:,.2f}" if name in design.costs else MISSING
              for name, cost in COSTS.items()),
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
         *(f"{each.per_cost[name]:.3f}" if name in each.per_cost else MISSING for name in COSTS)]
        for each in found
    ]  # fmt: skip
    lines = table(["network", "design", "speed", *_PER.values()], rows, left=2)
    for network in dict.fromkeys(each.network for each in found):
        own = [each for each in found if each.network == network]
        fastest = []
        for name, words in _PER.items():
            most, best = max(
                (each.per_cost[name], each.design.name) for each in own if name in each.per_cost
            )
            fastest.append(f"{words} {best} ({most:.3f})")
        lines.append(f"- {network}, the fastest: {', '.join(fastest)}")
    return [*lines, ""]


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
        if first.rival is None:
            rival = "no step of columns fits, and baseline itself is the rival"
        else:
            rival = f"the rival is {first.rival.name}"
        lines.append(
            f"- `{first.variant}` at equal {costs}: {rival}. The variant is faster in {wins['A']} "
            f"of {len(each_once)} networks by schedule A, in {wins['B']} by B."
        )
    theirs = paper.figures()["same_cost_baseline_percent"]
    for name, words in (("same_fpga_power", "power on an FPGA"), ("same_asic_area", "chip area")):
        gains = theirs[name]["mean_speed_up"].values()
        lines.append(
            f"- Paper: at the {words} of `max`, a baseline has {theirs[name]['more_pes']} % more "
            f"PEs and is {min(gains):.1f} to {max(gains):.1f} % faster."
        )
    return [*lines, ""]
