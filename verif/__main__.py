"""Command line of the verification: ``python -m verif``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("verif")  # before imports that take seconds

import argparse
import sys
import time

from rich.console import Console
from rich.markup import escape

from cli.workers import add_workers, workers_of
from hw.config import PRESETS, VARIANTS, ConfigError
from hw.config.selection import add_settings, select_config
from hw.formats import FORMATS
from verif.sim.results import SimulationFailed
from verif.sim.runner import BuildFailed

from . import tables as report
from .coverage import command as coverage
from .elsewhere import run_elsewhere
from .fuzz import command as fuzz
from .mutate import command as mutate
from .prove import command as prove

#: What tries to break the hardware; each has its own options and reports.
_CAMPAIGNS = {"coverage": coverage, "fuzz": fuzz, "mutate": mutate, "prove": prove}


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m verif",
        description="Run the accelerator's RTL in Verilator and compare it bit for bit with the "
        "golden models.",
        epilog="Exit status: 0 all right, 1 a mismatch or a failed simulation, 2 wrong input, "
        "130 interrupted.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run cases of the regression",
        description="Run cases of the regression; every program runs twice without a reset in "
        "between, and everything it stores is compared.",
        epilog="Example: python -m verif run networks --network resnet50 --device emulator",
    )
    run.add_argument("cases", nargs="*", metavar="CASE", help="names from --list, or all")
    run.add_argument("--list", action="store_true", help="list the cases and end")
    run.add_argument(
        "--variant",
        default="all",
        choices=(*VARIANTS, "all"),
        help="of digits, train-... and networks (default: all; train-digits: baseline and max; "
        "train-adagp: all but baseline; train-braking, -echo, -vcas and networks: max)",
    )
    run.add_argument("--preset", default="tiny", help=f"{', '.join(PRESETS)} (default: tiny)")
    run.add_argument("--seed", type=int, default=1, help="of everything random (default: 1)")
    run.add_argument("--images", type=int, default=200, help="of digits (default: 200)")
    run.add_argument(
        "--batches",
        type=int,
        help="of train-digits, -braking, -echo and -vcas (default: 60; --quick: 3), train-adagp "
        "(default: 40; --quick: 8) and networks (default: 2 of backpropagation, 4 of ADA-GP)",
    )
    run.add_argument(
        "--batch-size", type=int, default=16, help="images in each of them (default: 16)"
    )
    run.add_argument(
        "--network", action="append", metavar="NAME",
        help="of networks; may be repeated (default: all of them; --quick: three)",
    )  # fmt: skip
    run.add_argument(
        "--method", choices=("bp", "adagp"), help="of networks (default: one after the other)"
    )
    run.add_argument(
        "--device", choices=("rtl", "emulator", "interpreter"),
        help="of networks: the Verilog (default), the emulator, or the model that looks for races "
        "in random orders",
    )  # fmt: skip
    run.add_argument(
        "--width", type=float,
        help="of networks: multiplies the numbers of channels, on images of 32 x 32; 1 for those "
        "of the publication (default: a sixteenth, on 8 x 8 where that is the same graph)",
    )  # fmt: skip
    run.add_argument(
        "--beside", action="store_true",
        help="of networks: steps run beside each other in short batches, too",
    )  # fmt: skip
    run.add_argument("--json", metavar="FILE", help="what networks prints, to this file as well")
    run.add_argument("--format", choices=tuple(FORMATS), help="operand format")
    add_settings(run)
    run.add_argument("--quick", action="store_true", help="fewer and smaller runs of each case")
    run.add_argument("--stalls", action="store_true", help="the memory pauses and answers late")
    run.add_argument("--waves", action="store_true", help="leave VCD waveforms for GTKWave")
    add_workers(run, jobs=1, what="cases")

    bench = commands.add_parser(
        "bench",
        help="measure utilisation and simulation speed",
        description="Measure array utilisation with the RTL's own counters, emission time and "
        "simulation speed; results are checked bit for bit.",
    )
    bench.add_argument(
        "--case",
        default="all",
        choices=("conv", "matmul", "all", "layers", "emulator"),
        help="layers: every layer of a training step in each direction; emulator: images per "
        "second of the emulator and golden (default: conv and matmul)",
    )
    bench.add_argument("--images", type=int, default=8, help="of layers and emulator (default: 8)")
    bench.add_argument("--variant", default="baseline", choices=tuple(VARIANTS))
    bench.add_argument("--preset", default="paper", help="default: paper")
    bench.add_argument("--format", choices=tuple(FORMATS), help="operand format")
    add_settings(bench)
    bench.add_argument("--seed", type=int, default=1)
    bench.add_argument("--json", metavar="FILE", help="write everything to this file as well")

    cycles = commands.add_parser(
        "cycles",
        help="cycles of ADA-GP by layer, phase and variant",
        description="Run a batch of backpropagation and one of Phase GP of a VGG-like network on "
        "every variant; print cycles of every layer from the RTL, what the predictor adds, the "
        "speed-up over baseline for the paper's schedule (A: 90 epochs, 10 of them warm-up) and a "
        "steady 1:1 (B), and memory traffic. Everything is compared with golden.",
    )
    cycles.add_argument(
        "--preset", action="append", metavar="PRESET", help="may be repeated (default: paper, tiny)"
    )
    cycles.add_argument(
        "--images", type=int, help="in a batch (default: 64 for the paper's size, else 8)"
    )
    cycles.add_argument("--size", type=int, default=16, help="of the images (default: 16)")
    cycles.add_argument("--seed", type=int, default=1)
    cycles.add_argument(
        "--output", default="build/cycles", metavar="DIR",
        help="for cycles.json and cycles.png (default: build/cycles)",
    )  # fmt: skip
    add_settings(cycles)

    for campaign in _CAMPAIGNS.values():
        campaign.add_parser(commands)
    return parser


def main(arguments=None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=False)
    try:
        if options.command in _CAMPAIGNS:
            return _CAMPAIGNS[options.command].main(options, console)
        if options.command == "cycles":
            from verif.performance import cycles_report

            return cycles_report.main(options, _cycle_settings(options), console)
        settings = _settings(options)
        if options.command == "bench":
            from verif.performance import bench

            return bench.main(options, settings, console)
        return _run(options, settings, console)
    except (ConfigError, ValueError, OSError) as error:
        print(f"verif: {error}", file=sys.stderr)
        return 2


def _cycle_settings(options):
    """The fields that ``--set`` gives, checked with each preset."""
    if options.images is not None and options.images < 1:
        raise ValueError(f"--images must be at least 1, not {options.images}")
    if options.size < 8 or options.size % 8:
        raise ValueError(f"--size must be a multiple of 8, not {options.size}")
    names = [setting.partition("=")[0] for setting in options.settings]
    for preset in options.preset or ["paper", "tiny"]:
        config = select_config(variant="max", preset=preset, settings=options.settings)
    return {name: getattr(config, name) for name in names}


def _settings(options):
    """The fields that ``--set`` and ``--format`` give; checks them together with the preset."""
    settings = list(options.settings)
    if options.format is not None:
        settings.append(f"operand_format={options.format}")
    variant = "max" if options.variant == "all" else options.variant
    config = select_config(variant=variant, preset=options.preset, settings=settings)
    names = [setting.partition("=")[0] for setting in settings]
    return {name: getattr(config, name) for name in names}


def _run(options, settings, console):
    from verif.networks.reduced.network_step import print_network, print_networks, write_networks
    from verif.networks.reduced.reduced_networks import METHODS, REDUCED
    from verif.networks.train_adagp import print_adagp
    from verif.networks.train_digits import print_training

    from .regression import CASES, AdaGPStep, NetworkStep, Options, TrainingStep

    if options.list:
        width = max(map(len, CASES)) + 2
        for name, case in CASES.items():
            line = f"{name:{width}}{case.description}"
            console.print(line, highlight=False, soft_wrap=True)
        return 0
    names = list(CASES) if "all" in options.cases else options.cases
    unknown = [name for name in names if name not in CASES]
    if unknown or not names:
        what = f"unknown case {', '.join(unknown)}" if unknown else "no case named"
        raise ValueError(f"{what}; cases are {', '.join(CASES)}, all")
    networks = tuple(dict.fromkeys(options.network or REDUCED))
    if wrong := [name for name in networks if name not in REDUCED]:
        raise ValueError(f"unknown network {', '.join(wrong)}; networks are {', '.join(REDUCED)}")
    workers = workers_of(options)
    if workers.scheduler or (workers.jobs > 1 and len(names) > 1):
        if options.json or options.waves:
            raise ValueError("--json and --waves leave files: not with --scheduler or --jobs")
        return run_elsewhere(console, names, options, workers)
    own = [f"--{name}" for name in ("network", "method", "width", "device", "beside", "json")
           if getattr(options, name)]  # fmt: skip
    if options.width is not None and not 0 < options.width <= 4:
        raise ValueError(f"--width must be above 0 and at most 4, not {options.width:g}")
    if options.stalls and options.device in ("emulator", "interpreter"):
        raise ValueError(f"--stalls is of the RTL's memory, not of --device {options.device}")
    if own and "networks" not in names:
        raise ValueError(f"{own[0]} is of the case networks, which is not named")
    case_options = Options(
        variants=tuple(VARIANTS) if options.variant == "all" else (options.variant,),
        preset=options.preset,
        settings=settings,
        seed=options.seed,
        images=options.images,
        batches=options.batches,
        batch_size=options.batch_size,
        networks=networks,
        width=options.width,
        beside=options.beside or None,
        methods=(options.method,) if options.method else tuple(METHODS),
        device=options.device or "rtl",
        quick=options.quick,
        stalls=options.stalls,
        waves=options.waves,
        report=lambda line: console.print(line, style="dim", highlight=False),
    )
    console.print(f"seed {options.seed} (repeat with --seed {options.seed})", highlight=False)
    begin, steps, trained, failures = time.perf_counter(), [], [], []
    for name in names:
        iterator = CASES[name].run(case_options)
        while True:
            with console.status(f"{name}: building and simulating ..."):
                try:
                    step = next(iterator, None)
                except (SimulationFailed, BuildFailed) as error:
                    failures.append(f"{name}: {error}")
                    console.print(f"[red]FAIL[/] {name}: {escape(str(error))}", highlight=False)
                    break
            if step is None:
                break
            steps.append(step)
            if isinstance(step, AdaGPStep):
                print_adagp(console, step.name, step.training)
            elif isinstance(step, NetworkStep):
                print_network(console, step)
                trained.append(step)
                if options.json:
                    write_networks(options.json, trained)
            elif isinstance(step, TrainingStep):
                print_training(console, step)
            else:
                report.print_step(console, step)
            if not step.passed:
                failures.append(step.name)
    if trained:
        print_networks(console, trained)
    if names == ["digits"] and steps:
        report.print_digits(console, steps)
    verdict = f"[red]{len(failures)} failed[/]" if failures else "[green]all passed[/]"
    seconds = time.perf_counter() - begin
    console.print(f"{len(steps)} simulations, {verdict}, {seconds:.0f} s", highlight=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
