"""Steps beside each other: which they are, that commands take turns, and golden's numbers.

Covers: compiler/training/units.py, compiler/codegen/lanes.py.
"""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import torch
from torch import nn

from compiler.adagp import compile_adagp
from compiler.training.compile import compile_training
from compiler.training.groups import Group, grouped, least_hidden, write_groups
from compiler.training.step import ARRAY, VECTOR, Step
from emulator.batch_loop import BatchLoop
from golden.layers.optimizer import SGD, Adam
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import Opcode
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


def step(name, unit, reads, writes, cycles=1, direction="", **options):
    return Step(layer=name, direction=direction, reads=tuple(reads), writes=tuple(writes),
                unit=unit, cycles=cycles, write=lambda *_: None, **options)  # fmt: skip


def names(groups):
    return [["".join(s.layer for s in part) for part in (g.main, g.beside)] for g in groups]


def test_the_longest_chain_comes_first():
    """The gradient of the next layer (b) is what others wait for: the product (w) that nobody waits
    for covers it, and not the one that takes longer (v)."""
    steps = [
        step("v", ARRAY, "x", "V", 6), step("i", ARRAY, "x", "d", 3), step("w", ARRAY, "x", "W", 4),
        step("b", VECTOR, "d", "e", 4), step("j", ARRAY, "e", "f", 3), step("u", VECTOR, "W", "U"),
    ]  # fmt: skip
    assert names(grouped(steps, str)) == [["i", ""], ["w", "b"], ["v", "u"], ["j", ""]]
    # In the memory of what others read.
    found = names(grouped(steps, lambda name: "x" if name == "e" else name))
    assert [place for place, group in enumerate(found) if "b" in "".join(group)] == [3]


def test_the_predictor_comes_first():
    """What it leads to (u) can be beside a product (c) then, though others wait for this one."""
    steps = [
        step("a", ARRAY, "", "a", 2), step("p", "", "a", "p", predictor=True),
        step("u", VECTOR, "p", "u"), step("c", ARRAY, "a", "c", 2), step("d", ARRAY, "c", "d", 3),
    ]  # fmt: skip
    assert names(grouped(steps, str)) == [["a", ""], ["p", ""], ["c", "u"], ["d", ""]]


@pytest.mark.parametrize(("cycles", "found"), [(9, [["c", "s"]]), (3, [["c", ""]])])
def test_what_others_wait_for_waits_where_products_are_many(cycles, found):
    """Sums (s) behind a map (b) from which an update (u) follows in the end: beside the product (c)
    if the one behind it (d) has time for the update, else before it."""
    steps = [
        step("b", VECTOR, "", "b", 2), step("s", VECTOR, "b", "s"), step("c", ARRAY, "b", "c", 2),
        step("p", "", "s", "p", predictor=True), step("u", VECTOR, "p", "u", 4),
        step("d", ARRAY, "c", "d", cycles),
    ]  # fmt: skip
    groups = names(grouped(steps, str))
    assert [group for group in groups if group[0] == "c"] == found
    assert groups[0] == ["b" if found == [["c", "s"]] else "bs", ""]


@pytest.mark.parametrize(
    ("cycles", "others", "found"),
    [
        ((4, 4, 900), False, [("c", "", "bp")]),
        ((4, 4, 900), True, [("bp", "", ""), ("c", "r", "")]),
        ((9, 9, 900), True, [("c", "", "bp"), ("r", "", "")]),
    ],
)  # fmt: skip
def test_steps_ahead_of_a_product(cycles, others, found):
    """Normalisation (b) and pooling (p), which the product (c) needs: ahead of it, unless they are
    short and something else (r) might be beside it."""
    forward = {"direction": "forward"}
    steps = [
        step("b", VECTOR, "x", "b", cycles[0], **forward),
        step("p", VECTOR, "b", "p", cycles[1], **forward),
        step("c", ARRAY, "p", "c", cycles[2], **forward),
    ]
    if others:
        steps.append(step("r", VECTOR, "x", "r", 3))
    parts = [
        tuple("".join(s.layer for s in part) for part in (g.main, g.beside, g.ahead))
        for g in grouped(steps, str)
    ]
    assert parts == found


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
    monkeypatch.setattr("compiler.training.groups._WORTH", 0)
    config = make_config(variant="low", preset="tiny")
    batches = [batch(rng, images, optimizer)]
    run = TrainingRun(network(), config, SHAPE, batches, beside=True, loops=loops)
    assert max(turns(run.program, info) for info in run.program.steps if info.beside) > 3
    result = run.interpret(seed)
    assert not result.differences, result.differences[0]


@pytest.mark.parametrize(("images", "loops"), [(12, False), (28, True)])
def test_ahead(images, loops, rng, seed, monkeypatch):
    """Batch normalisation and pooling, image by image ahead of the product that follows."""
    monkeypatch.setattr("compiler.training.groups._WORTH", 0)
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
    assert any(info.beside for part in run.program.parts.values() for info in part.steps)
    result = run.interpret_loop(RUN, seed)
    assert not result.differences, result.differences[0]


def test_where_it_is_worth_it(monkeypatch):
    """Products that leave the vector engine's work too little to hide, and loops that would be
    written out for it, come one after the other."""
    config = make_config(variant="low", preset="tiny")

    def found(share, worth):
        monkeypatch.setattr("compiler.codegen.lanes._LEAST_SHARE", share)
        monkeypatch.setattr("compiler.training.groups._WORTH", worth)
        program = compile_training(network(), config, SHAPE, images=16, beside=True, loops=True)
        return sum(bool(info.beside) for info in program.steps)

    some = found(0, 0)
    assert some > found(0, 10**9) == 0
    assert some > found(2, 0) == 0


def test_what_a_command_has_to_hide(monkeypatch):
    """A share of the batch with backpropagation, in Phase GP, too; the predictor does not count."""
    monkeypatch.setattr("compiler.training.groups._WORTH", 7)
    monkeypatch.setattr("compiler.training.groups._WORTH_SHARE", 0.1)

    long, short = step("a", ARRAY, "", "a", 80), step("b", VECTOR, "a", "b", 20)
    predictor = step("p", "", "a", "p", 50, predictor=True)
    beside = replace(step("r", VECTOR, "a", "r", 70), direction="reorganize")
    assert least_hidden([Group((long,), (short, beside)), Group((predictor,))]) == 10
    assert least_hidden([Group((short,))]) == 7

    found = []

    def noted(groups, *arguments, worth):
        found.append((least_hidden(groups), worth))
        return write_groups(groups, *arguments, worth=worth)

    monkeypatch.setattr("compiler.adagp.compile.write_groups", noted)
    for variant in ("low", "efficient", "max"):
        config = make_config(variant=variant, preset="tiny")
        compile_adagp(network(), config, SHAPE, images=2, beside=True)
    own, worth = zip(*found, strict=True)
    assert len(set(worth)) == 1 and worth[0] == max(own) > min(own)


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
