"""Command line of the models of time: ``python -m perf cycles``, ``validate``, ``analytic``,
``planner``, ``pipelines``, ``steps``, ``count``, ``report``, ``area``, ``energy``, ``roofline``,
``explore``."""

import sys

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("perf")  # before imports that take seconds

import argparse
from collections.abc import Sequence

from perf.analytic.command import add_analytic
from perf.area.command import add_area
from perf.counted.command import add_count
from perf.energy.command import add_energy
from perf.explore.command import add_explore
from perf.machine.command import add_cycles
from perf.machine.sampled_command import add_sampled
from perf.machine.steps_command import add_steps
from perf.pipelines.command import add_pipelines
from perf.report.command import add_report
from perf.roofline.command import add_roofline
from perf.validation.command import add_validate
from perf.validation.planner_command import add_planner

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m perf", description="Models of what the paper's evaluation shows."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add_cycles(commands)
    add_steps(commands)
    add_sampled(commands)
    add_count(commands)
    add_report(commands)
    add_area(commands)
    add_energy(commands)
    add_roofline(commands)
    add_explore(commands)
    add_validate(commands)
    add_planner(commands)
    add_analytic(commands)
    add_pipelines(commands)
    options = parser.parse_args(arguments)
    try:
        return options.action(options)
    except (OSError, ValueError) as error:
        print(f"python -m perf {options.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
