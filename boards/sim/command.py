"""``python -m boards sim``: a board simulated at its pins."""

import argparse
import time

from rich.console import Console

from boards.catalogue import BOARDS, Board, BoardError
from boards.options import add_system, board_of, system_of, whole
from boards.soc.sdram.timing import FAULTS
from boards.soc.system import SystemConfig
from runtime.serial_device import SerialDevice
from verif.system.device import RtlDevice

from .litex import LITEX, compile_litex
from .memory_test import LEAST, memory_test
from .networks import RUNS, prepare_network
from .port import BoardPort, run_host
from .simulator import BoardProcess, compile_board, violations

__all__ = ["add_arguments", "run"]

#: Bursts of the memory test.
_REQUESTS = 20_000
#: Cycles that a network may take, by those with a memory that answers at once.
_MOST_CYCLES = 1.15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Examples: python -m boards sim ulx3s --run train-digits --batches 3; python -m boards "
        "sim ulx3s --memory-test --requests 50000 --seeds 1,2,3; python -m boards sim ulx3s --host "
        "'python -m boards self-test ulx3s --port {port} --timeout 60'"
    )
    add = parser.add_argument
    add("board", help=f"one of {', '.join(BOARDS)}, or {LITEX}, a LiteX SoC at the same pins")
    add("--run", choices=tuple(RUNS), help="a network, through serial line and SDRAM")
    add("--memory-test", action="store_true", help="traffic on the memory controller")
    add("--serve", action="store_true",
        help="a serial port of this system, until Ctrl-C, for any host")  # fmt: skip
    add("--host", metavar="COMMAND",
        help="the same while a program runs; {port} in it is the port's path")  # fmt: skip
    add("--break", dest="broken", choices=FAULTS, default="",
        help="controller and chip do not fit each other: the checks must notice")  # fmt: skip
    add("--requests", type=whole(1), default=_REQUESTS,
        help=f"bursts of each kind of traffic ({_REQUESTS})")  # fmt: skip
    add("--seeds", type=_seeds, default=(1,),
        help="of --run and --memory-test, separated by commas (1)")  # fmt: skip
    add("--images", type=whole(1), default=16, help="of digits, or in a batch (16)")
    add("--batches", type=whole(1), help="of a training (2; train-adagp: 4)")
    add("--no-ideal", action="store_true", help="do not compare cycles with those of ideal memory")
    add("--most-cycles", type=float, default=_MOST_CYCLES, metavar="FACTOR",
        help=f"that a network may take, of those with ideal memory ({_MOST_CYCLES})")  # fmt: skip
    add_system(parser, variant="baseline; with --run train-adagp low")


def _seeds(text):
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be numbers separated by commas, not {text!r}"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 if all is right, 1 if something is wrong."""
    if arguments.board == LITEX and (arguments.memory_test or arguments.broken):
        raise BoardError(f"{LITEX} has neither --memory-test nor --break")
    board = board_of(arguments, "ulx3s" if arguments.board == LITEX else None)
    chosen = (arguments.run, arguments.memory_test, arguments.serve, arguments.host)
    if sum(map(bool, chosen)) != 1:
        raise BoardError("give one of --run, --memory-test, --serve and --host")
    variant = "low" if arguments.run == "train-adagp" else "baseline"
    # The fastest line that the receiver takes: only the simulation's time depends on it.
    config = system_of(board, arguments, variant=variant, fastest=True)
    console = Console(highlight=False)
    if arguments.memory_test:
        return _memory(config, arguments, console)
    if not arguments.run:
        return _serve(board, config, arguments, console)
    return _network(board, config, arguments, console)


def _memory(config: SystemConfig, arguments, console) -> int:
    good = True
    console.print(
        f"SDRAM {config.chip.name} at {config.sdram.clock_mhz:g} MHz, CAS latency "
        f"{config.sdram.cas}, port of {config.accelerator.axi_data_width} bits at "
        f"{config.clock_mhz:g} MHz",
        soft_wrap=True,
    )
    for seed in arguments.seeds:
        for kind, least in LEAST.items():
            result = memory_test(
                config.chip, clock_mhz=config.sdram.clock_mhz, ratio=config.ratio,
                data_width=config.accelerator.axi_data_width, kind=kind,
                requests=arguments.requests, seed=seed, broken=arguments.broken,
            )  # fmt: skip
            good &= result.passed
            console.print(
                f"{_verdict(result.passed)} {kind}, seed {seed}: {arguments.requests:,} bursts, "
                f"{result.bytes:,} bytes, {result.rate:.3f} bytes per SDRAM cycle"
                + (f" (at least {least:g})" if least else "")
                + f"; {violations(result.violations)}, {result.wrong} wrong; "
                f"{result.refreshes} refresh{'' if result.refreshes == 1 else 'es'}",
                soft_wrap=True,
            )
            if result.text:
                console.print(result.text, soft_wrap=True, markup=False)
    return 0 if good else 1


