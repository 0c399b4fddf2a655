"""What the compiler's planner takes commands for, beside what they take on the model."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.table import Table

from compiler.codegen.cost import Command, duration, executions
from compiler.training.program import TrainingProgram
from hw.isa.encoding import QUEUE_OPCODES, Opcode
from perf.machine.events.work import Works

__all__ = ["Planned", "planned_cycles", "planner_table"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """All commands of a queue, with those in loops as often as they are executed. Cycles are those
    that the queue is busy for, with nothing else at work.

    Members
    -------
    batch, core, opcode : of the queue; of WEIGHTS there are none, as their time is MATMUL's
    commands : executed
    planned, measured : cycles by :func:`compiler.codegen.cost.duration`, and on the model
    apart : the sum of the differences of all commands, without their signs
    """

    batch: str
    core: int
    opcode: str
    commands: int
    planned: int
    measured: int
    apart: int

    @property
    def error(self) -> float:
        """Of all cycles, relative to those measured."""
        return (self.planned - self.measured) / self.measured

    @property
    def distance(self) -> float:
        """What commands differ by, relative to all cycles."""
        return self.apart / self.measured


def planned_cycles(batch: str, program: TrainingProgram, works: Works) -> list[Planned]:
    """Each queue of a program that has commands, by core and opcode.

    A LOAD or STORE is measured where its first iteration finds its data.
    """
    config = program.config
    commands = program.command_list
    stream = list(commands)
    kinds, which = works.of(stream)
    times = executions(len(stream), commands.of(Opcode.REPEAT), program.program)
    sums: dict[tuple[int, Opcode], list[int]] = {}
    for place, (opcode, fields) in enumerate(stream):
        if opcode not in QUEUE_OPCODES or opcode is Opcode.WEIGHTS:
            continue
        granule = fields.get("dram_address", 0) // config.granule_bytes % which.shape[1]
        measured = int(kinds[which[place, granule]]["cycles"])
        planned = duration(Command.decoded(opcode, fields), config)[0]
        often = int(times[place])
        found = sums.setdefault((fields["core"], opcode), [0, 0, 0, 0])
        parts = (1, planned, measured, abs(planned - measured))
        found[:] = [total + often * part for total, part in zip(found, parts, strict=True)]
    return [
        Planned(
            batch=batch, core=core, opcode=opcode.name, commands=count, planned=planned,
            measured=measured, apart=apart,
        )
        for (core, opcode), (count, planned, measured, apart) in sorted(sums.items())
    ]  # fmt: skip


def planner_table(found: Iterable[Planned]) -> Table:
    """A row for each queue."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("batch", "core", "queue"):
        table.add_column(heading)
    for heading in ("commands", "planner's cycles", "measured", "error", "commands differ by"):
        table.add_column(heading, justify="right")
    for item in found:
        table.add_row(
            item.batch, f"{item.core}", item.opcode, f"{item.commands:,}", f"{item.planned:,}",
            f"{item.measured:,}", f"{item.error:+.2%}", f"{item.distance:.2%}",
        )  # fmt: skip
    return table
