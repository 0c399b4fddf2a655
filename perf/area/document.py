"""What was compared, as Markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import paper
from synth.study.tables import MISSING, table

from .designs import COSTS, Design
from .model import LeftOut
from .skipping import Skipping
from .verdict import Comparison, Efficiency

__all__ = ["comparison_lines", "design_lines", "efficiency_lines", "model_lines", "paper_lines",
           "skipping_lines", "verdict_lines"]  # fmt: skip


#: Name of a cost -> what speed for it is called.
_PER = {"cells": "per mm² of cells", "chip": "per mm² with SRAM", "lut": "per LUT",
        "power": "per joule"}  # fmt: skip
#: What stands where a rival was not counted, and who is faster then.
_NOT_RUN, _OPEN = "not run", "open"
#: Networks that a verdict names; more of them are a number.
_FEW = 4


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


def _names(designs: Iterable[Design]) -> str:
    return " and ".join(design.name for design in designs)


def _alike(found: Sequence[Comparison]) -> list[tuple[str, list[Comparison]]]:
    """Costs in words, and the comparisons of a network at these costs: for a variant those with the
    same rival, of which the same ones were not counted, belong together."""
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in found:
        rival = each.rival.name if each.rival else ""
        groups.setdefault((each.variant, rival, _names(each.missing)), []).append(each)
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
            rival, speed = _NOT_RUN, _NOT_RUN
            if first.rival_speed is not None:
                rival = first.rival.name if first.rival else "baseline: no step of columns fits"
                speed = f"{first.rival_speed:.3f}"
            speeds = [f"{first.speed[schedule]:.3f}" for schedule in "AB"]
            winners = [_faster(first, schedule) for schedule in "AB"]
            rows.append([network, first.variant, costs, rival, speed, *speeds, *winners,
                         _names(first.missing), first.state])  # fmt: skip
    headings = ["network", "variant", "at equal", "rival", "its speed", "variant, A", "variant, B"]
    headings += ["faster, A", "faster, B", _NOT_RUN, "commits"]
    return table(headings, rows, left=4)


def _faster(own: Comparison, schedule: str) -> str:
    if own.rival_speed is None:
        return _NOT_RUN
    names = {True: own.variant, False: "baseline", None: _OPEN}
    return names[own.wins(schedule)]


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
    """Who is the faster one how often, in a sentence for each variant and cost; costs of which the
    same is true share it."""
    costs: dict[tuple[str, str], list[str]] = {}
    for variant in dict.fromkeys(each.variant for each in found):
        for cost, words in COSTS.items():
            own = [each for each in found if (each.variant, each.cost) == (variant, cost)]
            if own:
                costs.setdefault((variant, _verdict(own)), []).append(words.text)
    lines = [f"- `{variant}` at equal {', '.join(own)}: {text}"
             for (variant, text), own in costs.items()]  # fmt: skip
    return [*lines, ""]


def _verdict(own: Sequence[Comparison]) -> str:
    """Of a variant at a cost, in all networks."""
    known = [each for each in own if each.rival_speed is not None]
    times = Counter(each.rival.name if each.rival else "" for each in known)
    several = len(times) > 1
    names = [name + (f" ({_networks(count)})" if several else "") for name, count in times.items()]
    text = f"the rival is {' or '.join(names)}."
    if not known:
        text = f"the rivals were {_NOT_RUN}."
    elif set(times) == {""}:
        text = "no step of columns fits, and baseline itself is the rival."
    if known:
        wins = {s: sum(each.wins(s) is True for each in known) for s in "AB"}
        text += (
            f" The variant is faster in {wins['A']} of {len(known)} networks by schedule A, in "
            f"{wins['B']} by B."
        )
    lacking: dict[str, list[str]] = {}
    for each in own:
        for rival in each.missing:
            lacking.setdefault(rival.name, []).append(each.network)
    if lacking:
        undecided = [sum(each.wins(s) is None for each in own) for s in "AB"]
        rivals = "; ".join(
            f"{name} in {', '.join(names) if len(names) <= _FEW else _networks(len(names))}"
            for name, names in lacking.items()
        )
        text += f" Incomplete: {_NOT_RUN} was {rivals}; "
        if any(undecided):
            text += (
                f"so it is {_OPEN} in {undecided[0]} of {len(own)} networks by A, in "
                f"{undecided[1]} by B."
            )
        else:
            text += "another baseline is faster than the variant in all of them."
    return text


def _networks(count: int) -> str:
    return "1 network" if count == 1 else f"{count} networks"


def paper_lines() -> list[str]:
    """What the paper says of baselines of the same cost."""
    theirs, lines = paper.figures()["same_cost_baseline_percent"], []
    for name, words in (("same_fpga_power", "power on an FPGA"), ("same_asic_area", "chip area")):
        gains = theirs[name]["mean_speed_up"].values()
        lines.append(
            f"- Paper: at the {words} of `max`, a baseline has {theirs[name]['more_pes']} % more "
            f"PEs and is {min(gains):.1f} to {max(gains):.1f} % faster."
        )
    return [*lines, ""]
