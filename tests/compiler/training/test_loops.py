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
from compiler.codegen import attempts
from compiler.codegen.program import executed_commands
from compiler.training.compile import compile_training
from emulator.batch_loop import BatchLoop
from golden.layers.optimizer import SGD
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode
from verif.networks.adagp_run import AdaGPRun
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

#: An image is a tile.
CONFIG = make_config(variant="low", preset="tiny", accumulator_depth=16)
IMAGES, SHAPE = 30, (1, 4, 4)
#: Batches of both kinds, each with an even number and with an odd one.
RUN = BatchLoop(
    schedule=ScheduleConfig(warm_up=1, ladder=(Stage(gp=2),)),
    batches=4, epoch_batches=3, epoch_batch=2,
)  # fmt: skip


def network():
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(5, 3))


def work(program):
    """Commands without loads, in order."""
    commands = executed_commands(program.command_list, program.program)
    return [opcode for opcode, _ in commands if opcode is not Opcode.LOAD]


def computing(program, step):
    """Commands of a step but for its loads."""
    commands = program.command_list[step.first : step.last]
    return sum(opcode is not Opcode.LOAD for opcode, _ in commands)


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
        # With loops each step begins with an empty buffer, and loads what may be there without.
        assert computing(run.program, step) <= computing(plain, written_out)
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
    commands, begin = program.loop.command_list, program.loop.program
    # A batch of each kind is there once.
    assert len(commands) == sum(len(part.command_list) for part in program.parts.values()) + 5
    (targets, *_), ends = zip(
        *((fields, number) for number, (opcode, fields) in enumerate(commands)
          if opcode is Opcode.BATCH)
    )  # fmt: skip
    for (name, part), end in zip(program.parts.items(), ends[1:], strict=True):
        wanted = list(executed_commands(part.command_list, part.program))[:-1]
        moves = [(part.tensors[key], odd) for key, odd in program.odd.items()]
        moved = [(opcode, odd_inputs(fields, moves)) for opcode, fields in wanted]
        assert moved != wanted
        for parity, batch in (("even", wanted), ("odd", moved)):
            place = targets[f"{name}_{parity}"]
            found = executed_commands(commands[(place - begin) // COMMAND_BYTES : end], place)
            assert [reached(*command) for command in found] == [
                reached(*command) for command in batch
            ]


def odd_inputs(fields, moves):
    """Fields of a command in an odd batch: (tensor, its other place) are its inputs."""
    address = fields.get("dram_address")
    for tensor, odd in moves:
        if address is not None and tensor.offset <= address < tensor.offset + tensor.size:
            return fields | {"dram_address": address + odd.offset - tensor.offset}
    return fields


def reached(opcode, fields):
    """What a command does: its address says all that strides are for."""
    return opcode, {name: value for name, value in fields.items() if not name.startswith("loop")}


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
        for phase in RUN.phases()
    ]
    run = AdaGPRun(network(), config, SHAPE, batches, loops=True)
    plain = compile_adagp(network(), config, SHAPE, images=IMAGES, loops=False)
    for name, part in run.program.parts.items():
        assert any(opcode is Opcode.REPEAT for opcode, _ in part.command_list)
        assert sorted(work(part)) == sorted(work(plain.parts[name]))
        steps = [step.command_count for step in part.steps]
        assert sum(steps) + 1 == len(part.command_list)  # HALT
    result = run.interpret_loop(RUN, seed)
    assert not result.differences, result.differences[0]


@pytest.mark.parametrize("variant", ["efficient", "max"])
def test_loops_of_two_threads_have_periods(variant, monkeypatch):
    """One thread waits for what the other one does in loops; none of these is written out."""
    tried = []

    class Recorder(attempts.Recorder):
        def __init__(self, *arguments, written_out=(), **options):
            tried.append(written_out)
            super().__init__(*arguments, written_out=written_out, **options)

    monkeypatch.setattr(attempts, "Recorder", Recorder)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    config = make_config(variant=variant, preset="tiny")
    compile_adagp(model, config, (3, 8, 8), images=40, loops=True)
    assert tried and not any(tried)


@pytest.mark.parametrize("cycles", [0, 1 << 40])
def test_each_part_has_loops_only_if_it_is_long(monkeypatch, cycles):
    """Also where the part before has been too long, whatever has been tried first. If that is a
    program with loops, its commands are counted, which load a little more."""
    monkeypatch.setattr(adagp, "_CYCLES", cycles)

    def lengths(**options):
        program = compile_adagp(network(), CONFIG, SHAPE, images=IMAGES, **options)
        return {name: len(part.command_list) for name, part in program.parts.items()}

    plain, looped = lengths(loops=False), lengths(loops=True)
    assert plain["gp"] < plain["bp"]
    for most, wanted in (
        (plain["bp"] - 1 + (0 if cycles else 64), plain),
        (plain["bp"] - 2, {"bp": looped["bp"], "gp": plain["gp"]}),
        (plain["gp"] - 2, looped),
    ):
        for module in (attempts, adagp):
            monkeypatch.setattr(module, "MOST_WRITTEN_OUT", most)
        assert lengths() == wanted


def test_only_long_programs_have_loops(monkeypatch):
    def commands(**options):
        program = compile_training(network(), CONFIG, SHAPE, images=IMAGES, **options)
        return [opcode for opcode, _ in program.command_list]

    plain = commands(loops=False)
    assert commands() == plain
    monkeypatch.setattr(attempts, "MOST_WRITTEN_OUT", len(plain) - 1)  # and HALT
    assert commands() == plain
    monkeypatch.setattr(attempts, "MOST_WRITTEN_OUT", len(plain) - 2)
    assert commands() == commands(loops=True) != plain
