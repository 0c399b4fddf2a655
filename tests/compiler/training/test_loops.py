"""Whole programs with loops: golden's numbers, and the same steps.

Covers: compiler/training/compile.py, compiler/adagp/compile.py.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from compiler.adagp import compile as adagp
from compiler.adagp import compile_adagp
from compiler.codegen import dependencies
from compiler.codegen.program import executed_commands
from compiler.training.compile import compile_training
from golden.layers.optimizer import SGD
from golden.prediction.schedule import Phase
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.networks.adagp_run import AdaGPRun
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

#: An image is a tile.
CONFIG = make_config(variant="low", preset="tiny", accumulator_depth=16)
IMAGES, SHAPE = 30, (1, 4, 4)


def network():
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(5, 3))


def work(program):
    """Commands without loads, in order."""
    commands = executed_commands(program.command_list, program.program)
    return [opcode for opcode, _ in commands if opcode is not Opcode.LOAD]


def test_training(rng, seed):
    batch = Batch(
        images=rng.standard_normal((IMAGES, 4, 4, 1)),
        targets=rng.integers(0, 3, IMAGES),
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
    )
    run = TrainingRun(network(), CONFIG, SHAPE, [batch], reuse=False, loops=True)
    plain = compile_training(network(), CONFIG, SHAPE, images=IMAGES, reuse=False, loops=False)
    assert any(opcode is Opcode.REPEAT for opcode, _ in run.program.command_list)
    assert len(run.program.commands) < len(plain.commands)
    assert work(run.program) == work(plain)
    for step, written_out in zip(run.program.steps, plain.steps, strict=True):
        assert (step.name, step.vectors) == (written_out.name, written_out.vectors)
        assert step.last - step.first <= written_out.last - written_out.first
    steps = run.program.steps
    assert all(a.last == b.first for a, b in pairwise(steps))
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


@pytest.mark.parametrize("separate", [False, True])
def test_loops_go_back_to_commands_of_the_program(separate):
    program = compile_training(
        network(), CONFIG, SHAPE, images=IMAGES, separate=separate, loops=True
    )
    places = np.arange(len(program.command_list)) * 64 + program.program
    for number, (opcode, fields) in enumerate(program.command_list):
        if opcode is Opcode.REPEAT:
            assert fields["first"] in places[:number]
            step = next(step for step in program.steps if step.first <= number < step.last)
            assert fields["first"] >= places[step.first]


def test_programs_of_gradient_prediction():
    """Every program has its own loops: BP and GP alone, and the run of many batches."""
    options = {"images": IMAGES}
    program, plain = (
        compile_adagp(network(), CONFIG, SHAPE, **options, loops=loops) for loops in (True, False)
    )
    for name, part in program.parts.items():
        assert work(part) == work(plain.parts[name])
        assert len(part.commands) < len(plain.parts[name].commands)
    repeats = [
        (number, fields["first"])
        for number, (opcode, fields) in enumerate(program.loop.command_list)
        if opcode is Opcode.REPEAT
    ]
    assert repeats
    for number, first in repeats:
        assert program.loop.program <= first < program.loop.program + 64 * number


@pytest.mark.parametrize("variant", ["efficient", "max"])
def test_gradient_prediction(variant, rng, seed):
    """Loops of one thread beside commands of another one."""
    config = make_config(variant=variant, preset="tiny", accumulator_depth=16)
    batches = [
        Batch(
            images=rng.standard_normal((IMAGES, 4, 4, 1)),
            targets=rng.integers(0, 3, IMAGES),
            optimizer=SGD(learning_rate=0.1, momentum=0.9),
            phase=phase,
        )
        for phase in (Phase.BP, Phase.GP)
    ]
    run = AdaGPRun(network(), config, SHAPE, batches, loops=True)
    plain = compile_adagp(network(), config, SHAPE, images=IMAGES, loops=False)
    for name, part in run.program.parts.items():
        assert any(opcode is Opcode.REPEAT for opcode, _ in part.command_list)
        assert sorted(work(part)) == sorted(work(plain.parts[name]))
        steps = [step.last - step.first for step in part.steps]
        assert sum(steps) + 1 == len(part.command_list)  # HALT
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


def test_each_part_has_loops_only_if_it_is_long(monkeypatch):
    """Also where the part before has been too long."""

    def lengths(**options):
        program = compile_adagp(network(), CONFIG, SHAPE, images=IMAGES, **options)
        return {name: len(part.command_list) for name, part in program.parts.items()}

    plain, looped = lengths(loops=False), lengths(loops=True)
    assert plain["gp"] < plain["bp"]
    for most, wanted in (
        (plain["bp"] - 2, {"bp": looped["bp"], "gp": plain["gp"]}),
        (plain["gp"] - 2, looped),
    ):
        for module in (dependencies, adagp):
            monkeypatch.setattr(module, "MOST_WRITTEN_OUT", most)
        assert lengths() == wanted


def test_only_long_programs_have_loops(monkeypatch):
    def commands(**options):
        program = compile_training(network(), CONFIG, SHAPE, images=IMAGES, **options)
        return [opcode for opcode, _ in program.command_list]

    plain = commands(loops=False)
    assert commands() == plain
    monkeypatch.setattr(dependencies, "MOST_WRITTEN_OUT", len(plain) - 1)  # and HALT
    assert commands() == plain
    monkeypatch.setattr(dependencies, "MOST_WRITTEN_OUT", len(plain) - 2)
    assert commands() == commands(loops=True) != plain
