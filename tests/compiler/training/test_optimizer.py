"""Optimizers by name, as torch's, and what is refused."""

import pytest
import torch
from torch import nn

from algorithms.braking.optimizer import BrakedSGD
from compiler.adagp.compile import compile_adagp
from compiler.errors import CompileError
from compiler.training.compile import compile_training
from compiler.training.optimizer import Optimizer, optimizer_of
from compiler.vcas.compile import compile_vcas
from hw.config import make_config

WEIGHTS = [torch.zeros(2)]


def test_names_and_optimizers_of_torch():
    assert optimizer_of("nesterov") == Optimizer(kind="nesterov")
    assert optimizer_of(Optimizer(kind="adamw")) == Optimizer(kind="adamw")
    assert optimizer_of(torch.optim.SGD(WEIGHTS, lr=0.1)) == Optimizer()
    fast = torch.optim.SGD(WEIGHTS, lr=0.1, momentum=0.9, nesterov=True)
    assert optimizer_of(fast) == Optimizer(kind="nesterov")
    adam = torch.optim.Adam(WEIGHTS, betas=(0.8, 0.99), eps=1e-5)
    assert optimizer_of(adam) == Optimizer(kind="adam", betas=(0.8, 0.99), epsilon=1e-5)
    assert optimizer_of(torch.optim.AdamW(WEIGHTS)) == Optimizer(kind="adamw")
    decoupled = torch.optim.Adam(WEIGHTS, weight_decay=0.1, decoupled_weight_decay=True)
    assert optimizer_of(decoupled) == Optimizer(kind="adamw")
    braked = BrakedSGD(WEIGHTS, lr=0.1, momentum=0.9, rho=1.5)
    assert optimizer_of(braked) == Optimizer(kind="braked")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rmsprop", "optimizer must be one of sgd, nesterov, braked, adam, .* not 'rmsprop'"),
        (
            BrakedSGD(WEIGHTS, lr=1, momentum=0.9, nesterov=True, rho=1.0),
            "optimizer braked: nesterov must be off, not True",
        ),
        (torch.optim.RMSprop(WEIGHTS), "or a torch.optim.SGD, Adam or AdamW, not RMSprop"),
        (torch.optim.NAdam(WEIGHTS), "or a torch.optim.SGD, Adam or AdamW, not NAdam$"),
        (torch.optim.Adam(WEIGHTS, amsgrad=True), "optimizer adam: amsgrad must be off, not True"),
        (torch.optim.SGD(WEIGHTS, lr=1, momentum=0.9, dampening=0.5), "sgd: dampening must be off"),
        (
            torch.optim.SGD([{"params": WEIGHTS}, {"params": [torch.zeros(1)], "lr": 2}], lr=1),
            "all groups of parameters must have one setting",
        ),
        (torch.optim.Adam(WEIGHTS, eps=0), r"epsilon must be from 2\*\*-60 to 2\*\*60, not 0"),
    ],
)
def test_messages(given, message):
    with pytest.raises(CompileError, match=message) as caught:
        optimizer_of(given)
    assert "\n" not in str(caught.value)


def test_groups_must_agree_on_the_decay():
    groups = [{"params": WEIGHTS}, {"params": [torch.zeros(1)], "decoupled_weight_decay": True}]
    with pytest.raises(CompileError, match="adam: all groups of parameters must have one setting"):
        optimizer_of(torch.optim.Adam(groups))


def test_an_optimizer_has_all_parameters():
    """All are trained, so it must not have some of them, or those of another model."""
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))

    def compiled(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        return compile_training(model, config, (3,), images=2, optimizer=optimizer)

    assert compiled(model.parameters()).parameters["1.bias"].tensors["velocity"]
    message = "optimizer SGD does not have the parameter 1.weight; it must have all parameters"
    with pytest.raises(CompileError, match=message):
        compiled(model[0].parameters())
    some = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with pytest.raises(CompileError, match=message):
        compile_adagp(model, config, (3,), images=2, optimizer=some)
    with pytest.raises(CompileError, match=message):
        compile_vcas(model, config, (3,), images=2, optimizer=some, sampled=[])
    with pytest.raises(CompileError, match="SGD does not have the parameter 0.weight"):
        compiled(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).parameters())
    model[1].requires_grad_(False)
    model[0].requires_grad_(True)
    assert "velocity" not in compiled(model[0].parameters()).parameters["1.bias"].tensors


def test_betas_must_be_below_one():
    with pytest.raises(CompileError, match=r"betas must be .*, not \(1.0, 0.5\)"):
        Optimizer(kind="adam", betas=(1.0, 0.5))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Embedding(5, 4), nn.Linear(4, 3)],
        [nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 3)],
    ],
    ids=["embedding", "groups"],
)
def test_what_is_not_braked(layers):
    config = make_config(variant="baseline", preset="tiny")
    shape = (4,) if isinstance(layers[0], nn.Embedding) else (4, 3, 3)
    with pytest.raises(CompileError, match="an embedding or a grouped convolution is not braked"):
        compile_training(nn.Sequential(*layers), config, shape, images=2, optimizer="braked")


def test_what_a_program_keeps():
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(nn.Linear(3, 5))
    program = compile_training(model, config, (3,), images=2, optimizer="adam")
    memory = program.memory(model.state_dict(), {"corrections": {"0.bias": [0.25, 0.5]}})
    assert program.state(memory, "corrections")["0.bias"].tolist() == [0.25, 0.5]
    assert not program.state(memory, "first_moment")["0.weight"].any()
    with pytest.raises(ValueError, match=r"0.bias.corrections has shape \(2,\), not \(5,\)"):
        program.memory(model.state_dict(), {"corrections": {"0.bias": [0.0] * 5}})
