"""Steps beside each other: that commands take turns where it is worth it, and golden's numbers.

Covers: compiler/codegen/lanes.py.
"""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import torch
from torch import nn

from compiler.adagp import compile_adagp
from compiler.training.compile import compile_training
from compiler.training.group_writer import _Writer, least_hidden, write_groups
from compiler.training.groups import Group
from compiler.training.step import ARRAY, VECTOR
from emulator.batch_loop import BatchLoop
from golden.layers.optimizer import SGD, Adam
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.compiler.training.test_groups import step
from verif.networks.adagp_run import AdaGPRun
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

SHAPE = (2, 4, 4)
RUN = BatchLoop(
    schedule=ScheduleConfig(warm_up=1, ladder=(Stage(gp=2),)),
    batches=3, epoch_batches=3, epoch_batch=1,
)  # fmt: skip


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(5, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def batch(rng, images, optimizer, **options):
    return Batch(
        images=rng.standard_normal((images, 4, 4, 2)), targets=rng.integers(0, 3, images),
        optimizer=optimizer, **options,
    )  # fmt: skip


def turns(program, info):
    """How often a step's commands change from products to the vector engine or back."""
    opcodes = [opcode for opcode, _ in program.command_list[info.first : info.last]]
    units = [opcode for opcode in opcodes if opcode in (Opcode.MATMUL, Opcode.VECTOR)]
    return len(list(groupby(units)))


@pytest.mark.parametrize(
    ("optimizer", "images", "loops"),
    [
        (SGD(learning_rate=0.1, momentum=0.9), 4, False),
        (SGD(learning_rate=0.1, momentum=0.9), 16, True),
        (Adam(learning_rate=0.01), 3, False),
    ],
)
def test_training(optimizer, images, loops, rng, seed, monkeypatch):
    monkeypatch.setattr("compiler.training.group_writer._WORTH", 0)
    config = make_config(variant="low", preset="tiny")
    batches = [batch(rng, images, optimizer)]
    run = TrainingRun(network(), config, SHAPE, batches, beside=True, loops=loops)
    assert max(turns(run.program, info) for info in run.program.steps if info.beside) > 3
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


@pytest.mark.parametrize(("images", "loops"), [(12, False), (28, True)])
def test_ahead(images, loops, rng, seed, monkeypatch):
    """Batch normalisation and pooling, image by image ahead of the product that follows."""
    monkeypatch.setattr("compiler.training.group_writer._WORTH", 0)
    for share in ("_LEAST_SHARE", "_LEAST_HIDDEN"):
        monkeypatch.setattr(f"compiler.codegen.lanes.{share}", 0)
    config = make_config(variant="baseline", preset="tiny", buffer_bank_depth=512)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 6, 3),
        nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 20, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip
    batches = [
        Batch(
            images=rng.standard_normal((images, 10, 10, 2)), targets=rng.integers(0, 3, images),
            optimizer=SGD(learning_rate=0.1, momentum=0.9),
        )
        for _ in range(2)
    ]  # fmt: skip
    run = TrainingRun(model, config, (2, 10, 10), batches, beside=True, loops=loops)
    products = {info.layer: info for info in run.program.steps if info.direction == "forward"}
    assert list(products["3"].beside) == ["1 forward"]
    assert list(products["7"].beside) == ["4 forward", "6 forward"]
    assert min(turns(run.program, products[layer]) for layer in "37") > 5
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


@pytest.mark.parametrize("variant", ["low", "efficient", "max"])
def test_gradient_prediction(variant, rng, seed):
    config = make_config(variant=variant, preset="tiny")
    optimizer = SGD(learning_rate=0.1, momentum=0.9)
    batches = [batch(rng, 3, optimizer, phase=phase) for phase in RUN.phases()]
    run = AdaGPRun(network(), config, SHAPE, batches, beside=True)
    beside = {name for part in run.program.parts.values() for i in part.steps for name in i.beside}
    # Without a memory of its own the predictor's steps forward are where all others are.
    kinds = ["predicted update", *(["gradient sums"] if variant != "low" else [])]
    assert all(any(name.endswith(kind) for name in beside) for kind in kinds), beside
    result = run.interpret_loop(RUN, seed)
    assert not result.differences, result.differences[0]