def _compile(board: Board, config: SystemConfig, arguments):
    """The program that simulates, and what a host does first."""
    if arguments.board != LITEX:
        return compile_board(board, config, broken=arguments.broken), lambda line: None
    return compile_litex(config)


def _serve(board: Board, config: SystemConfig, arguments, console) -> int:
    program, start = _compile(board, config, arguments)
    with (
        BoardProcess(program, clock_hz=config.clock_hz) as process,
        BoardPort(process, clock_hz=config.clock_hz) as port,
    ):
        start(process)

        def say():
            status = process.status()
            console.print(
                f"{int(status['cycles']):,} cycles, {violations(status['violations'])} of the "
                f"SDRAM's rules" + (f"; {status['text']}" if "text" in status else ""),
                soft_wrap=True, markup=False,
            )  # fmt: skip
            return "text" not in status

        console.print(
            f"{arguments.board}, configuration {config.accelerator.hash}: serial:{port.path}",
            soft_wrap=True,
        )
        if arguments.serve:
            port.serve(lambda: False, say)
        status = run_host(port, arguments.host)
        good = say() and not status
    if status:
        console.print(f"the host ended with {status}")
    return 0 if good else 1


def _network(board: Board, config: SystemConfig, arguments, console) -> int:
    accelerator = config.accelerator
    console.print(
        f"{arguments.board}: {accelerator.variant}, {accelerator.rows} x {accelerator.columns} PEs "
        f"of {accelerator.operand_format}, {config.clock_mhz:g} MHz; SDRAM {config.chip.name} at "
        f"{config.sdram.clock_mhz:g} MHz; serial line {config.baud:,} bit/s",
        soft_wrap=True,
    )
    batches = arguments.batches or (4 if arguments.run == "train-adagp" else 2)
    try:
        networks = {
            seed: prepare_network(
                arguments.run, accelerator, images=arguments.images, batches=batches, seed=seed
            )
            for seed in arguments.seeds
        }
    except ValueError as error:
        raise BoardError(str(error)) from None
    simulation = _compile(board, config, arguments)
    good = True
    for seed, network in networks.items():
        name = arguments.run + (f", seed {seed}" if len(networks) > 1 else "")
        good &= _run_network(config, arguments, (name, network), simulation, console)
    return 0 if good else 1


def _run_network(config: SystemConfig, arguments, named, simulation, console) -> bool:
    """Whether all is right."""
    accelerator, (name, network), (program, start) = config.accelerator, named, simulation
    if not arguments.no_ideal:
        device = RtlDevice(accelerator, network.window_bytes)
        try:
            ideal = network.run(device)
        finally:
            device.close()
    began = time.monotonic()

    def progress(text):
        console.print(f"  {time.monotonic() - began:6.0f} s  {text}")

    with BoardProcess(program, clock_hz=config.clock_hz) as line:
        start(line)
        device = SerialDevice(accelerator, network.window_bytes, line=line)
        result = network.run(device, progress)
        overrun = device.overrun()
        chip = line.status()
    good = not result.wrong and chip["violations"] == "0" and "text" not in chip and not overrun
    good = good and chip["framing_errors"] == "0"
    slow = 0.0 if arguments.no_ideal else sum(result.cycles) / sum(ideal.cycles)
    good = good and slow <= arguments.most_cycles
    what = "bytes" if arguments.run == "digits" else "numbers"
    cycles = sum(result.cycles)
    text = (
        f"{_verdict(good)} {name}: {result.wrong} of {result.compared:,} {what} differ "
        f"from golden; {violations(chip['violations'])} of the SDRAM's rules; {cycles:,} cycles"
    )
    if not arguments.no_ideal:
        text += f", {slow:.3f} x those with ideal memory ({sum(ideal.cycles):,})"
    text += f"; {result.moved / cycles * config.clock_mhz:.0f} MB/s"
    spent = int(chip["cycles"])
    text += f"; {spent:,} cycles in all, {spent / max(result.seconds, 1e-9) / 1000:.0f} kcycles/s"
    for number, loss in enumerate(result.losses, 1):
        console.print(f"  batch {number}: loss {'-' if loss is None else f'{loss:.4f}'}, "
                      f"{result.cycles[number - 1]:,} cycles")  # fmt: skip
    console.print(text, soft_wrap=True)
    for line in [*result.differences, *([chip["text"]] if "text" in chip else [])]:
        console.print(line, soft_wrap=True, markup=False)
    if overrun:
        console.print("bytes to the board were lost")
    return good


def _verdict(good):
    return "[green]PASS[/]" if good else "[red]FAIL[/]"
