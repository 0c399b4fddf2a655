"""What was reached, per Python file of the hardware, as Markdown and as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .points import KINDS, Point
from .waivers import Waiver, WaiverError, apply_waivers

__all__ = ["Module", "Summary", "markdown", "summarize", "to_json"]


@dataclass(frozen=True, kw_only=True)
class Module:
    """Coverage of a Python file: kind -> (points reached, points there are)."""

    file: str
    totals: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Coverage of everything.

    Members
    -------
    modules : list of :class:`Module`, by name
    waived : what is not reached for a known reason -> its waiver
    open : what is not reached and has no reason
    idle : waivers that match nothing unreached
    """

    modules: list[Module]
    waived: Mapping[Point, Waiver]
    open: list[Point]
    idle: list[Waiver]

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        """Of all modules."""
        return {
            kind: tuple(sum(m.totals.get(kind, (0, 0))[n] for m in self.modules) for n in (0, 1))
            for kind in KINDS
        }

    def check(self) -> None:
        """Raise ``WaiverError`` with the first points that have no reason and idle waivers."""
        lines = []
        if self.open:
            lines.append(f"{len(self.open)} points are not reached and have no reason, first "
                         f"{self.open[0]}")  # fmt: skip
        if self.idle:
            lines.append(f"{len(self.idle)} waivers match nothing that is unreached, first "
                         f"{self.idle[0]}")  # fmt: skip
        if lines:
            raise WaiverError("; ".join(lines))


def summarize(counts: Mapping[Point, int], waivers: Iterable[Waiver]) -> Summary:
    """Sort points by file, and those not reached by their reasons."""
    files: dict[str, dict[str, list[int]]] = {}
    for point, count in counts.items():
        numbers = files.setdefault(point.file, {}).setdefault(point.kind, [0, 0])
        numbers[0] += count > 0
        numbers[1] += 1
    unreached = sorted(_order(point) for point, count in counts.items() if not count)
    points = [point for *_, point in unreached]
    waived, idle = apply_waivers(waivers, points)
    return Summary(
        modules=[
            Module(file=file, totals={kind: tuple(n) for kind, n in kinds.items()})
            for file, kinds in sorted(files.items())
        ],
        waived=waived,
        open=[point for point in points if point not in waived],
        idle=idle,
    )


def _order(point):
    bit = -1 if point.bit is None else point.bit
    return point.file, KINDS.index(point.kind), _stem(point), bit, point.what, point


_BIT_AND_WAY = re.compile(r"(?:\[\d+\])? (0->1|1->0)$")


def _stem(point):
    """The signal of a toggle, or the point itself."""
    return _BIT_AND_WAY.sub("", point.what) if point.kind == "toggle" else point.what


def grouped(points: Iterable[Point]) -> list[tuple[Point, str]]:
    """Points of one signal as one: the first of them, and what all of them are."""
    groups: dict[tuple, list[Point]] = {}
    for point in points:
        groups.setdefault((point.kind, point.file, _stem(point)), []).append(point)
    return [(members[0], _describe(stem, members)) for (_, _, stem), members in groups.items()]


def _describe(stem, members):
    if members[0].kind != "toggle":
        return stem
    bits: dict[str, set] = {"0->1": set(), "1->0": set()}
    for point in members:
        bits[_BIT_AND_WAY.search(point.what)[1]].add(point.bit)
    up, down = bits["0->1"], bits["1->0"]
    parts = [f"{_ranges(up & down)}never moves"] if up & down else []
    parts += [f"{_ranges(up - down)}never rises"] if up - down else []
    parts += [f"{_ranges(down - up)}never falls"] if down - up else []
    return f"{stem} {', '.join(parts)}"


def _ranges(bits):
    """``[0 to 3, 7] ``, of the bits of a signal; nothing for one of a single bit."""
    if None in bits:
        return ""
    runs: list[list[int]] = []
    for bit in sorted(bits):
        if runs and runs[-1][1] == bit - 1:
            runs[-1][1] = bit
        else:
            runs.append([bit, bit])
    return f"[{', '.join(str(a) if a == b else f'{a} to {b}' for a, b in runs)}] "


def percent(reached: int, total: int) -> str:
    """As text, rounded down, so that 100.0 means all."""
    return "" if not total else f"{reached * 1000 // total / 10:.1f}"


def markdown(summary: Summary, title: str) -> str:
    """The report: a table, and for each file what is never reached and why."""
    lines = [
        f"# {title}",
        "",
        "Points reached and, of those that are not, how many have a reason.",
        "",
    ]
    lines += ["| module | lines % | toggles % | functional % | not reached | without a reason |"]
    lines += ["| --- | --: | --: | --: | --: | --: |"]
    for module in [*summary.modules, Module(file="all", totals=summary.totals)]:
        shares = [percent(*module.totals.get(kind, (0, 0))) for kind in KINDS]
        missing = sum(total - reached for reached, total in module.totals.values())
        bare = sum(module.file in (point.file, "all") for point in summary.open)
        lines.append(f"| {module.file} | {' | '.join(shares)} | {missing} | {bare} |")
    if summary.waived:
        lines += ["", "| points | reason |", "| --: | --- |"]
        numbers = Counter(waiver.reason for waiver in summary.waived.values())
        lines += [f"| {number} | {reason} |" for reason, number in numbers.most_common()]
    for module in summary.modules:
        bare = [point for point in summary.open if point.file == module.file]
        reasons: dict[str, list[Point]] = {}
        for point, waiver in summary.waived.items():
            if point.file == module.file:
                reasons.setdefault(waiver.reason, []).append(point)
        if not bare and not reasons:
            continue
        lines += ["", f"## {module.file}", ""]
        for reason, points in [("without a reason", bare), *reasons.items()]:
            if points:
                lines += [f"- {len(points)} points, {reason}:"]
                lines += [f"  - {point.kind}: `{text}`" for point, text in grouped(points)]
    if summary.idle:
        lines += ["", "## Waivers that match nothing unreached", ""]
        lines += [f"- {waiver}" for waiver in summary.idle]
    return "\n".join(lines) + "\n"


def to_json(summary: Summary) -> dict:
    """The same as plain values."""
    return {
        "totals": {kind: _numbers(*pair) for kind, pair in summary.totals.items()},
        "modules": {
            module.file: {kind: _numbers(*pair) for kind, pair in module.totals.items()}
            for module in summary.modules
        },
        "without_reason": [str(point) for point in summary.open],
        "waived": {str(point): waiver.reason for point, waiver in summary.waived.items()},
        "idle_waivers": [str(waiver) for waiver in summary.idle],
    }


def _numbers(reached, total):
    return {"reached": reached, "points": total}
