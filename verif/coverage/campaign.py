"""Runs the campaign ``python -m verif coverage`` and writes its report."""

import json
import time
from pathlib import Path

from rich.table import Table

from cli.atomic_files import write_whole
from hw.config import make_config
from verif.sim.environment import build_root
from verif.sim.instrument import instrumented
from verif.sim.results import SimulationFailed
from verif.sim.runner import BuildFailed

from .bins import functional_points
from .collector import Collector
from .configs import CONFIGS, QUICK
from .points import KINDS
from .report import markdown, percent, summarize, to_json
from .stimuli import block_stimuli, stimuli
from .waivers import WAIVERS, WaiverError, read_waivers

__all__ = ["main"]


def main(options, console) -> int:
    """Run the campaign for the options of :mod:`verif.coverage.command`; returns the exit status.

    The report is written also when a stimulus has failed.
    """
    names = options.config or (QUICK if options.quick else tuple(CONFIGS))
    whole = not options.quick and not options.config
    waivers = read_waivers(WAIVERS.read_text())
    output = Path(options.output or build_root() / "coverage")
    output.mkdir(parents=True, exist_ok=True)
    console.print(f"seed {options.seed} (repeat with --seed {options.seed})", highlight=False)

    begin, collector = time.perf_counter(), Collector()
    done = []
    for name in names:
        config = make_config(preset="tiny", **CONFIGS[name])
        collector.add((point, 0) for point in functional_points(config))
        for stimulus in stimuli(name, options.seed, quick=options.quick):
            done.append(_simulate(stimulus, collector, console))
    if whole:
        for stimulus in block_stimuli(options.seed):
            done.append(_simulate(stimulus, collector, console))
    failures = [entry for entry in done if entry["failure"]]
    summary = summarize(collector.counts, waivers)
    seconds = time.perf_counter() - begin

    title = f"Coverage of {', '.join(names)}, seed {options.seed}"
    write_whole(output / "report.md", markdown(summary, title))
    values = {
        "seed": options.seed,
        "quick": options.quick,
        "configurations": {name: CONFIGS[name] for name in names},
        "seconds": round(seconds, 1),
        "stimuli": done,
        "failed": len(failures),
        **to_json(summary),
    }
    write_whole(output / "coverage.json", json.dumps(values, indent=1) + "\n")

    _print(summary, console)
    for path in ("report.md", "coverage.json"):
        console.print(f"wrote {output / path}", highlight=False)
    problem = ""
    if whole and not failures:
        try:
            summary.check()
        except WaiverError as error:
            problem = str(error)
    if problem:
        console.print(f"[red]FAIL[/] {problem}", highlight=False)
    verdict = f"[red]{len(failures)} failed[/]" if failures else "[green]all passed[/]"
    console.print(f"{len(done)} stimuli, {verdict}, {seconds:.0f} s", highlight=False)
    return 1 if failures or problem else 0


def _simulate(stimulus, collector, console):
    """Run one; returns its entry of the summary."""
    begin, failure = time.perf_counter(), None
    before = sum(count > 0 for count in collector.counts.values())
    with console.status(f"{stimulus.name}: building and simulating ..."):
        try:
            with instrumented(collector):
                stimulus.run()
        except (SimulationFailed, BuildFailed, AssertionError, RuntimeError) as error:
            failure = str(error)
    after = sum(count > 0 for count in collector.counts.values())
    seconds = time.perf_counter() - begin
    verdict = "[red]FAIL[/]" if failure else "ok  "
    console.print(
        f"{verdict} {stimulus.name:24} {after - before:6} new points, {seconds:.0f} s",
        highlight=False,
    )
    if failure:
        console.print(failure, markup=False, highlight=False)
    return {
        "name": stimulus.name,
        "seconds": round(seconds, 1),
        "new_points": after - before,
        "failure": failure,
    }


def _print(summary, console):
    table = Table("module", *(f"{kind} %" for kind in KINDS), "not reached", "no reason")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {module.file: module.totals for module in summary.modules} | {"all": summary.totals}
    for file, totals in rows.items():
        missing = sum(total - reached for reached, total in totals.values())
        bare = sum(file in (point.file, "all") for point in summary.open)
        shares = [percent(*totals.get(kind, (0, 0))) for kind in KINDS]
        table.add_row(file, *shares, str(missing), str(bare))
    console.print(table)
