"""The syntheses whose figures come with the project (``synth/results/``)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from cli.build_directory import PROJECT_ROOT
from hw.config import AdaGPConfig
from synth.asic.area import block_of
from synth.study.analysis import metric

__all__ = ["FLOWS", "REPORT", "RESULTS", "Synthesis", "report_designs", "syntheses"]

#: Where they are; the report of all variants.
RESULTS = PROJECT_ROOT / "synth" / "results"
REPORT = RESULTS / "report-paper.json"

#: Flow -> its resources that the model predicts. Block RAM follows from the memories' sizes.
FLOWS = {
    "asic": ("um2",),
    "xc7": ("LUT", "FF", "DSP48E1"),
    "ecp5": ("LUT4EQ", "COMB", "FF", "MULT18X18D"),
}


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """A design that was mapped.

    Members
    -------
    name, flow : of the design, of :data:`FLOWS`
    config : what was mapped
    blocks : block, as :func:`synth.asic.area.block_of` names it -> resource -> amount; empty where
        the design was mapped without its hierarchy
    totals : resource -> amount; "mw" of cells and SRAM, if that was measured
    command, date : that measured it, and when
    """

    name: str
    flow: str
    config: AdaGPConfig
    blocks: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]
    command: str
    date: str


@cache
def report_designs() -> dict[str, dict[str, Any]]:
    """The designs of the synthesis report, as :mod:`synth.study.analysis` takes them."""
    designs: dict[str, dict[str, Any]] = json.loads(REPORT.read_text())["designs"]
    return designs


@cache
def syntheses() -> tuple[Synthesis, ...]:
    """All of them, each design and flow once."""
    found = []
    for name, design in report_designs().items():
        found += [_synthesis(name, flow, design[flow]) for flow in FLOWS if flow in design]
    for path in sorted(RESULTS.glob("*.json")):
        if path != REPORT:
            found.append(read_synthesis(path))
    return tuple(found)


def read_synthesis(path: Path) -> Synthesis:
    """A file that ``python -m synth fpga --json`` or ``asic --json`` wrote.

    Raises
    ------
    ValueError
        for a file of another kind.
    """
    result = json.loads(path.read_text())
    flow = "asic" if "area_um2" in result else result.get("family")
    if flow not in FLOWS:
        raise ValueError(f"{path}: no synthesis for one of {', '.join(FLOWS)}")
    return _synthesis(path.stem, flow, result)


def _synthesis(name, flow, result):
    known = {field.name for field in fields(AdaGPConfig)}
    config = AdaGPConfig(**{key: v for key, v in result["config"].items() if key in known})
    if flow == "asic":
        totals = {"um2": result["area_um2"]["total"]}
        if (power := metric({"asic": result}, "asic_power_total")) is not None:
            totals["mw"] = power
        blocks = {block: {"um2": area} for block, area in result["blocks"].items()}
    else:
        totals = {kind: amount["used"] for kind, amount in result["resources"].items()}
        paths = result["blocks"]
        blocks = {} if set(paths) == {"top"} else _by_block(paths.items(), FLOWS[flow])
    return Synthesis(
        name=name, flow=flow, config=config, blocks=blocks, totals=totals,
        command=result.get("command", ""), date=result["date"],
    )  # fmt: skip


def _by_block(
    paths: Iterable[tuple[str, Mapping[str, float]]], resources: Iterable[str]
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for path, amounts in paths:
        own = found.setdefault(block_of(path), dict.fromkeys(resources, 0))
        for resource in own:
            own[resource] += amounts.get(resource, 0)
    return found
