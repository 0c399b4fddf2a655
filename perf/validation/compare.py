"""Model against RTL, program by program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from emulator.batch_loop import BatchLoop
from hw.config import AdaGPConfig
from perf.counted.count import MODELS
from perf.machine.events.model import Unknown, run_events
from perf.machine.events.work import Works
from perf.machine.model import BASE, Result, run

from .cases import Point
from .measured import Measured

__all__ = [
    "BYTES",
    "Comparison",
    "Summary",
    "compare",
    "compared",
    "markdown",
    "on_model",
    "summaries",
    "summary_table",
    "totals",
]

#: Bytes on the bus, which must be exact.
BYTES = ("READ_BYTES", "WRITE_BYTES")
#: What only data, or the host, decide.
_UNKNOWN = ("VECTOR_REJECTED", "BATCH_WAIT")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A program on both.

    Members
    -------
    case, variant, preset, latency : where it comes from; ``number``: among those of its case
    rtl, model : cycles from start to interrupt, without those of waiting for the host
    counters : name -> (RTL, model), of all that the model knows
    """

    case: str
    variant: str
    preset: str
    latency: int
    number: int
    rtl: int
    model: int
    counters: dict[str, tuple[int, int]]

    @property
    def error(self) -> float:
        """Of the total, relative."""
        return (self.model - self.rtl) / self.rtl

    @property
    def exact_bytes(self) -> bool:
        return all(len(set(self.counters[name])) == 1 for name in BYTES)

    def difference(self, name: str) -> float:
        """Of a counter, as a share of all cycles."""
        rtl, model = self.counters[name]
        return (model - rtl) / self.rtl

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def compared(counters: Mapping[str, int], result: Result, **origin: Any) -> Comparison:
    """What the RTL has counted beside the model's result; ``origin``: the other members."""
    pairs = {
        name: (counters[name], value)
        for name, value in result.counters.items()
        if name != "CYCLES" and not name.endswith(_UNKNOWN)
    }
    rtl = counters["CYCLES"] - counters.get("BATCH_WAIT", 0)
    return Comparison(rtl=rtl, model=result.cycles, counters=pairs, **origin)


def compare(
    point: Point, measured: Sequence[Measured], *, model: str = MODELS[0], plain: bool = False
) -> list[Comparison]:
    """Run on a model (:data:`~perf.counted.count.MODELS`) what has been measured; without programs
    that it does not know. ``plain``: in plain Python, for short programs."""
    found = []
    for number, item in enumerate(measured):
        result = on_model(
            model, item.commands, AdaGPConfig(**item.config), offset=item.offset,
            latency=item.latency, base=item.base, loop=item.loop, plain=plain,
        )  # fmt: skip
        if result is not None:
            found.append(
                compared(
                    item.counters, result, case=point.case, variant=point.variant,
                    preset=point.preset, latency=point.latency, number=number,
                )
            )  # fmt: skip
    return found


def on_model(
    model: str, commands: bytes, config: AdaGPConfig, *, offset: int, latency: int,
    base: int = BASE, loop: BatchLoop | None = None, plain: bool = False,
) -> Result | None:  # fmt: skip
    """A program on one of :data:`~perf.counted.count.MODELS`; None of one with ROWS or BATCH if
    that goes by events."""
    if model == "cycles":
        return run(
            commands, config, offset=offset, latency=latency, base=base, loop=loop,
            compiled=not plain,
        )  # fmt: skip
    if base != BASE:
        raise ValueError(f"the model of events knows a window at {BASE:#x}, not at {base:#x}")
    try:
        works = _works(config, latency, plain)
        return run_events(commands, config, works=works, offset=offset)
    except Unknown:
        return None


@cache
def _works(config: AdaGPConfig, latency: int, plain: bool) -> Works:
    return Works(config, latency, compiled=not plain)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All programs of a case on an accelerator with a memory.

    Members
    -------
    programs, cycles : how many, and the RTL's cycles of all together
    error : of the program whose total is furthest off, with its sign
    counter, difference : the counter of any program that is furthest off, and by how much of the
        program's cycles
    exact_bytes : off-chip bytes of all programs are exact
    """

    case: str
    variant: str
    preset: str
    latency: int
    programs: int
    cycles: int
    error: float
    counter: str
    difference: float
    exact_bytes: bool


def summaries(comparisons: Iterable[Comparison]) -> list[Summary]:
    """One for each case, accelerator and latency, in the order in which they come."""
    groups: dict[tuple[str, str, str, int], list[Comparison]] = {}
    for item in comparisons:
        groups.setdefault((item.case, item.variant, item.preset, item.latency), []).append(item)
    found = []
    for (case, variant, preset, latency), items in groups.items():
        worst = max(
            ((name, item.difference(name)) for item in items for name in item.counters),
            key=lambda pair: abs(pair[1]),
        )
        found.append(
            Summary(
                case=case, variant=variant, preset=preset, latency=latency, programs=len(items),
                cycles=sum(item.rtl for item in items),
                error=max((item.error for item in items), key=abs),
                counter=worst[0] if worst[1] else "", difference=worst[1],
                exact_bytes=all(item.exact_bytes for item in items),
            )
        )  # fmt: skip
    return found


_HEADINGS = (
    "case", "variant", "preset", "latency", "programs", "RTL cycles", "worst total",
    "worst counter", "of cycles", "bytes",
)  # fmt: skip


def _row(item: Summary) -> tuple[str, ...]:
    return (
        item.case, item.variant, item.preset, f"{item.latency}", f"{item.programs}",
        f"{item.cycles:,}", _percent(item.error), item.counter, _percent(item.difference),
        "exact" if item.exact_bytes else "WRONG",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:+.3%}" if share else "0"


def summary_table(found: Sequence[Summary]) -> Table:
    """A line for each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if number in (0, 1, 2, 7, 9) else "right")
    for item in found:
        table.add_row(*_row(item))
    return table


def markdown(found: Sequence[Summary], comparisons: Sequence[Comparison]) -> str:
    """The same as a table in Markdown, and a sentence with the totals."""
    lines = [
        "| " + " | ".join(_HEADINGS) + " |",
        "| " + " | ".join("--" if n in (0, 1, 2, 7, 9) else "--:" for n in range(10)) + " |",
        *("| " + " | ".join(_row(item)) + " |" for item in found),
    ]
    return "\n".join(lines) + "\n\n" + totals(comparisons) + "\n"


def totals(comparisons: Sequence[Comparison]) -> str:
    """How far off the totals are, in a sentence."""
    errors = [abs(item.error) for item in comparisons]
    exact = sum(
        item.rtl == item.model and all(rtl == model for rtl, model in item.counters.values())
        for item in comparisons
    )
    worst = max(comparisons, key=lambda item: abs(item.error))
    wrong = sum(not item.exact_bytes for item in comparisons)
    return (
        f"{len(comparisons)} programs, {sum(item.rtl for item in comparisons):,} cycles of RTL: "
        f"error of the total {median(errors):.4%} in the median, {max(errors):.4%} at most "
        f"({worst.case} {worst.number}, {worst.variant}, {worst.preset}, latency {worst.latency}); "
        f"{exact} programs exact in every counter; off-chip bytes wrong in {wrong}."
    )
