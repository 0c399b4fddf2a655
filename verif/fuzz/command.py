"""``python -m verif fuzz``."""

import contextlib
import json
from pathlib import Path

from rich.console import Console

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from cli.workers import add_workers, workers_of
from hw.config import PRESETS, VARIANTS
from hw.config.selection import add_settings, select_config
from verif.sim import environment

__all__ = ["add_parser", "main"]


def add_parser(commands) -> None:
    """Add ``fuzz`` to the subparsers of ``python -m verif``."""
    fuzz = commands.add_parser(
        "fuzz",
        help="random programs, registers and windows on random slaves",
        description="Run random and mutated programs on slaves that do whatever AXI4 allows. Every "
        "run must end, break no bus rule and touch nothing outside the memory window; then a good "
        "program must store exactly what it must, without a reset. A finding is shrunk and written "
        "to a file.",
        epilog="example: python -m verif fuzz --variant baseline --cases 10000 --json fuzz.json",
    )
    fuzz.add_argument("--cases", type=int, default=1000, metavar="N", help="default: 1000")
    fuzz.add_argument("--first", type=int, default=0, metavar="N", help="first case (default: 0)")
    fuzz.add_argument(
        "--adversarial", action="store_true",
        help="good programs only, on slow and unfair slaves",
    )  # fmt: skip
    fuzz.add_argument("--variant", default="baseline", choices=tuple(VARIANTS))
    fuzz.add_argument("--preset", default="tiny", help=f"{', '.join(PRESETS)} (default: tiny)")
    fuzz.add_argument("--config", metavar="FILE", help="JSON or TOML file, or a manifest")
    add_settings(fuzz)
    fuzz.add_argument("--seed", type=int, default=1, help="of everything random (default: 1)")
    add_workers(fuzz, what="simulators")
    fuzz.add_argument(
        "--findings", type=int, default=1, metavar="N", help="end after so many (default: 1)"
    )
    fuzz.add_argument("--json", metavar="FILE", help="write the summary to this file")
    fuzz.add_argument(
        "--output", metavar="DIR", help="for the files of findings (default: build/fuzz)"
    )
    fuzz.add_argument("--replay", metavar="FILE", help="run the file of a finding again")
    fuzz.add_argument(
        "--waves", action="store_true", help="with --replay: leave a waveform beside the file"
    )


def main(options, console: Console) -> int:
    """Run the command; the exit status: 0 nothing found, 1 something."""
    if options.replay is not None:
        return _replay(options, console)
    if options.waves:
        raise ValueError("--waves needs --replay FILE")
    for name, least in (("cases", 1), ("first", 0), ("findings", 1), ("seed", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} must be at least {least}, not {value}")
    workers = workers_of(options)
    config = select_config(
        variant=None if options.config else options.variant,
        preset=None if options.config else options.preset,
        settings=options.settings, file=options.config,
    )  # fmt: skip
    # Here, because other commands have no use for compiler, interpreter and golden.
    from .campaign import by_kind, run_cases
    from .elsewhere import run_on_workers
    from .generate import Generator
    from .good import good_programs
    from .harness import build

    console.print(
        f"variant {config.variant}, configuration {config.hash}, seed {options.seed} "
        f"(repeat with --seed {options.seed})", highlight=False,
    )  # fmt: skip
    with console.status("building ..."):
        goods = good_programs(config, options.seed)
        program = build(config, goods)
    kind = {"seed": options.seed, "adversarial": options.adversarial}
    with _progress(console, options.cases) as progress:
        which = {"first": options.first, "most": options.findings, "progress": progress}
        if workers.scheduler is None:
            generator = Generator(config, goods, **kind)
            summary = run_cases(program, generator, options.cases, jobs=workers.jobs, **which)
        else:
            summary = run_on_workers(workers, config, options.cases, **kind, **which)
    _print(console, summary)
    if options.json:
        content = {
            "config": config.as_dict(), "hash": config.hash, "seed": options.seed,
            "first": options.first, "adversarial": options.adversarial,
            "jobs": workers.jobs, "scheduler": workers.scheduler,
        } | summary.as_json()  # fmt: skip
        write_whole(options.json, json.dumps(content, indent=1) + "\n")
    output = Path(options.output or environment.build_root() / "fuzz")
    for found in by_kind(summary.found):
        _report(console, config, options.seed, program, found, output)
    return 1 if summary.found else 0


def _print(console, summary):
    ends = ", ".join(f"{name} {count:,}" for name, count in summary.ends.most_common())
    rate = summary.cases / max(summary.seconds, 1e-9)
    console.print(f"ends of runs: {ends or 'none but good ones'}", highlight=False)
    executed = ", ".join(f"{name} {count:,}" for name, count in sorted(summary.executed.items()))
    console.print(f"commands executed: {executed or 'of good programs only'}", highlight=False)
    verdict = "[red]FAIL[/]" if summary.found else "[green]PASS[/]"
    console.print(
        f"{verdict} fuzz: {summary.cases:,} cases, {len(summary.found)} findings, "
        f"{summary.cycles:,} cycles, {rate:.0f} cases/s, {summary.seconds:.0f} s", highlight=False,
    )  # fmt: skip


def _report(console, config, seed, program, found, output):
    """Shrink a finding and write its file."""
    from . import replay as files
    from .shrink import shrink

    with console.status(f"{found.finding.kind}: looking for less that shows it ..."):
        smallest = shrink(program, found.cases, found.finding)
    cases, finding = smallest or (found.cases, found.finding)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{config.variant}-{config.hash}-{seed}-{found.number}-{finding.kind}.json"
    files.write(path, config, seed, cases, finding)
    console.print(f"case {found.number}: {finding.kind}: {finding.text}", style="red", markup=False)
    for case in cases:
        for line in files.listing(case):
            console.print(f"  {line}", style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"  repeat with: python -m verif fuzz --replay {path}", highlight=False, soft_wrap=True
    )
    if smallest is None:
        console.print("  it does not show again by itself: the file has all of it", style="red")


def _replay(options, console):
    from . import replay as files

    waves = Path(options.replay).with_suffix(".vcd") if options.waves else None
    with console.status("building and simulating ..."):
        results, kind = files.replay(options.replay, waves=waves)
    finding = files.found(results)
    if finding is None:
        console.print(f"[green]PASS[/] {options.replay}: no {kind} any more", highlight=False)
    else:
        console.print(f"[red]FAIL[/] {finding.kind}", highlight=False)
        console.print(finding.text, markup=False, highlight=False)
    if waves:
        console.print(f"waveform: {waves}", highlight=False)
    return 0 if finding is None else 1


@contextlib.contextmanager
def _progress(console, total):
    with progress_bar(console) as bar:
        task = bar.add_task("cases", total=total)
        yield lambda done: bar.update(task, completed=done)
