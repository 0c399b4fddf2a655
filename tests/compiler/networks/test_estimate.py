"""The time of loops from a few of their iterations, against all of them."""

import pytest
from torch import nn

from compiler.codegen.cost import Command, estimate
from compiler.codegen.program import executed_commands
from compiler.networks.estimate import command_ends, executed_count
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode


@pytest.fixture(scope="module")
def looped():
    """A program most of which are loops, some of them in loops."""
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 4),
    )  # fmt: skip
    config = make_config(preset="tiny", buffer_bank_depth=64)
    return compile_training(model, config, (3, 12, 12), images=24, loops=True)


def test_loops_in_steady_state(looped):
    config = looped.config
    header = ("core", "wait", "signal")
    commands = [
        Command(opcode, *(fields[name] for name in header),
                {name: value for name, value in fields.items() if name not in header})
        for opcode, fields in looped.command_list
    ]  # fmt: skip
    for command in commands:
        if command.opcode is Opcode.REPEAT:
            command.fields["first"] -= looped.program
    assert any(command.opcode is Opcode.REPEAT for command in commands)
    exact = estimate(commands, config)
    ends = command_ends(looped.command_list, looped.program, config)
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(exact, rel=0.01)


def test_executed_commands(looped):
    count = sum(1 for _ in executed_commands(looped.command_list, looped.program))
    assert count > 2 * len(looped.command_list)
    assert executed_count(looped.command_list, looped.program) == count
