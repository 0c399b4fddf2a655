"""Runs the campaign ``python -m verif coverage`` and writes its report."""

import json
import os
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
from .configs import BLOCKS, CONFIGS, PARTS, QUICK
from .counted import Counted, read_counted
from .points import KINDS
from .report import markdown, percent, summarize, to_json
from .stimuli import block_stimuli, stimuli
from .waivers import WAIVERS, WaiverError, read_waivers

__all__ = ["main"]


def main(options, console) -> int:
    """Run the campaign for the options of :mod:`verif.coverage.command`, or take what others have
    counted; returns the exit status.

    The report is written also when a stimulus has failed.
    """
    waivers = read_waivers(WAIVERS.read_text())
    output = Path(options.output or build_root() / "coverage")
    if options.counts:
        counted = read_counted(options.counts)
    else:
        output.mkdir(parents=True, exist_ok=True)
        counted = _run(options, console)
        counted.write(output / "counts.json")
        console.print(f"wrote {output / 'counts.json'}", highlight=False)
    whole = not counted.quick and set(counted.parts) == set(PARTS)
    summary = summarize(counted.counts, waivers)

    output.mkdir(parents=True, exist_ok=True)
    seeds = f"seed {', '.join(map(str, counted.seeds))}"
    title = f"Coverage of {', '.join(counted.parts)}, {seeds}"
    write_whole(output / "report.md", markdown(summary, title))
    values = {
        "seeds": counted.seeds,
        "quick": counted.quick,
        "parts": {name: CONFIGS.get(name, {}) for name in counted.parts},
        "seconds": round(counted.seconds, 1),
        "cpu_seconds": round(counted.cpu_seconds, 1),
        "stimuli": counted.stimuli,
        "failed": len(counted.failures),
        **to_json(summary),
    }
    write_whole(output / "coverage.json", json.dumps(values, indent=1) + "\n")

    _print(summary, console)
    for path in ("report.md", "coverage.json"):
        console.print(f"wrote {output / path}", highlight=False)
    problem = ""
    if whole and not counted.failures:
        try:
            summary.check()
        except WaiverError as error:
            problem = str(error)
    if problem:
        console.print(f"[red]FAIL[/] {problem}", highlight=False)
    verdict = "[green]all passed[/]"
    if counted.failures:
        verdict = f"[red]{len(counted.failures)} failed[/]"
    console.print(
        f"{len(counted.stimuli)} stimuli, {verdict}, {counted.seconds:.0f} s, "
        f"{counted.cpu_seconds:.0f} s of processors", highlight=False,
    )  # fmt: skip
    return 1 if counted.failures or problem else 0


def _run(options, console):
    """Simulate; returns what was counted."""
    console.print(f"seed {options.seed} (repeat with --seed {options.seed})", highlight=False)
    parts = tuple(options.config or (QUICK if options.quick else PARTS))
    counted = Counted(parts=parts, quick=options.quick, seeds=(options.seed,))
    begin, cpu, collector = time.perf_counter(), _cpu_seconds(), Collector()
    for name in parts:
        if name == BLOCKS:
            todo = block_stimuli(options.seed)
        else:
            config = make_config(preset="tiny", **CONFIGS[name])
            collector.add((point, 0) for point in functional_points(config))
            todo = stimuli(name, options.seed, quick=options.quick)
        counted.stimuli += [_simulate(stimulus, collector, console) for stimulus in todo]
    # Benches have modules of their own around the hardware.
    counted.counts = {p: n for p, n in collector.counts.items() if p.file.startswith("hw/")}
    counted.seconds, counted.cpu_seconds = time.perf_counter() - begin, _cpu_seconds() - cpu
    return counted


def _cpu_seconds():
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _simulate(stimulus, collector, console):
    """Run one; returns its entry of the summary."""
    begin, cpu, failure = time.perf_counter(), _cpu_seconds(), None
    before = sum(count > 0 for count in collector.counts.values())
    with console.status(f"{stimulus.name}: building and simulating ..."):
        try:
            with instrumented(collector):
                stimulus.run()
        except (SimulationFailed, BuildFailed, AssertionError, RuntimeError) as error:
            failure = str(error)
        except ValueError as error:  # of a bench; what the others count must not be lost
            failure = f"{type(error).__name__}: {error}"
    after = sum(count > 0 for count in collector.counts.values())
    seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
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
        "cpu_seconds": round(cpu, 1),
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
