"""What the command lines of these examples share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console

from cli.interrupt import end_on_signals
from cli.progress import progress_bar
from hw.config import PRESETS, VARIANTS
from hw.config.selection import add_settings, select_config
from verif.networks.learning import DEVICES, Learned, losses_table

__all__ = ["Task", "main"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is learned.

    Members
    -------
    name, description : of the module, and for ``--help``
    batches : by default
    run : of a configuration, a number of batches and a seed, and options of
        :func:`verif.networks.learning.learn`; returns it
    judge : of what ``run`` returned and the seed: lines about golden and torch on new samples
    """

    name: str
    description: str
    batches: int
    run: Callable[..., Learned]
    judge: Callable[[Learned, int], list[str]]


def main(task: Task, arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 1 if the device differs from golden."""
    end_on_signals(task.name)
    options = _parser(task).parse_args(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    try:
        for name, least in (("seed", 0), ("batches", 1), ("on_device", 1)):
            if (value := getattr(options, name)) < least:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be at least {least}, not {value}"
                )
        config = select_config(
            variant=options.variant, preset=options.preset, settings=options.settings
        )
        with progress_bar(Console(stderr=True)) as bar:
            bar.add_task("training", total=None)
            learned = task.run(
                config, options.batches, options.seed, device=options.device,
                on_device=min(options.on_device, options.batches), report=bar.console.print,
            )  # fmt: skip
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console.print(losses_table(learned, max(1, options.batches // 10)))
    result = learned.result
    for difference in result.differences[:10] if result else ():
        console.print(str(difference), markup=False, soft_wrap=True)
    if result:
        verdict = "PASS" if result.passed else "FAIL"
        cycles = f", {sum(result.cycles):,} cycles" if result.cycles else ""
        console.print(
            f"{verdict} {task.name} on {config.variant}, {options.device}: {result.compared:,} "
            f"numbers after {len(result.losses)} batches, {len(result.differences)} tensors "
            f"differ from golden{cycles}",
            soft_wrap=True,
        )
    for line in task.judge(learned, options.seed):
        console.print(line, soft_wrap=True)
    return 0 if result is None or result.passed else 1


def _parser(task: Task) -> argparse.ArgumentParser:
    command = f".venv/bin/python -m {task.name}"
    parser = argparse.ArgumentParser(
        prog=command.removeprefix(".venv/bin/"), allow_abbrev=False, description=task.description,
        epilog=f"example: {command} --device rtl --on-device 1",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=DEVICES, default="emulator",
        help="what trains the first batches, too, and is compared with golden (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--on-device", type=int, default=2, metavar="N", help="how many of them (%(default)s)"
    )
    parser.add_argument(
        "--batches", type=int, default=task.batches, metavar="N", help="in all (%(default)s)"
    )
    parser.add_argument("--variant", choices=tuple(VARIANTS), default="baseline")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="tiny")
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=1, help="of weights and samples (%(default)s)")
    return parser