def test_groups_that_are_like_each_other_are_replayed(rng, seed, monkeypatch):
    """Of two layers that are equal, those of one are put in lanes; numbers are golden's."""
    monkeypatch.setattr("compiler.training.group_writer._WORTH", 0)
    listed = []
    lanes_of = _Writer._lanes

    def noted(self, number, group, program):
        lanes = lanes_of(self, number, group, program)
        if lanes:
            listed.append(group.main[0].name)
        return lanes

    monkeypatch.setattr(_Writer, "_lanes", noted)
    torch.manual_seed(1)
    blocks = [
        [nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()] for _ in range(4)
    ]  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), *(layer for block in blocks for layer in block),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    config = make_config(variant="baseline", preset="tiny")
    batches = [batch(rng, 16, SGD(learning_rate=0.1)) for _ in range(2)]
    run = TrainingRun(model, config, SHAPE, batches, beside=True, loops=True)
    assert len(listed) < sum(bool(info.beside) for info in run.program.steps)
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


def test_where_it_is_worth_it(monkeypatch):
    """Products that leave the vector engine's work too little to hide, and loops that would be
    written out for it, come one after the other."""
    config = make_config(variant="low", preset="tiny")

    def found(share, worth):
        monkeypatch.setattr("compiler.codegen.lanes._LEAST_SHARE", share)
        monkeypatch.setattr("compiler.training.group_writer._WORTH", worth)
        program = compile_training(network(), config, SHAPE, images=16, beside=True, loops=True)
        return sum(bool(info.beside) for info in program.steps)

    some = found(0, 0)
    assert some > found(0, 10**9) == 0
    assert some > found(2, 0) == 0


def test_what_a_command_has_to_hide(monkeypatch):
    """A share of the batch with backpropagation, in Phase GP, too; the predictor does not count."""
    monkeypatch.setattr("compiler.training.group_writer._WORTH", 7)
    monkeypatch.setattr("compiler.training.group_writer._WORTH_SHARE", 0.1)

    long, short = step("a", ARRAY, "", "a", 80), step("b", VECTOR, "a", "b", 20)
    predictor = step("p", "", "a", "p", 50, predictor=True)
    beside = replace(step("r", VECTOR, "a", "r", 70), direction="reorganize")
    assert least_hidden([Group((long,), (short, beside)), Group((predictor,))]) == 10
    assert least_hidden([Group((short,))]) == 7
    monkeypatch.setattr("compiler.training.group_writer._WORTH_IMAGES", 8)
    twice = [Group((long, long), (short, short))]
    assert least_hidden(twice, 8) == 20 and least_hidden(twice, 16) == 10, "as with 8 images"

    found = []

    def noted(groups, *arguments, worth):
        found.append((least_hidden(groups, 2), worth))
        return write_groups(groups, *arguments, worth=worth)

    monkeypatch.setattr("compiler.adagp.compile.write_groups", noted)
    for variant in ("low", "efficient", "max"):
        config = make_config(variant=variant, preset="tiny")
        compile_adagp(network(), config, SHAPE, images=2, beside=True)
    own, worth = zip(*found, strict=True)
    assert set(worth) == {max(own)} and max(own) > min(own)


def test_few_semaphores(rng, seed):
    """Steps that would need too many are not beside each other."""

    def together(semaphores):
        config = make_config(variant="low", preset="tiny", semaphores=semaphores)
        optimizer = SGD(learning_rate=0.1)
        batches = [batch(rng, 4, optimizer, phase=phase) for phase in RUN.phases()]
        run = AdaGPRun(network(), config, SHAPE, batches, beside=True, loops=False)
        result = run.interpret_loop(RUN, seed)
        assert not result.differences, result.differences[0]
        first, *_ = run.program.parts.values()
        return sum(bool(info.beside) for info in first.steps)

    assert together(14) > together(13) == 0


def test_in_long_batches(monkeypatch):
    """Unless it is asked for, nothing changes where products are short."""
    config = make_config(variant="low", preset="tiny")
    for long in (False, True):
        for compiled in (compile_training, compile_adagp):
            program = compiled(network(), config, SHAPE, images=2)
            for part in getattr(program, "parts", {"": program}).values():
                assert any(info.beside for info in part.steps) == long
                if not long:
                    assert np.all(np.diff([info.first for info in part.steps]) >= 0)
        for module in ("compiler.training.graph", "compiler.adagp.steps"):
            monkeypatch.setattr(f"{module}.LONG", 0)
