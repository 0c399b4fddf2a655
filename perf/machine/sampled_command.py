"""``python -m perf sampled``: what backward passes take that keep a part of the images (VCAS)."""

import argparse

from rich import box
from rich.console import Console
from rich.table import Table

from cli.progress import progress_bar
from compiler.networks.command import chosen
from compiler.networks.registry import published
from compiler.training.compile import compile_training
from compiler.vcas import SampledProgram, compile_vcas

from .command import add_network, machine_of
from .layers import BatchCycles, time_batch

__all__ = ["add_sampled", "time_sampled"]

_PHASES = ("forward", "loss", "backward", "update")


def add_sampled(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "sampled",
        help="cycles of backward passes that keep a part of the images (VCAS)",
        description="Compile a network's batch, plain and with all convolutions sampled, and run "
        "both on the model of the machine, as if every convolution kept so many images. The "
        "backward pass is all that is neither forward pass, loss nor update: draws and copies too.",
        epilog="example: python -m perf sampled --network vgg13 --input 3x32x32 --batch 16 "
        "--kept 4",
    )
    command.set_defaults(action=_sampled)
    add_network(command)
    command.add_argument(
        "--kept", type=int, nargs="+", required=True, metavar="IMAGES", help="of the batch"
    )


def _sampled(options: argparse.Namespace) -> int:
    wrong = [kept for kept in options.kept if not 0 <= kept <= options.batch]
    if wrong:
        raise ValueError(f"--kept must be from 0 to the batch of {options.batch}, not {wrong[0]}")
    config = machine_of(options, f"row_list_depth={options.batch}")
    model, shape = chosen(options)
    more = {"images": options.batch, "loss": published(options.network).loss}
    names = [name for name, module in model.named_modules() if type(module).__name__ == "Conv2d"]
    kinds = dict.fromkeys(options.kept)
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("plain", total=1 + len(kinds))
        plain = compile_training(model, config, shape, **more)
        batches = {"plain": time_batch(plain, latency=options.latency, exact=False)}
        for kept in kinds:
            bar.update(task, advance=1, description=f"{kept} of {options.batch} kept")
            counts = sorted({max(kept, 1), options.batch})
            program = compile_vcas(model, config, shape, sampled=names, counts=counts, **more)
            batches[str(kept)] = time_sampled(program, kept, latency=options.latency)
    _print(batches, options.batch)
    return 0


def time_sampled(program: SampledProgram, kept: int, *, latency: int) -> BatchCycles:
    """A batch in which every sampled layer keeps the first ``kept`` images."""
    lists = [[image < kept for image in range(program.images)]] * len(program.shares)
    return time_batch(program, latency=latency, exact=False, lists=lists)


def _print(batches: dict[str, BatchCycles], images: int) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("kept", *_PHASES, "all", "bytes read", "bytes written", "backward / plain"):
        table.add_column(heading, justify="right")
    plain = _phases(batches["plain"])["backward"]
    for name, batch in batches.items():
        phases, result = _phases(batch), batch.result
        numbers = [*phases.values(), result.cycles, result.read_bytes, result.write_bytes]
        shown = name if name == "plain" else f"{name} of {images}"
        share = f"{phases['backward'] / plain:.3f}"
        table.add_row(shown, *(f"{number:,}" for number in numbers), share)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def _phases(batch: BatchCycles) -> dict[str, int]:
    return {phase: sum(layer.get(phase, 0) for layer in batch.layers.values()) for phase in _PHASES}
