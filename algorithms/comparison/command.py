"""``python -m algorithms compare``."""

import argparse

from algorithms.common.float_training import CACHE_DIRECTORY
from algorithms.data.datasets import DATASETS
from algorithms.networks.registry import MODELS
from cli.workers import add_workers, workers_of

from .contestants import CONTESTANTS
from .summary import write_summary
from .tournament import Tournament

__all__ = ["add_compare"]

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
    add("--rates", nargs="+", type=float, default=Tournament.rates, help="to choose from")
    add("--tuning-seeds", type=int, default=Tournament.tuning_seeds, help="default: 2")
    add("--seeds", type=int, default=Tournament.seeds, help="fresh ones (default: 5)")
    add("--budget", type=int, default=Tournament.budget,
        help="the time, in batches of backpropagation (default: 300)")  # fmt: skip
    add("--batch", type=int, default=Tournament.batch, help="images of a batch (default: 64)")
    add("--pool", type=int, default=1, help="make images smaller by this factor (default: 1)")
    add("--train-images", type=int, help="use so many only")
    add("--test-images", type=int, help="use so many only")
    add_workers(command, what="runs")
    add("--no-plots", action="store_true", help="table and JSON only")
    add("--output", metavar="DIR", default=_RECORDS, help=f"default: {_RECORDS}")


def _compare(options) -> int:
    workers = workers_of(options)
    names = ("data", "model", "tuning_seeds", "seeds", "budget", "batch", "pool", "train_images",
             "test_images")  # fmt: skip
    tournament = Tournament(
        methods=tuple(options.methods),
        rates=tuple(sorted(set(options.rates))),
        **{name: getattr(options, name) for name in names},
    )
    results = tournament.run(options.output, workers)
    text, files = write_summary(tournament, results, options.output, plots=not options.no_plots)
    print(text)
    print()
    print("\n".join(f"wrote {file}" for file in files))
    return 0
