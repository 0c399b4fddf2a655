"""``python -m verif mutate``."""

import json
import os
import time
from pathlib import Path

from rich.markup import escape

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from verif.sim.environment import PROJECT_ROOT, build_root

from .campaign import KILLED, SURVIVED, Campaign, CampaignFailed, sample
from .covering import GROUPS, hardware_files
from .equivalents import Equivalents
from .operators import OPERATORS
from .pool import WorkerEnded
from .report import FileReport, print_table
from .rewrite import rewrite

__all__ = ["LEAST_SCORE", "add_parser", "main"]

#: Share of the mutants that tests must kill, of those that are not equivalent.
LEAST_SCORE = 0.95


def add_parser(commands) -> None:
    """Add ``mutate`` to the command line's parsers."""
    kinds = "; ".join(f"{name}: {what}" for name, what in OPERATORS.items())
    parser = commands.add_parser(
        "mutate",
        help="put faults into the hardware and see whether tests find them",
        description="Put one small fault after the other into files of hw/ and run the tests that "
        f"cover the file until one fails. Kinds of faults: {kinds}. Results are kept: a second run "
        "tries only what is new or whose tests have changed.",
        epilog="Example: python -m verif mutate hw/dma/gearbox.py --sample 40 --seed 2. Exit "
        f"status 1: a file has a score below {LEAST_SCORE:.0%} or a survivor without a reason in "
        "verif/mutate/equivalents.toml.",
    )
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE",
        help=f"files or folders of hw/ (default: {' '.join(GROUPS)})",
    )  # fmt: skip
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only N mutants of each file, chosen at random"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: cores)"
    )
    parser.add_argument(
        "--system",
        action="store_true",
        help="try the tests of the whole accelerator on what the tests of the file leave alive",
    )
    parser.add_argument("--mutant", metavar="NAME", action="append", help="only this one; repeat")
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    parser.add_argument(
        "--output", default=None, metavar="DIR",
        help="for results, logs, summary.json and a report of each file (default: build/mutate)",
    )  # fmt: skip


def main(options, console) -> int:
    """The command; returns the exit status."""
    for name in ("sample", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, not {value}")
    files = hardware_files(PROJECT_ROOT, options.modules or GROUPS)
    _check_names(options.mutant or [], files, options.modules)
    directory = Path(options.output) if options.output else build_root() / "mutate"
    equivalents = Equivalents.read()
    console.print(f"seed {options.seed} (repeat with --seed {options.seed})", highlight=False)
    reports = []
    begin = time.perf_counter()
    try:
        for file in files:
            report = _try_file(options, console, file, directory, equivalents)
            if report is not None:
                reports.append(report)
                stem = file.removesuffix(".py").replace("/", ".")
                write_whole(directory / f"{stem}.md", report.markdown())
    except (CampaignFailed, WorkerEnded) as error:
        console.print(f"[red]FAIL[/] {escape(str(error))}", highlight=False)
        return 1
    if options.list:
        return 0
    summary = {
        "seed": options.seed,
        "sample": options.sample,
        "seconds": time.perf_counter() - begin,
        "files": [report.as_dict() for report in reports],
    }
    write_whole(directory / "summary.json", json.dumps(summary, indent=1) + "\n")
    print_table(console, reports)
    console.print(f"written: {directory}/summary.json and a report of each file", highlight=False)
    wrong = [report for report in reports if report.survivors or report.score < LEAST_SCORE]
    faults = [fault for report in reports for fault in report.faults]
    for fault in faults:
        console.print(f"equivalents.toml: {fault}", markup=False, highlight=False)
    return 1 if wrong or faults else 0


def _check_names(names, files, modules):
    """``--mutant`` must name mutants of the files."""
    if not names:
        return
    known = set()
    for file in files:
        known |= {mutant.name for mutant in rewrite((PROJECT_ROOT / file).read_text(), file)[1]}
    for name in names:
        if name not in known:
            where = ", ".join(modules or GROUPS)
            raise ValueError(f"--mutant {name!r} is none of the mutants of {where} (see --list)")


def _try_file(options, console, file, directory, equivalents):
    campaign = Campaign(
        PROJECT_ROOT, file, directory, jobs=options.jobs, system=options.system,
        spared=lambda mutant: equivalents.reason(mutant) is not None,
    )  # fmt: skip
    if options.list:
        for mutant in campaign.mutants:
            console.print(
                f"{mutant.name} {file}:{mutant.line} {mutant.operator}: {mutant.change}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        return None
    try:
        with progress_bar(console) as progress:
            bar = progress.add_task(f"{file}: tests without a mutant", total=None)
            mutants = campaign.prepare()
            chosen = sample(mutants, options.sample, options.seed)
            if options.mutant:
                chosen = [mutant for mutant in mutants if mutant.name in options.mutant]
            # Those that are known to live take longest.
            chosen.sort(key=lambda mutant: equivalents.reason(mutant) is not None)
            progress.update(bar, description=file, total=len(chosen))

            def tell(outcome):
                progress.advance(bar)
                if outcome.verdict == SURVIVED and equivalents.reason(outcome.mutant) is None:
                    mutant = outcome.mutant
                    progress.console.print(
                        f"survives: {file}:{mutant.line} {mutant.name} {mutant.operator}: "
                        f"{mutant.change}",
                        markup=False, highlight=False, soft_wrap=True,
                    )  # fmt: skip

            outcomes = campaign.run(chosen, report=tell)
    finally:
        campaign.close()
    killed = {outcome.mutant.name for outcome in outcomes if outcome.verdict == KILLED}
    reasons = {mutant.name: equivalents.reason(mutant) for mutant in mutants}
    return FileReport(
        file=file,
        tests=campaign.tests,
        mutants=len(mutants),
        outcomes=outcomes,
        reasons={name: reason for name, reason in reasons.items() if reason},
        faults=equivalents.faults(file, mutants, killed),
    )
