"""The time of loops from a few of their iterations, against all of them."""

import pytest
from torch import nn

from compiler.codegen.binary.command_bytes import Decoded
from compiler.codegen.cost import Command, estimate, executed_count
from compiler.codegen.program import executed_commands
from compiler.networks.estimate import command_times
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode


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


def as_commands(encoded, offset):
    """What :func:`compiler.codegen.cost.estimate` takes."""
    header = ("core", "wait", "signal")
    commands = [
        Command(opcode, *(fields[name] for name in header),
                {name: value for name, value in fields.items() if name not in header})
        for opcode, fields in encoded
    ]  # fmt: skip
    for command in commands:
        if command.opcode is Opcode.REPEAT:
            command.fields["first"] -= offset
    return commands


def test_loops_in_steady_state(looped):
    config = looped.config
    commands = as_commands(looped.command_list, looped.program)
    assert any(command.opcode is Opcode.REPEAT for command in commands)
    exact = estimate(commands, config)
    ends = command_times(looped.command_list, looped.program, config).ends
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(("given", "taken"), [((1, 12), (6, 2)), ((6, 2), (1, 12))])
def test_tokens_that_a_loop_gives_and_another_takes(given, taken):
    """Twelve loads, each of which a store waits for: written ``(commands, iterations)``, so that
    most iterations of one side are not timed, and all commands of the other are."""
    config = make_config(preset="tiny")

    def loop(opcode, written, count, begin, **header):
        run = {"buffer_address": 0, "dram_address": 0, "run_bytes": 512, "row_bytes": 8}
        body = [encode(opcode, **header, **run)] * written
        return [*body, encode(Opcode.REPEAT, level=0, count=count, first=begin * COMMAND_BYTES)]

    stream = loop(Opcode.LOAD, *given, 0, signal=1)
    stream += loop(Opcode.STORE, *taken, len(stream), wait=1)
    encoded = Decoded(b"".join([*stream, encode(Opcode.HALT)]))
    exact = estimate(as_commands(encoded, 0), config)
    ends = command_times(encoded, 0, config).ends
    assert ends == sorted(ends)
    # The iterations that are timed are the first ones, with queues that are empty yet.
    assert 0.65 * exact < ends[-1] < 1.1 * exact


def test_executed_commands(looped):
    commands = looped.command_list
    count = sum(1 for _ in executed_commands(commands, looped.program))
    assert count > 2 * len(commands)
    repeats = commands.of(Opcode.REPEAT)
    assert executed_count(len(commands), repeats, looped.program) == count
