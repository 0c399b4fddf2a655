"""What a comparison says: a table with differences paired by seed, and plots."""

import json
import statistics
from dataclasses import asdict
from pathlib import Path

from cli.atomic_files import write_whole

from .contestants import CONTESTANTS, REFERENCE
from .significance import LEVEL, Difference, corrected, difference
from .tournament import Result, Tournament

__all__ = ["differences", "kept_comparisons", "summary_table", "write_summary"]


def differences(results: list[Result]) -> dict[str, Difference]:
    """By method, without the reference itself; p is corrected for their number."""
    by_name = {result.method: result.accuracies for result in results}
    found = {}
    for name, own in by_name.items():
        against = CONTESTANTS[name].against
        if name == against:
            continue
        found[name] = difference(name, against, own, by_name[against])
    return corrected(found)


def summary_table(tournament: Tournament, results: list[Result]) -> str:
    """Markdown."""
    found = differences(results)
    images = "all" if tournament.train_images is None else f"{tournament.train_images:,}"
    lines = [
        f"{Path(tournament.data).name}, {tournament.model}, {images} images"
        + (f" averaged over {tournament.pool} × {tournament.pool} pixels" * (tournament.pool > 1))
        + f"; time of {tournament.budget} batches of {tournament.batch} by backpropagation, in "
        f"{'cycles' if tournament.clock == 'cycles' else 'MACs'}; {tournament.seeds} seeds; rates "
        "from "
        f"{', '.join(f'{rate:g}' for rate in tournament.rates)}, tuned on "
        f"{tournament.tuning_seeds} other seeds."
        + (f" Machine: {tournament.cycles.machine}." if tournament.cycles else ""),
        "",
        "| method | rate | steps | on the machine | accuracy in % | compared with | difference "
        "| better on | p |",
        "| --- | --: | --: | --: | --: | --- | --: | --: | --: |",
    ]
    for result in results:
        accuracies = [100 * value for value in result.accuracies]
        cells = [
            result.method,
            f"{result.rate * CONTESTANTS[result.method].rate_share:g}"
            + ("*" if result.rate_at_the_edge else ""),
            f"{statistics.mean(sum(record['steps'].values()) for record in result.records):.0f}",
            "–" if result.machine_batches is None else f"{result.machine_batches:.1f}",
            f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f}",
        ]
        if difference := found.get(result.method):
            mark = "**" if difference.significant else ""
            cells += [
                difference.against,
                f"{mark}{difference.mean:+.2f} ± {difference.error:.2f}{mark}",
                f"{difference.wins} of {difference.seeds}",
                "<0.001" if difference.chance < 0.001 else f"{difference.chance:.3f}",
            ]
        else:
            cells += ["", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    if tournament.cycles:
        lines += ["", "*On the machine*: cycles of all steps, in batches of backpropagation."]
    lines += ["", _statement(found)]
    if any(result.rate_at_the_edge for result in results):
        lines += ["", "\\* The smallest or largest of the rates that were tried."]
    return "\n".join(lines)


def _statement(found):
    counting = [each for each in found.values() if each.significant]
    text = (
        f"Of {len(found)} differences, {len(counting)} are significant at {LEVEL:.0%} "
        "(paired t test, corrected for their number after Holm)"
    )
    better = [each.method for each in counting if each.mean > 0]
    worse = [each.method for each in counting if each.mean < 0]
    for word, names in (("better", better), ("worse", worse)):
        if names:
            text += f"; {word}: {', '.join(names)}"
    return text + "."


def write_summary(
    tournament: Tournament, results: list[Result], directory: str | Path, *, plots: bool = True
) -> tuple[str, list[Path]]:
    """Write table, JSON and plots; returns the table and the files."""
    directory = Path(directory)
    text = summary_table(tournament, results)
    name = f"comparison-{Path(tournament.data).name}-{tournament.model}-{tournament.budget}"
    name += "-cycles" * (tournament.clock == "cycles")
    files = [directory / f"{name}.md", directory / f"{name}.json"]
    document = {
        "tournament": asdict(tournament)
        | {"cycles": tournament.cycles and tournament.cycles.machine},
        "methods": {
            result.method: {
                "summary": CONTESTANTS[result.method].summary,
                "rate": result.rate,
                "tuning": result.tuning,
                "cycles": result.cycles,
                "machine_batches": result.machine_batches,
                "accuracies": result.accuracies,
                "curves": [record["curve"] for record in result.records],
                "kept": [record["kept"] for record in result.records],
            }
            for result in results
        },
        "differences": {name: asdict(each) for name, each in differences(results).items()},
        "reference": REFERENCE,
    }
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(files[0], text + "\n")
    write_whole(files[1], json.dumps(document, indent=1) + "\n")
    if plots:
        from .plots import plot_curves, plot_delays, plot_kept

        for kind, plot in (("time", plot_curves), ("kept", plot_kept), ("delay", plot_delays)):
            path = directory / f"{name}-{kind}.png"
            if plot(results, path):
                files.append(path)
    return text, files


def kept_comparisons(directory: str | Path) -> list[str]:
    """What :func:`write_summary` has left in a directory: each table, and where its plots are."""
    lines = []
    for table in sorted(Path(directory).glob("comparison-*.md")):
        kinds = (table.with_name(f"{table.stem}-{kind}.png") for kind in ("time", "kept", "delay"))
        lines += [table.read_text(), *(f"plot {path}" for path in kinds if path.is_file()), ""]
    return lines
