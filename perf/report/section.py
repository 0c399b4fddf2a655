"""What a part of the report consists of, and how it becomes Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from perf.counted import Cell

__all__ = [
    "NOT_RUN",
    "Picture",
    "Section",
    "Table",
    "cycles_text",
    "of_networks",
    "percent",
    "ratio",
]

#: What stands where nothing has been counted.
NOT_RUN = "not run"
#: Networks that :func:`of_networks` names.
_FEW = 4


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts; the first ``left`` columns are aligned to the left."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    caption: str = ""

    def markdown(self) -> list[str]:
        """Its lines."""
        marks = ["---"] * self.left + ["--:"] * (len(self.headings) - self.left)
        lines = [f"{self.caption}", ""] if self.caption else []
        return [*lines, *(f"| {' | '.join(row)} |" for row in (self.headings, marks, *self.rows))]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture: ``draw`` writes it to a file, ``name`` is part of the file's name."""

    name: str
    text: str
    draw: Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Section:
    """An item of the evaluation.

    Members
    -------
    key : "figure-16"
    title : of the heading
    paper : what the paper says
    why : why ours differs
    parts : paragraphs, tables and pictures, in order
    glance : rows of the summary: what, the paper's, ours
    missing : cells that were wanted and have not been counted
    data : all numbers, for JSON
    """

    key: str
    title: str
    paper: str
    why: str
    parts: Sequence[str | Table | Picture] = ()
    glance: Sequence[tuple[str, str, str]] = ()
    missing: Sequence[Cell] = ()
    data: dict[str, Any] = field(default_factory=dict)

    def markdown(self, picture_of: Callable[[Picture], str]) -> str:
        """Text of the section; ``picture_of`` gives the address of a picture."""
        blocks = [f"## {self.title}", f"**The paper**: {self.paper}"]
        for part in self.parts:
            if isinstance(part, Table):
                blocks.append("\n".join(part.markdown()))
            elif isinstance(part, Picture):
                blocks.append(f"![{part.text}]({picture_of(part)})")
            else:
                blocks.append(part)
        blocks.append(f"**Why they differ**: {self.why}")
        if self.missing:
            lines = "\n".join(f"python -m perf {line}" for line in commands_of(self.missing))
            blocks.append(
                f"What says *{NOT_RUN}* is counted by this; `--model events` takes minutes in "
                f"place of hours.\n\n```\n{lines}\n```"
            )
        return "\n\n".join(blocks) + "\n"


def of_networks(known: Mapping[str, float], form: Callable[[float], str] = "{:.2f}".format) -> str:
    """Numbers by network in short; of many their mean, the least and the largest."""
    text = {name: form(value) for name, value in known.items()}
    if len(known) <= _FEW:
        return ", ".join(f"{name} {value}" for name, value in text.items()) or NOT_RUN
    least, largest = (each(known, key=known.__getitem__) for each in (min, max))
    return (
        f"{form(mean(known.values()))}, the mean of {len(known)}, from {text[least]} "
        f"({least}) to {text[largest]} ({largest})"
    )


def commands_of(cells: Iterable[Cell]) -> list[str]:
    """Command lines that count cells, as few as possible: cells that differ in network and variant
    only are one, if all these networks lack the same variants."""
    variants: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for cell in dict.fromkeys(cells):
        found = cell.arguments
        place = found.index("--variant")
        assert found[0] == "--network"
        variants.setdefault((found[1], (*found[2:place], *found[place + 2 :])), []).append(
            cell.variant
        )
    networks: dict[tuple[str, str], list[str]] = {}
    for (network, rest), names in variants.items():
        networks.setdefault((" ".join(rest), " ".join(names)), []).append(network)
    return [
        f"count --network {' '.join(own)} {rest} --variant {names}"
        for (rest, names), own in networks.items()
    ]


def ratio(value: float | None) -> str:
    """A speed-up."""
    return NOT_RUN if value is None else f"{value:.3f}"


def percent(value: float | None) -> str:
    """What is beyond a baseline, given in per cent, with its sign."""
    if value is None:
        return "not measured"
    if abs(value) < 0.05:
        return "±0.0 %"
    return f"{'−' if value < 0 else '+'}{abs(value):.1f} %"


def cycles_text(value: int | None) -> str:
    """Cycles, in full."""
    return NOT_RUN if value is None else f"{value:,}"
