"""Tables of the command line."""

from rich import box
from rich.markup import escape
from rich.table import Table

__all__ = ["both_busy_cycles", "print_digits", "print_step"]


def both_busy_cycles(counters: dict) -> int:
    """Least number of cycles in which the arrays of both cores had work, from the counters alone.

    An array has work when it is not waiting for a command; what the two of them have together
    beyond the length of the run must have been at the same time.
    """
    if "CORE1_STALL_COMMAND" not in counters:
        return 0
    cycles = counters["CYCLES"]
    work = sum(cycles - counters[f"CORE{core}_STALL_COMMAND"] for core in (0, 1))
    return max(0, work - cycles)


def _percent(value):
    return f"{100 * value:.1f} %"


def utilisation(execution) -> float:
    """Useful multiply-accumulates over PEs times cycles."""
    return execution.workload.macs / (execution.workload.config.pes * execution.counters["CYCLES"])


def print_step(console, step) -> None:
    """One line per simulation, and everything that is wrong."""
    execution = step.execution
    verdict = "[green]PASS[/]" if execution.passed else "[red]FAIL[/]"
    values = sum(sum(comparison.checked) for comparison in execution.comparisons)
    console.print(
        f"{verdict} {step.name}: {values} stored values, {execution.counters['CYCLES']} cycles, "
        f"utilisation {_percent(utilisation(execution))}, "
        f"{execution.speed / 1000:.0f} kcycles/s; {escape(step.notes)}",
        highlight=False,
        soft_wrap=True,
    )
    if not execution.passed:
        console.print(escape(execution.report()), highlight=False, soft_wrap=True)
    if execution.waves_file is not None:
        console.print(f"     gtkwave -a {execution.waves_file}", highlight=False, soft_wrap=True)


def print_digits(console, steps) -> None:
    """The variants beside each other: results, utilisation, all counters."""
    table = Table(box=box.SIMPLE, title="digits: registers of the first run")
    table.add_column("")
    for step in steps:
        table.add_column(step.name.removeprefix("digits "), justify="right")
    executions = [step.execution for step in steps]
    table.add_row("stored values", *(f"{sum(e.comparisons[0].checked)}" for e in executions))
    table.add_row("of them wrong", *(f"{sum(e.comparisons[0].wrong)}" for e in executions))
    table.add_row("PEs", *(str(e.workload.config.pes) for e in executions))
    table.add_row("useful MACs", *(str(e.workload.macs) for e in executions))
    table.add_row("utilisation", *(_percent(utilisation(e)) for e in executions))
    table.add_row("simulated cycles/s", *(f"{e.speed:.0f}" for e in executions))
    table.add_row(
        "both arrays take vectors", *(str(e.outcomes[0].record.both_cores) for e in executions)
    )
    table.add_row(
        "both arrays have work, at least", *(str(both_busy_cycles(e.counters)) for e in executions)
    )
    names = dict.fromkeys(name for e in executions for name in e.counters)
    for name in names:
        table.add_row(name, *(str(e.counters.get(name, "")) for e in executions))
    console.print(table)
