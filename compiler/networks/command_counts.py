"""What a program's commands are for: kinds of steps, types of commands, and loops."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from rich import box
from rich.table import Table

from compiler.adagp.program import AdaGPProgram
from compiler.codegen.cost import executions
from compiler.training.program import TrainingProgram
from hw.isa.encoding import Opcode

__all__ = ["CommandCount", "command_counts", "counts_table"]


@dataclass(kw_only=True)
class CommandCount:
    """Commands of the steps in one direction.

    Members
    -------
    steps : how many
    written : commands in DRAM
    looped : those of them that are in a loop
    executed : commands without REPEAT, those in loops as often as they are executed
    opcodes : commands in DRAM by type
    """

    steps: int = 0
    written: int = 0
    looped: int = 0
    executed: int = 0
    opcodes: Counter[Opcode] = field(default_factory=Counter)


def command_counts(program: TrainingProgram) -> dict[str, CommandCount]:
    """Direction of steps -> their commands; HALT belongs to none."""
    commands = program.command_list
    codes = commands.codes
    times = executions(len(codes), commands.of(Opcode.REPEAT), program.program)
    counts: dict[str, CommandCount] = {}
    for step in program.steps:
        found = counts.setdefault(step.direction, CommandCount())
        found.steps += 1
        places = np.fromiter(step.places, np.int64)
        own, often = codes[places], times[places]
        found.written += len(own)
        found.looped += int((often > 1).sum())
        found.executed += int(often[own != Opcode.REPEAT].sum())
        numbers = np.unique_counts(own)
        for code, number in zip(numbers.values, numbers.counts, strict=True):
            found.opcodes[Opcode(code)] += int(number)
    return counts


def counts_table(program: TrainingProgram | AdaGPProgram) -> Table:
    """A row for each program and direction of steps, those with most commands first."""
    parts: Mapping[str, TrainingProgram] = (
        program.parts if isinstance(program, AdaGPProgram) else {"bp": program}
    )
    counts = {name: command_counts(part) for name, part in parts.items()}
    every = [count for found in counts.values() for count in found.values()]
    opcodes = [opcode for opcode in Opcode if any(count.opcodes[opcode] for count in every)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("program", "steps"):
        table.add_column(heading, no_wrap=True)
    for heading in ("number", "commands", "in loops", "executed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for opcode in opcodes:
        table.add_column(opcode.name, justify="right", no_wrap=True)
    for name, found in counts.items():
        for direction, count in sorted(found.items(), key=lambda item: -item[1].written):
            numbers = (count.steps, count.written, count.looped, count.executed)
            numbers += tuple(count.opcodes[opcode] for opcode in opcodes)
            table.add_row(name, direction, *(f"{number:,}" for number in numbers))
    return table
