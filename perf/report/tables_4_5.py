"""Tables 4 and 5: area and power, from what synthesis has left in a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paper
from cli.build_directory import PROJECT_ROOT

from .section import Section, Table, percent

__all__ = ["RESULTS", "tables_4_5"]

#: What ``python -m synth report`` has measured.
RESULTS = PROJECT_ROOT / "synth" / "results" / "report-paper.json"

_VARIANTS = ("low", "efficient", "max")
#: Resource of 7-series -> column of Table 4 (a).
_RESOURCES = {
    "LUT": "CLB LUTs", "FF": "CLB registers", "RAMB36": "RAMB36", "RAMB18": "RAMB18",
    "DSP48E1": "DSP48E1",
}  # fmt: skip


def tables_4_5(path: Path = RESULTS) -> list[Section]:
    """Two sections.

    Raises
    ------
    ValueError
        for a file that is not of ``python -m synth report``.
    """
    try:
        found = json.loads(path.read_text())
        designs, beyond = found["designs"], found["analysis"]["overhead_percent"]
        return [_fpga(designs, beyond, found["command"]), _asic(designs, beyond, found["command"])]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be what python -m synth report has written: {error!r}"
        ) from error


def _beyond(rows: Mapping[str, Mapping[str, float]], column: str) -> dict[str, float]:
    """The paper's, in per cent of its own baseline."""
    base = rows["baseline"][column]
    return {name: 100 * (rows[name][column] - base) / base for name in _VARIANTS}


def _of(beyond: Mapping[str, Any], flow: str) -> dict[str, Any]:
    return {name: value for name, value in beyond.items() if name.startswith(flow)}


def _row(what: str, ours: Mapping[str, float | None], theirs: Mapping[str, float] | None):
    cells = [what]
    for name in _VARIANTS:
        cells += [percent(ours.get(name)), "" if theirs is None else percent(theirs[name])]
    return cells


def _listed(values: Mapping[str, float]) -> str:
    """Per cents of the three variants, as in "1.0, 2.0 and 3.0 %"."""
    texts = [f"{values[name]:.1f}" for name in _VARIANTS]
    return f"{', '.join(texts[:-1])} and {texts[-1]} %"


def _its_text(number: str, what: str) -> str:
    """What the paper's text says where its table says something else."""
    return f"({_listed(paper.figures()['overheads_percent'][number])} more {what} by its text)"


_HEADINGS = ["beyond `baseline`", *(text for name in _VARIANTS for text in (f"`{name}`", "paper"))]


def _fpga(designs: Mapping[str, Any], beyond, command) -> Section:
    cells, power = paper.table("4a"), paper.table("4b")
    rows = []
    for variant in ("baseline", *_VARIANTS):
        used = designs[variant].get("xc7", {}).get("resources", {})
        row = [f"`{variant}`"]
        for resource, column in _RESOURCES.items():
            own = used.get(resource, {}).get("used")
            row.append(
                f"{'not measured' if own is None else f'{own:,}'}; {cells[variant][column]:,}"
            )
        rows.append(row)
    overheads = [
        _row("look-up tables", beyond["xc7_lut"], _beyond(cells, "CLB LUTs")),
        _row("flip-flops", beyond["xc7_ff"], _beyond(cells, "CLB registers")),
        _row("block RAM", beyond["xc7_ram"], _beyond(cells, "RAMB36")),
        _row("power", {}, _beyond(power, "total")),
    ]
    return Section(
        key="table-4", title="Table 4: cells and power of an FPGA",
        paper=f"`low`, `efficient` and `max` take {_listed(_beyond(cells, 'CLB LUTs'))} more "
        f"look-up tables than its baseline, and {_listed(_beyond(power, 'total'))} more power, "
        f"both worked out from its table {_its_text('fpga_power', 'power')}.",
        why="the paper's predictor is circuits, ours is programs for engines that are there "
        "anyway, so `low` and `efficient` cost nearly no logic; the second core of `max` has 80 "
        f"PEs with all that feeds them, which no {_beyond(cells, 'CLB LUTs')['max']:.1f} % of our "
        "logic could hold. No open tool gives power for 7-series.",
        parts=[
            f"From `{command}`: [synthesis_report.md](synthesis_report.md).",
            Table(headings=["here; paper", *_RESOURCES], rows=rows),
            Table(headings=_HEADINGS, rows=overheads),
        ],
        data={"overhead_percent": _of(beyond, "xc7")},
        glance=[
            ("Table 4, look-up tables of `max` beyond `baseline`",
             percent(_beyond(cells, "CLB LUTs")["max"]), percent(beyond["xc7_lut"]["max"])),
        ],
    )  # fmt: skip


def _asic(designs: Mapping[str, Any], beyond, command) -> Section:
    area, power = paper.table("5a"), paper.table("5b")
    rows = [
        _row("area of the logic", beyond["asic_logic"], _beyond(area, "total cell area")),
        _row("area of memories", beyond["asic_memory"], None),
        _row("area of both", beyond["asic_total"], _beyond(area, "total area")),
        _row("power of the logic", beyond["asic_power"], _beyond(power, "total")),
        _row("power of both", beyond["asic_power_total"], None),
    ]
    library = designs["baseline"].get("asic", {})
    where = f"{library.get('library', '?')}, {library.get('node_nm', '?')} nm"
    return Section(
        key="table-5", title="Table 5: area and power of a chip",
        paper=f"`low`, `efficient` and `max` take {_listed(_beyond(area, 'total area'))} more area "
        f"than its baseline and {_listed(_beyond(power, 'total'))} more power, most of it leakage, "
        f"both worked out from its table {_its_text('asic_area', 'area')}.",
        why="as for the FPGA; besides, the paper does not say which memories are in its area, and "
        "its power is mostly leakage, ours that of logic at work (a convolution, every cycle).",
        parts=[
            f"From `{command}`, {where}, memories by CACTI: "
            "[synthesis_report.md](synthesis_report.md). In the paper's columns *area of both* is "
            "its total area, with nets.",
            Table(headings=_HEADINGS, rows=rows),
        ],
        data={"overhead_percent": _of(beyond, "asic")},
        glance=[
            ("Table 5, area of `max` beyond `baseline`",
             percent(_beyond(area, "total area")["max"]),
             f"{percent(beyond['asic_logic']['max'])} of the logic, "
             f"{percent(beyond['asic_total']['max'])} with memories"),
        ],
    )  # fmt: skip
