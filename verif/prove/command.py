"""``python -m verif prove``: lines, traces and the summary of the proofs."""

import importlib.util
import json
import time
from importlib.metadata import version

from rich.markup import escape

from cli.atomic_files import write_whole

__all__ = ["add_parser", "main"]


def add_parser(commands) -> None:
    """Put ``prove`` among the commands of ``python -m verif``."""
    parser = commands.add_parser(
        "prove",
        help="formal proofs about single blocks",
        description="Prove by induction what must hold in every cycle, whatever the inputs: Yosys "
        "makes a model of each block, Bitwuzla finds a counterexample or that there is none. Every "
        "mutant of a block, a copy with one fault, must be found out.",
        epilog="example: python -m verif prove --only planner --only fetch --traces",
    )
    parser.add_argument("--list", action="store_true", help="list the proofs and end")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help="of a proof, from --list; may be repeated (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help="the first configuration of each, and mutants by induction only",
    )  # fmt: skip
    parser.add_argument(
        "--traces", action="store_true", help="print the counterexamples of the mutants too"
    )
    parser.add_argument("--jobs", type=int, default=2, help="checks side by side (default: 2)")
    parser.add_argument(
        "--timeout", type=float, default=900.0, metavar="SECONDS",
        help="for each question to the solver (default: 900)",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write a summary to this file")


def main(options, console) -> int:
    """The command; returns the exit status."""
    # Here, because other commands have no use for all the blocks.
    from . import campaign
    from .proofs import PROOFS

    if options.list:
        for name, proof in PROOFS.items():
            console.print(f"{name:20}{proof.what}", highlight=False, soft_wrap=True)
        return 0
    unknown = [name for name in options.only if name not in PROOFS]
    if unknown:
        raise ValueError(f"unknown proof {', '.join(unknown)}; proofs are {', '.join(PROOFS)}")
    for name in ("jobs", "timeout"):
        if getattr(options, name) <= 0:
            raise ValueError(f"--{name} must be above 0, not {getattr(options, name):g}")
    for package in ("pyosys", "bitwuzla"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"{package} is not installed: pip install {package}")
    begin = time.perf_counter()
    with console.status("finding the sizes that the hardware uses ..."):
        todo = campaign.tasks(options.only or PROOFS, quick=options.quick)
    outcomes = []
    with console.status("") as status:
        results = campaign.run(
            todo, jobs=options.jobs, limit=options.timeout, runs=not options.quick
        )
        status.update(f"0 of {len(todo)} checks")
        for outcome in results:
            outcomes.append(outcome)
            _print(console, outcome, traces=options.traces)
            status.update(f"{len(outcomes)} of {len(todo)} checks")
    bad = [outcome for outcome in outcomes if not outcome.passed]
    proven = sum(not outcome.mutant for outcome in outcomes if outcome.passed)
    found = sum(bool(outcome.mutant) for outcome in outcomes if outcome.passed)
    seconds = time.perf_counter() - begin
    verdict = f"[red]{len(bad)} wrong[/]" if bad else "[green]nothing wrong[/]"
    console.print(
        f"{proven} proofs, {found} mutants found, {verdict}, {seconds:.0f} s", highlight=False
    )
    if options.json:
        document = {
            "tools": {name: version(name) for name in ("pyosys", "bitwuzla", "amaranth")},
            "seconds": round(seconds, 1),
            "passed": not bad,
            "checks": [outcome.as_dict() for outcome in outcomes],
        }
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
    return 1 if bad else 0


def _print(console, outcome, *, traces):
    name = f"{outcome.proof} {outcome.configuration}"
    cost = f"{outcome.cpu_seconds:.1f} s"
    if outcome.verdict == "proven":
        text = (
            f"proven  {name}: {outcome.claims} claims, {outcome.invariants} invariants, k = 1, "
            f"{outcome.registers} bits of registers, {cost}"
        )
    elif outcome.trace:
        broken = "; ".join(outcome.trace.broken)
        where = outcome.where
        if where == "run":
            where = f"cycle {len(outcome.trace.cycles) - 1} of a run"
        what = f"mutant '{outcome.mutant}'" if outcome.mutant else "does not hold"
        text = f"{outcome.verdict:7} {name}: {what}, {where}: {broken}, {cost}"
    else:
        what = f"mutant '{outcome.mutant}': " if outcome.mutant else ""
        text = f"{outcome.verdict:7} {name}: {what}{outcome.reason}, {cost}"
    colour = "green" if outcome.passed else "red"
    console.print(
        f"[{colour}]{escape(text[:7])}[/]{escape(text[7:])}", highlight=False, soft_wrap=True
    )
    if outcome.trace and (traces or not outcome.passed):
        console.print(table(outcome.trace), markup=False, highlight=False, soft_wrap=True)


def table(trace) -> str:
    """The signals of a trace, a line each, in hex: of wide ones the lower 64 bits. Those that are
    0 throughout are left out."""
    names = [name for name in trace.widths if any(cycle[name] for cycle in trace.cycles)]
    space = max(map(len, names), default=0)
    first = ("reset",) if trace.start == "reset" else ("any state",)
    heading = ", ".join([*first, *(f"cycle {n}" for n in range(1, len(trace.cycles)))])
    lines = [f"  {'':{space}}  {heading}"]
    for name in names:
        values = [_digits(cycle[name], trace.widths[name]) for cycle in trace.cycles]
        lines.append(f"  {name:{space}}  {' '.join(values)}")
    return "\n".join([*lines, *(f"  broken: {name}" for name in trace.broken)])


def _digits(value, width):
    text = f"{value:0{-(-width // 4)}x}"
    return text if width <= 64 else "…" + text[-16:]
