"""Results of many comparisons in one file, a line for each method and task, and their table."""

import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path

from cli.atomic_files import write_whole

from .contestants import CONTESTANTS, REFERENCE
from .significance import LEVEL, Difference, corrected, difference
from .tournament import CLOCKS, Result, Tournament

__all__ = ["answer_table", "keep_results", "read_results"]

#: What says which task a line belongs to.
_TASK = ("data", "model", "pool", "train_images", "budget", "batch", "clock")


def keep_results(tournament: Tournament, results: list[Result], path: str | Path) -> None:
    """Write a line for each method to a file, in place of what it had of them."""
    path = Path(path)
    known = {_key(line): line for line in read_results(path)} if path.is_file() else {}
    for result in results:
        line = {
            "data": Path(tournament.data).name,
            **{name: getattr(tournament, name) for name in _TASK[1:]},
            "method": result.method,
            "rate": result.rate * CONTESTANTS[result.method].rate_share,
            "rate_at_the_edge": result.rate_at_the_edge,
            "tuning_seeds": tournament.tuning_seeds,
            "rates": list(tournament.rates),
            "steps": statistics.mean(sum(each["steps"].values()) for each in result.records),
            "machine": tournament.cycles and tournament.cycles.machine,
            "machine_batches": result.machine_batches,
            "accuracies": result.accuracies,
        }
        known[_key(line)] = line
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(known[key]) + "\n" for key in sorted(known, key=str)))


def _key(line):
    return (*(line[name] for name in _TASK), line["method"])


def read_results(path: str | Path) -> list[dict]:
    """Lines of :func:`keep_results`.

    Raises
    ------
    ValueError
        naming the file and the line that is none, or has other seeds than that of the method that
        it is compared with.
    """
    lines: list[dict] = []
    for number, text in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            line = json.loads(text)
            right = line["method"] in CONTESTANTS and line["clock"] in CLOCKS and _numbers(line)
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            raise ValueError(f"{path}, line {number}, is no result of compare --store")
        lines.append(line)
    seeds = {_key(line): len(line["accuracies"]) for line in lines}
    for number, line in enumerate(lines, 1):
        *task, method = _key(line)
        against = CONTESTANTS[method].against
        own, other = len(line["accuracies"]), seeds.get((*task, against))
        if other not in (None, own):
            raise ValueError(
                f"{path}, line {number}: {method} has {own} seeds, and {against}, which it is "
                f"compared with, {other}; run compare with both"
            )
    return lines


def _numbers(line):
    """Whether a line has those that the table is made of."""
    machine = line["machine_batches"]
    found = [*line["accuracies"], *([] if machine is None else [machine])]
    return len(line["accuracies"]) >= 2 and all(math.isfinite(value) for value in found)


def answer_table(lines: Iterable[dict]) -> str:
    """Markdown: a row for each method, a column for each task and clock, and what counts.

    A cell has the mean accuracy in %, its difference to the method that it is compared with, and
    the standard error of that, paired by seed; in square brackets, where the time is counted in
    MACs and cycles are known, what the steps take the machine, in batches of backpropagation. p is
    corrected (Holm) for all differences of the table.
    """
    tasks: dict[tuple, dict[str, dict]] = {}
    for line in lines:
        tasks.setdefault(tuple(line[name] for name in _TASK), {})[line["method"]] = line
    ordered = sorted(tasks, key=lambda task: tuple(map(str, task[:6])) + (task[6] != "macs",))
    found = corrected(_differences(tasks))
    names = [name for name in CONTESTANTS if any(name in tasks[task] for task in ordered)]
    rows = [
        ["method", *(_heading(task, tasks[task]) for task in ordered)],
        ["---", *("--:" for _ in ordered)],
    ]
    for name in names:
        rows.append([name, *(_cell(tasks[task].get(name), found.get((task, name)))
                             for task in ordered)])  # fmt: skip
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{_statement(found)}"


def _differences(tasks) -> dict[tuple, Difference]:
    found = {}
    for task, methods in tasks.items():
        for name, line in methods.items():
            against = CONTESTANTS[name].against
            if name != against and against in methods:
                found[task, name] = difference(
                    name, against, line["accuracies"], methods[against]["accuracies"]
                )
    return found


def _heading(task, methods):
    data, model, _, _, budget, _, clock = task
    seeds = len(next(iter(methods.values()))["accuracies"])
    unit = "MACs" if clock == "macs" else clock
    return f"{data} {model}, {budget} batches in {unit}, {seeds} seeds"


def _cell(line, own: Difference | None):
    if line is None:
        return ""
    text = f"{100 * statistics.mean(line['accuracies']):.2f}"
    if own is None:
        return text
    against = "" if own.against == REFERENCE else f" to {own.against}"
    text += f" ({own.mean:+.2f} ± {own.error:.2f}{against})"
    if line["machine_batches"] is not None and line["clock"] == "macs":
        text += f" [{line['machine_batches']:.0f}]"
    return f"**{text}**" if own.significant else text


def _statement(found):
    counting = {key: each for key, each in found.items() if each.significant}
    smallest = min((each.chance for each in found.values()), default=math.nan)
    text = (
        f"{len(found)} differences; {len(counting)} of them (bold) are significant at {LEVEL:.0%}, "
        "by paired t tests corrected for their number after Holm"
    )
    if not counting and found:
        text += f"; the smallest p is {smallest:.2f}"
    return text + "."
