"""Cycles of every layer of a training step, each direction by itself, beside what bounds them."""

import copy
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich import box
from rich.table import Table
from torch import nn

from cli.atomic_files import write_whole
from compiler.codegen.binary.command_bytes import decode_commands
from compiler.codegen.cost import post_cycles
from compiler.codegen.program import executed_commands
from compiler.training.compile import compile_training
from golden.layers.optimizer import SGD
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.vector import VECTOR_LOOPS, Source
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun
from verif.system import accelerator
from verif.system.record import BASE

__all__ = ["LayerNetwork", "bounds", "layer_table", "measure_layers"]


class LayerNetwork(nn.Module):
    """Every kind of layer once, on maps of 16 x 16: products of 16 to 64 channels."""

    INPUT_SHAPE = (16, 16, 16)

    def __init__(self, classes=10):
        super().__init__()
        self.conv16 = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.conv32 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.conv1x1 = nn.Conv2d(32, 32, 1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.grouped = nn.Conv2d(32, 32, 3, padding=1, groups=2)
        self.strided = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.conv64 = nn.Conv2d(64, 64, 3, padding=1)
        self.max_pool = nn.MaxPool2d(2)
        self.average_pool = nn.AvgPool2d(2)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(64 * 2 * 2, classes)

    def forward(self, x):
        x = x + self.relu(self.norm(self.conv16(x)))
        x = self.conv1x1(torch.relu(self.conv32(x)))
        x = self.grouped(x + self.depthwise(x))
        x = self.max_pool(self.conv64(self.strided(x)))
        return self.linear(self.flatten(self.average_pool(x)))


def measure_layers(config, *, images=8, seed=1, model=None, input_shape=None, report=None):
    """One training step, every layer and direction as a program of its own.

    Returns
    -------
    (list of dict, list of differences)
        ``layer``, ``direction``, ``cycles``, ``vectors`` (cycles in which the array was given a
        vector), ``read_bytes``, ``write_bytes``, ``bounds`` (name -> cycles), ``counters``; and
        what is not golden's, which should be nothing.
    """
    torch.manual_seed(seed)
    model = LayerNetwork() if model is None else model
    shape = input_shape or model.INPUT_SHAPE
    rng = np.random.default_rng(seed)
    batch = Batch(
        images=rng.standard_normal((images, *shape[1:], shape[0])).astype(np.float32),
        targets=rng.integers(0, 10, images),
        optimizer=SGD(learning_rate=0.01, momentum=0.9, weight_decay=1e-4),
    )
    training = TrainingRun(model, config, shape, [batch])
    program = compile_training(
        copy.deepcopy(model).train(), config, shape, images=images, separate=True
    )
    image = program.memory(training.model.state_dict())
    for offset, data in program.batch(training.golden.encode_input(batch.images), batch.targets):
        image[offset : offset + len(data)] = data
    image, registers = bytes(image), training.registers(batch)
    runs = [
        accelerator.Run(
            image=None if number else image,
            program=program.program + step.first * COMMAND_BYTES,
            program_size=step.command_count * COMMAND_BYTES,
            registers=registers,
        )
        for number, step in enumerate(program.steps)
    ]
    simulator = accelerator.build(config, memory_bytes=BASE + len(image))
    with tempfile.TemporaryDirectory() as place:
        outcomes, _ = accelerator.run(
            simulator, runs, seed=seed, latency=30, directory=Path(place) / "run"
        )
    rows = []
    for step, outcome in zip(program.steps, outcomes, strict=True):
        record = outcome.record
        if record.error or not record.done:
            raise RuntimeError(f"{step.name} ended with {record.code} of {record.unit}")
        counters = record.counters
        rows.append(
            {
                "layer": step.layer,
                "direction": step.direction,
                "cycles": counters["CYCLES"],
                "vectors": counters["CORE0_VECTORS"],
                "read_bytes": counters["READ_BYTES"],
                "write_bytes": counters["WRITE_BYTES"],
                "bounds": bounds(_executed(program, step), counters, config.cores[0]),
                "counters": counters,
            }
        )
    # The separate programs have a layout of their own.
    training.program = program
    differences, _ = training.compare(0, outcomes[-1].memory)
    return rows, differences


def _executed(program, step):
    """Commands of a step, those in loops as often as they are executed."""
    begin, end = (place * COMMAND_BYTES for place in (step.first, step.last))
    commands = decode_commands(program.commands[begin:end])
    return executed_commands(commands, program.program + begin)


def bounds(commands, counters, core):
    """Cycles that each part needs at least for these commands, whatever the others do.

    array : a vector per cycle
    bus : a beat per cycle and direction
    post : ``post_groups`` groups, or an element of the pooling windows of as many, per cycle
    vector : a group per cycle, a float32 group as many cycles as it has chunks
    """
    post = vector = 0
    for opcode, fields in commands:
        if opcode is Opcode.POST:
            post += post_cycles(fields, core)
        elif opcode is Opcode.VECTOR:
            wide = _streams_wide(fields)
            steps = _product(fields, VECTOR_LOOPS) * core.groups_per_word
            # Chunks of a float32 word come one per cycle when a word has too few groups.
            vector += steps * (core.chunks_per_wide if wide and core.groups_per_word % 2 else 1)
    return {
        "array": counters["CORE0_VECTORS"],
        "bus": max(counters["READ_BEATS"], counters["WRITE_BEATS"]),
        "post": post,
        "vector": vector,
    }


def _streams_wide(fields):
    """Whether a float32 number comes or goes with every step of a VECTOR command."""
    if fields["wide"] and not fields["reduce"]:
        return True
    return any(
        fields[f"{stream}_source"] == Source.WIDE
        and any(fields[f"{stream}_{loop}_stride"] for loop in VECTOR_LOOPS[:-1])
        for stream in "xyz"
    )


def _product(fields, loops):
    result = 1
    for name in loops:
        result *= fields[f"{name}_count"]
    return result


def layer_table(rows, config) -> Table:
    """One line per layer and direction."""
    table = Table(
        box=box.SIMPLE,
        title=f"training step, {config.rows} x {config.columns} {config.operand_format}",
    )
    for heading in ("layer", "direction"):
        table.add_column(heading)
    for heading in ("cycles", "array busy", "bytes read", "written", "bound", "by", "of bound"):
        table.add_column(heading, justify="right")
    for row in rows:
        by, bound = max(row["bounds"].items(), key=lambda item: item[1])
        table.add_row(
            row["layer"],
            row["direction"],
            f"{row['cycles']:,}",
            f"{row['vectors'] / row['cycles']:.1%}",
            f"{row['read_bytes']:,}",
            f"{row['write_bytes']:,}",
            f"{bound:,}",
            by,
            f"{row['cycles'] / bound:.2f}" if bound else "",
        )
    return table


def main(options, config, console) -> int:
    """``python -m verif bench --case layers``; returns the exit status."""
    with console.status("layers: building and simulating ..."):
        rows, differences = measure_layers(config, images=options.images, seed=options.seed)
    if not console.is_terminal:
        console.width = max(console.width, 130)  # nobody's window would cut it short
    console.print(layer_table(rows, config))
    for difference in differences:
        console.print(str(difference), markup=False, highlight=False)
    if options.json:
        document = {"config": config.as_dict(), "seed": options.seed, "layers": rows}
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
    return 1 if differences else 0
