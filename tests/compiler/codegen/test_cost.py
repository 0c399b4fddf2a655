"""The estimate of loops is that of the same commands written out."""

from compiler.codegen.cost import Command, estimate, executed, executions
from hw.config import make_config
from hw.isa.encoding import Opcode

CONFIG = make_config(variant="baseline", preset="tiny")


def load(address):
    fields = {"buffer_address": 0, "dram_address": address, "run_bytes": 8, "row_bytes": 8}
    return Command(Opcode.LOAD, fields=fields)


def repeat(level, count, first):
    return Command(
        Opcode.REPEAT, fields={"level": level, "count": count, "first": 64 * first}
    )  # fmt: skip


LOOPS = [load(0), load(1), load(2), repeat(3, 3, 2), repeat(0, 2, 1), load(3), Command(Opcode.HALT)]


def test_loops_are_executed_as_often_as_they_are():
    commands = list(executed(LOOPS))
    addresses = [c.fields["dram_address"] for c in commands if c.opcode is Opcode.LOAD]
    assert addresses == [0, 1, 2, 2, 2, 1, 2, 2, 2, 3]
    assert sum(c.opcode is Opcode.REPEAT for c in commands) == 8
    assert commands[-1].opcode is Opcode.HALT
    for offset in (0, 4096):
        repeats = [
            (place, c.fields | {"first": c.fields["first"] + offset})
            for place, c in enumerate(LOOPS) if c.opcode is Opcode.REPEAT
        ]  # fmt: skip
        times = executions(len(LOOPS), repeats, offset)
        for command, count in zip(LOOPS, times, strict=True):
            if command.opcode is not Opcode.REPEAT:
                assert count == sum(c is command for c in commands)
        assert [times[3], times[4]] == [2, 1]


def test_a_loop_takes_its_commands():
    written_out = [c for c in executed(LOOPS) if c.opcode is not Opcode.REPEAT]
    assert estimate(LOOPS, CONFIG) >= estimate(written_out, CONFIG)
    assert estimate(written_out, CONFIG) > estimate(LOOPS[:3], CONFIG)
