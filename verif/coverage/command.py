"""The command line of ``python -m verif coverage``."""

import argparse

from .configs import PARTS, QUICK

__all__ = ["add_parser", "main"]

_EPILOG = """example:
  python -m verif coverage --quick
  python -m verif coverage --config max --seed 7
  python -m verif coverage --counts build/coverage/counts.json

exit status: 0 all right; 1 a simulation failed, or (if everything was simulated) a point is not
reached and has no reason in verif/coverage/waivers.toml, or a waiver there matches nothing;
2 wrong input."""


def add_parser(commands) -> None:
    """Add ``coverage`` to the subcommands of ``python -m verif``."""
    parser = commands.add_parser(
        "coverage",
        help="lines, toggles and functional points that the simulations reach",
        description="Run checked programs on small configurations of every variant, count what "
        "they reach of lines, toggles and functional points (docs/verification.md), and report it "
        "for every module of hw/, with the reason of what is never reached.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(PARTS)}; may be repeated (default: all; --quick: "
        f"{', '.join(QUICK)})",
    )
    parser.add_argument("--quick", action="store_true", help="fewer stimuli, one configuration")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default: 1)")
    parser.add_argument(
        "--counts",
        action="append",
        metavar="FILE",
        help="simulate nothing, but judge what earlier runs have counted (their counts.json); may "
        "be repeated, for runs with --config",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="for report.md, coverage.json and counts.json (default: coverage/ of the build "
        "directory)",
    )


def main(options, console) -> int:
    """Run the campaign; returns the exit status."""
    if unknown := [name for name in options.config or () if name not in PARTS]:
        raise ValueError(f"unknown configuration {', '.join(unknown)}; they are {', '.join(PARTS)}")
    if options.counts and (options.config or options.quick):
        raise ValueError("--counts simulates nothing; it takes neither --config nor --quick")
    from .campaign import main as run  # torch comes with it

    return run(options, console)
