"""Steps of the head alone behind a batch, against golden's training of a network that is nothing
else, bit for bit."""

import numpy as np
import pytest
import torch
from torch import nn

from golden.layers.optimizer import SGD, Adam, BrakedSGD
from golden.training.step import Training

FEATURES, CLASSES, IMAGES = 36, 3, 5
OPTIMIZERS = {
    "sgd": SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": Adam(learning_rate=0.01),
    "braked": BrakedSGD(learning_rate=0.1, momentum=0.9),
}


def network():
    return nn.Sequential(
        nn.Conv2d(2, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(FEATURES, CLASSES),
    )  # fmt: skip


def training(model, shape, optimizer, **options):
    return Training(model, input_shape=shape, optimizer=optimizer, rows=4, columns=4, **options)


same = np.testing.assert_array_equal


@pytest.fixture
def batches(rng):
    return [(rng.normal(size=(IMAGES, 4, 4, 2)), rng.integers(CLASSES, size=IMAGES))
            for _ in range(2)]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_head_learns_as_if_it_were_alone(optimizer, batches, seed):
    """From the features that the batch has stored (dropped ones are zero); nothing else does."""
    torch.manual_seed(seed)
    model = network()
    echoed = training(model, (2, 4, 4), optimizer, echo=3)
    plain = training(model, (2, 4, 4), optimizer)
    alone = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES))
    head = training(alone, (4, 3, 3), optimizer)
    for images, labels in batches:
        plain.restore(echoed.state())
        before = plain.step(images, labels)
        result = echoed.step(images, labels)
        assert before.loss.value == result.loss.value and not before.echoes
        state = head.state()
        for name in ("weight", "bias"):
            state["weights"][f"1.{name}"] = plain.weights[f"5.{name}"]
            state["slots"][f"1.{name}"] = plain.slots[f"5.{name}"]
        head.restore(state)
        for step in result.echoes:
            alone = head.step_bits(result.forward.outputs["4"], labels)
            assert step.loss.value == alone.loss.value
            assert step.loss.correct == alone.loss.correct
        for name in ("weight", "bias"):
            same(echoed.weights[f"5.{name}"], head.weights[f"1.{name}"])
            same(echoed.operands["5.weight"], head.operands["1.weight"])
            for one, other in zip(echoed.slots[f"5.{name}"], head.slots[f"1.{name}"], strict=True):
                same(one, other)
        for name, bits in plain.weights.items():
            if not name.startswith("5."):
                same(echoed.weights[name], bits)
        for name, bits in plain.running.items():
            same(echoed.running[name], bits)


def test_a_step_is_the_batch_again_where_only_the_head_learns(batches, seed):
    """Three steps behind one batch are what three more batches of the same images are."""
    torch.manual_seed(seed)
    model = network().requires_grad_(False)
    model[4] = nn.Identity()
    model[5].requires_grad_(True)
    optimizer = OPTIMIZERS["sgd"]
    echoed = training(model, (2, 4, 4), optimizer, echo=3)
    plain = training(model, (2, 4, 4), optimizer)
    images, labels = batches[0]
    result = echoed.step(images, labels)
    again = [plain.step(images, labels) for _ in range(4)]
    losses = [result.loss, *(step.loss for step in result.echoes)]
    assert [loss.value for loss in losses] == [step.loss.value for step in again]
    for name in ("5.weight", "5.bias"):
        same(echoed.weights[name], plain.weights[name])
        same(echoed.slots[name], plain.slots[name])
        last = result.echoes[-1].parameter_gradients
        same(last[name], again[-1].parameter_gradients[name])


def test_the_guard(batches, seed):
    """With infinite weights the gradients of the head are refused in every step."""
    torch.manual_seed(seed)
    model = network()
    with torch.no_grad():
        model[5].weight.fill_(torch.inf)
    result = training(model, (2, 4, 4), OPTIMIZERS["sgd"], echo=2).step(*batches[0])
    assert [step.skipped for step in result.echoes] == [{"5.weight": 1, "5.bias": 1}] * 2


def test_no_head():
    model = nn.Sequential(nn.Conv2d(2, 4, 2))
    with pytest.raises(ValueError, match=r"whose only output is a linear .* not 0 .convolution"):
        training(model, (2, 4, 4), OPTIMIZERS["sgd"], loss="mean_squared_error", echo=1)
