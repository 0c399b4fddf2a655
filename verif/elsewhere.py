"""Cases of the regression at the same time, in processes or on a cluster."""

import os
import subprocess
import sys
import time

from rich.console import Console

from cli.build_directory import PROJECT_ROOT
from cli.workers import Workers

__all__ = ["case_arguments", "run_elsewhere"]

#: Options of ``verif run`` that are not handed on to a case.
_OWN = {"command", "cases", "list", "jobs", "scheduler", "json", "waves"}
#: Options of the case networks alone.
_OF_NETWORKS = {"network", "method", "width", "device", "beside"}


def run_elsewhere(console: Console, cases: list[str], options, workers: Workers) -> int:
    """Run each case by a command line of its own; returns the exit status.

    What a case prints appears when it has ended.
    """
    begin, wanting = time.perf_counter(), []
    tasks = [(case, case_arguments(case, options), console.width) for case in cases]
    with console.status(f"{len(cases)} cases ...") as status:
        for done, (number, result) in enumerate(workers.results(_run_case, tasks), 1):
            status.update(f"{done} of {len(cases)} cases")
            code, text = result
            console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
            if code:
                wanting.append((cases[number], code))
    for case, code in wanting:
        console.print(f"[red]FAIL[/] {case}: exit status {code}", highlight=False)
    verdict = f"[red]{len(wanting)} failed[/]" if wanting else "[green]all passed[/]"
    seconds = time.perf_counter() - begin
    console.print(f"{len(cases)} cases, {verdict}, {seconds:.0f} s", highlight=False)
    return 1 if wanting else 0


def case_arguments(case: str, options) -> list[str]:
    """Words of a command line: the options that are given and concern a case."""
    words = []
    for name, value in vars(options).items():
        if name in _OWN or (name in _OF_NETWORKS and case != "networks"):
            continue
        flag = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else [value]:
                words += [flag, str(each)]
    return words


def _run_case(case, arguments, width):
    command = [sys.executable, "-m", "verif", "run", case, *arguments]
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL, check=False, env=os.environ | {"COLUMNS": str(width)},
    )  # fmt: skip
    return done.returncode, done.stdout
