"""``python -m algorithms compare``."""

import argparse
import time
from pathlib import Path

from algorithms.common.devices import DEVICES, best_device
from algorithms.common.float_training import CACHE_DIRECTORY
from algorithms.data.datasets import DATASETS
from algorithms.networks.registry import MODELS
from cli.workers import add_workers, workers_of

from .answer import answer_table, keep_results, read_results
from .contestants import CONTESTANTS
from .cycles import read_cycles
from .summary import write_summary
from .tournament import CLOCKS, Tournament

__all__ = ["add_answer", "add_compare"]

_RECORDS = CACHE_DIRECTORY / "comparison"


def add_compare(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "compare",
        help="compare methods for equal time, at rates tuned for each",
        description="Give every method the same time, counted in multiplications. Its learning "
        "rate is chosen on seeds of its own and falls to 0 over the time; what is compared comes "
        "from fresh seeds, paired. Finished runs are not done again.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="methods:\n"
        + "\n".join(f"  {name:17} {each.summary}" for name, each in CONTESTANTS.items())
        + "\n\nexample:\n  python -m algorithms compare --data digits --methods bp vcas "
        "--budget 100",
    )
    command.set_defaults(action=_compare)
    add = command.add_argument
    add("--data", default="digits", help=f"{', '.join(DATASETS)} or a directory (default: digits)")
    add("--model", default="vgg", choices=tuple(MODELS), metavar="MODEL", help="default: vgg")
    add("--methods", nargs="+", metavar="METHOD", default=tuple(CONTESTANTS), help="default: all")
    add("--rates", nargs="+", type=float, default=Tournament.rates, metavar="RATE",
        help=f"to choose from (default: {' '.join(map(str, Tournament.rates))})")  # fmt: skip
    add("--tuning-seeds", type=int, default=Tournament.tuning_seeds,
        help="that rates are chosen on (default: 2)")  # fmt: skip
    add("--seeds", type=int, default=Tournament.seeds, help="fresh ones (default: 5)")
    add("--budget", type=int, default=Tournament.budget,
        help="the time, in batches of backpropagation (default: 300)")  # fmt: skip
    add("--batch", type=int, default=Tournament.batch, help="images of a batch (default: 64)")
    add(
        "--cycles",
        metavar="FILE.json",
        help="what batches take the accelerator, of python -m perf steps: a column more",
    )
    add("--clock", choices=CLOCKS, default=Tournament.clock,
        help="count the time in MACs, or in cycles of --cycles (default: macs)")  # fmt: skip
    add("--pool", type=int, default=1, help="make images smaller by this factor (default: 1)")
    add("--train-images", type=int, help="use so many only")
    add("--test-images", type=int, help="use so many only")
    add("--device", choices=DEVICES, default=best_device(),
        help="where torch computes (default: cuda where there is one)")  # fmt: skip
    add_workers(command, what="runs")
    add("--store", metavar="FILE.jsonl", help="also keep the results there, for answer")
    add("--no-plots", action="store_true", help="table and JSON only")
    add("--output", metavar="DIR", default=_RECORDS, help=f"default: {_RECORDS}")


def _compare(options) -> int:
    workers = workers_of(options)
    names = ("data", "model", "tuning_seeds", "seeds", "budget", "batch", "pool", "train_images",
             "test_images", "clock", "device")  # fmt: skip
    tournament = Tournament(
        methods=tuple(options.methods),
        rates=tuple(sorted(set(options.rates))),
        cycles=read_cycles(options.cycles) if options.cycles else None,
        **{name: getattr(options, name) for name in names},
    )
    if options.store and Path(options.store).exists():
        read_results(options.store)  # no result is lost to a file that cannot take it
    Path(options.output).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    results = tournament.run(options.output, workers)
    seconds = time.monotonic() - started
    text, files = write_summary(tournament, results, options.output, plots=not options.no_plots)
    print(text)
    print(f"\nall runs that were missing took {seconds:.0f} s")
    if options.store:
        keep_results(tournament, results, options.store)
        files.append(Path(options.store))
    print("\n".join(f"wrote {file}" for file in files))
    return 0


def add_answer(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "answer",
        help="one table of all comparisons that were stored",
        description="Print a table of the results that compare --store has kept: all methods and "
        "tasks, differences paired by seed, p corrected for all of them together.",
    )
    command.set_defaults(action=_answer)
    command.add_argument("file", metavar="FILE.jsonl", help="of compare --store")


def _answer(options) -> int:
    lines = read_results(options.file)
    if not lines:
        raise ValueError(f"{options.file} holds no results of compare --store")
    print(answer_table(lines))
    return 0
