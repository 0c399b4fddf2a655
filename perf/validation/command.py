"""``python -m perf validate``: the model beside the RTL."""

import argparse
import json
import time
from dataclasses import asdict

from rich.console import Console

from cli.atomic_files import write_whole
from cli.progress import progress_bar
from perf.counted.count import MODELS

__all__ = ["LATENCIES", "MEDIAN", "WORST", "add_validate"]

#: Cycles that the memory adds to every burst.
LATENCIES = (10, 30, 100)

#: What the totals' errors may be: in the median, and at most.
MEDIAN, WORST = 0.001, 0.01


def add_validate(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "validate",
        help="cycles, stalls and bytes of the model beside those of the RTL",
        description="Run programs on the RTL in Verilator and on the model, and compare total "
        "cycles, every counter and the bytes on the bus. What the RTL has counted is kept, so a "
        "run that was stopped goes on where it was. The exit status is 1 if bytes differ, or "
        "cycles by more than 1 % somewhere or 0.1 % in the median.",
        epilog="example: python -m perf validate --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_validate)
    add = command.add_argument
    add("--case", nargs="+", metavar="NAME", default=[],
        help="default: all; of an unknown name the message lists them")  # fmt: skip
    add("--preset", nargs="+", choices=("tiny", "paper"), default=("tiny", "paper"),
        help="default: both")  # fmt: skip
    add("--latency", nargs="+", type=int, metavar="CYCLES", default=list(LATENCIES),
        help="that memory adds to every burst (default: 10 30 100)")  # fmt: skip
    add("--results", nargs="+", metavar="FILE", default=[],
        help="of `verif run networks --json`; cases then only if they are named")  # fmt: skip
    add("--quick", action="store_true", help="a selection at preset tiny")
    add("--model", choices=MODELS, default=MODELS[0],
        help="from cycle to cycle (default), or from event to event, which leaves out programs "
        "with ROWS or BATCH and does not count what is fetched ahead and dropped")  # fmt: skip
    add("--least", type=int, metavar="CYCLES", default=0,
        help="leave out programs that end sooner on the RTL")  # fmt: skip
    add("--json", metavar="FILE", help="write every program's counters")
    add("--markdown", metavar="FILE", help="write the table")
    add("--plot", metavar="FILE.png", help="write a scatter plot")


def _validate(options) -> int:
    # These bring the simulation with them.
    from .cases import points
    from .compare import Comparison, compare, markdown, summaries, summary_table, totals
    from .measured import kept
    from .networks import compare_results
    from .picture import draw

    if wrong := [latency for latency in options.latency if latency < 0]:
        raise ValueError(f"latency must be at least 0, not {wrong[0]}")
    if options.least < 0:
        raise ValueError(f"least must be at least 0, not {options.least}")
    todo = []
    if options.case or not options.results:
        todo = points(options.case, tuple(options.preset), options.latency, quick=options.quick)
    if not todo and not options.results:
        raise ValueError("none of these cases runs at these presets")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 130)  # nobody's window would cut it short
    found: list[Comparison] = []
    failed: list[str] = []
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(todo) + len(options.results))
        for path in options.results:
            bar.update(task, advance=1, description=path)
            found += compare_results(path, model=options.model)
        for point in todo:
            name = f"{point.case} {point.variant} {point.preset}, latency {point.latency}"
            bar.update(task, description=name)
            begin = time.perf_counter()
            kind = f"{point.case}{'-quick' * options.quick}"
            try:
                measured = kept(kind, point.work, point.config, latency=point.latency)
            except RuntimeError as error:
                failed.append(f"{name}: {error}")
                continue
            finally:
                bar.update(task, advance=1)
            new = compare(point, measured, model=options.model)
            found += new
            if new and not console.is_terminal:
                seconds = time.perf_counter() - begin
                console.print(f"{name}: {totals(new)} {seconds:.0f} s", soft_wrap=True)
    found = [item for item in found if item.rtl >= options.least]
    if found:
        console.print(summary_table(summaries(found)))
        console.print(totals(found), soft_wrap=True)
    for line in failed:
        console.print(f"NOT MEASURED {line}", markup=False, soft_wrap=True)
    if options.json:
        document = {
            "programs": [item.as_dict() for item in found],
            "summaries": [asdict(item) for item in summaries(found)],
            "not_measured": failed,
        }
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
    if options.markdown:
        write_whole(options.markdown, markdown(summaries(found), found))
    if options.plot and found:
        draw(found, options.plot)
    return 0 if found and not failed and _good(found) else 1


def _good(found) -> bool:
    errors = sorted(abs(item.error) for item in found)
    middle = errors[len(errors) // 2]
    return errors[-1] <= WORST and middle <= MEDIAN and all(item.exact_bytes for item in found)
