"""How fast the emulator is: images per second of a training step, beside golden's."""

import json
import os
import platform
import time

import torch
from rich import box
from rich.table import Table

from algorithms.networks import digits_cnn
from cli.atomic_files import write_whole
from compiler.training import compile_training
from emulator.executor import execute
from emulator.machine import Machine
from golden.arithmetic.float32_unit import constant
from golden.layers.optimizer import SGD
from golden.training.step import Training

__all__ = ["emulator_table", "main", "measure_emulator"]

LEARNING_RATE = 0.05


def measure_emulator(config, *, images: int, seed: int, repeat: int = 3) -> dict:
    """One batch of the digits CNN with batch normalisation, forward to update.

    Returns
    -------
    ``commands`` of the program; ``rows``: name, seconds of processor time of the first run, and
    the least of ``repeat`` more; ``differences``: bytes in which the memories of the two emulators
    differ

    Notes
    -----
    The first run with kernels loads them from disk, or compiles them if they are not there.
    """
    torch.manual_seed(seed)
    model = digits_cnn.NormalizedDigitsCNN()
    shape = digits_cnn.INPUT_SHAPE
    data = digits_cnn.load(seed)
    batch = data.train_images[:images], data.train_labels[:images]
    program = compile_training(model, config, shape, images=images)
    memory = program.memory(model.state_dict())
    for offset, raw in program.batch(*batch):
        memory[offset : offset + len(raw)] = raw
    memories = {}

    def emulate(kernels):
        window = bytearray(memory)
        coefficients = (int(constant(LEARNING_RATE)), *[0] * 7)
        machine = Machine(config, window, coefficients=coefficients, guard=True, kernels=kernels)
        assert not list(execute(machine, program.commands))
        memories[kernels] = window

    golden = Training(
        model, input_shape=shape,
        optimizer=SGD(learning_rate=LEARNING_RATE, momentum=0.0, weight_decay=0.0),
        rows=config.rows, columns=config.columns, operand_format=config.operand_format,
    )  # fmt: skip
    ways = {
        "emulator": lambda: emulate(True),
        "emulator, golden's functions": lambda: emulate(False),
        "golden": lambda: golden.step(*batch),
    }
    rows = []
    for name, run in ways.items():
        first, *others = (_seconds(run) for _ in range(1 + repeat))
        rows.append({"name": name, "first_seconds": first, "seconds": min(others)})
    both = zip(memories[True], memories[False], strict=True)
    return {
        "images": images,
        "commands": len(program.command_list),
        "rows": rows,
        "differences": sum(one != other for one, other in both),
    }


def _seconds(run):
    begin = time.process_time()
    run()
    return time.process_time() - begin


def emulator_table(result: dict, config) -> Table:
    """One line per way."""
    table = Table(
        box=box.SIMPLE,
        title=f"training step of {result['images']} digits, {result['commands']:,} commands, "
        f"{config.variant}, {config.rows} x {config.columns} {config.operand_format}",
    )
    table.add_column("")
    for heading in ("processor time, first", "then", "images/s"):
        table.add_column(heading, justify="right")
    for row in result["rows"]:
        table.add_row(
            row["name"],
            f"{row['first_seconds']:.2f} s",
            f"{row['seconds']:.3f} s",
            f"{result['images'] / row['seconds']:.1f}",
        )
    return table


def main(options, config, console) -> int:
    """``python -m verif bench --case emulator``; returns the exit status."""
    with console.status("emulator: executing ..."):
        result = measure_emulator(config, images=options.images, seed=options.seed)
    console.print(emulator_table(result, config))
    if result["differences"]:
        console.print(f"[red]the memories differ in {result['differences']} bytes[/]")
    if options.json:
        machine = {"processor": platform.machine(), "cpus": os.cpu_count()}
        document = {"config": config.as_dict(), "seed": options.seed, "machine": machine}
        write_whole(options.json, json.dumps(document | {"result": result}, indent=1) + "\n")
    return 1 if result["differences"] else 0
