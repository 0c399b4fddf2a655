"""Steps, commands and memory of networks with frozen parameters: nothing is done for them.

It goes with compiler/training/steps.py, compiler/adagp/steps.py and compiler/tensors/parameters.py;
results are compared with golden in tests/verif/networks/test_frozen_run.py.

Covers: compiler/training/steps.py.
"""

import pytest
from torch import nn

from compiler.adagp.compile import compile_adagp
from compiler.errors import CompileError
from compiler.frontend.torch_graph import backward_order, learning, trace
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.freezing import FROZEN, SHAPE, network

CONFIG = make_config(variant="baseline", preset="tiny")


def steps(program):
    return [step.name for step in program.steps if step.direction not in ("forward", "loss")]


def compiled(frozen, compile=compile_training, **options):
    return compile(network(1, frozen), CONFIG, SHAPE, images=3, **options)


def vectors(program):
    return sum(step.vectors for step in program.steps)


def test_only_the_head_learns():
    program = compiled("all but the head")
    assert steps(program) == ["head weight gradient", "head.weight update", "head.bias update"]
    layers = trace(network(1, "all but the head"), SHAPE)
    assert backward_order(layers) == ("head",) and learning(layers) == {"head"}
    assert set(program.state(program.memory(network(1, "nothing").state_dict()), "velocity")) == {
        "head.weight", "head.bias",
    }  # fmt: skip
    roles = {name: tuple(parameter.tensors) for name, parameter in program.parameters.items()}
    assert roles["first.weight"] == roles["grouped.weight"] == ("master", "operands")
    assert roles["norm.weight"] == roles["first.bias"] == ("master",)
    assert roles["head.weight"] == ("master", "velocity", "gradient", "operands")
    # Nothing that only a backward pass reads.
    assert not {"pool.places", "norm.mean", "norm.inverse", "norm.a"} & set(program.tensors)


def test_a_frozen_branch_passes_gradients_on():
    program = compiled("a branch")
    found = steps(program)
    for layer in ("depthwise", "grouped"):
        assert f"{layer} input gradient" in found
        assert f"{layer} weight gradient" not in found
    assert "depthwise_norm.weight update" not in found and "first.weight update" in found


@pytest.mark.parametrize("frozen", [name for name in FROZEN if name != "nothing"])
def test_fewer_commands_and_bytes(frozen):
    """One update less for each frozen parameter, and less of everything."""
    part, whole = compiled(frozen), compiled("nothing")
    count = sum(FROZEN[frozen](name) for name in whole.parameters if "running" not in name)
    assert count >= 2
    updates = [sum(s.direction == "update" for s in program.steps) for program in (part, whole)]
    assert updates[0] == updates[1] - count
    assert len(part.commands) < len(whole.commands)
    assert vectors(part) <= vectors(whole)
    assert part.plan.size < whole.plan.size
    for opcode in (Opcode.VECTOR, Opcode.LOAD, Opcode.STORE):
        few, many = ([o for o, _ in p.command_list].count(opcode) for p in (part, whole))
        assert few <= many, opcode


def test_bias_gradients_alone_take_few_vectors():
    """Of a weight gradient with its bias the array computes one block of rows and the ones."""
    model = nn.Sequential(nn.Conv2d(16, 6, 3, padding=1), nn.Flatten(), nn.Linear(6 * 36, 2))
    taken = {}
    for frozen in (False, True):
        model[0].weight.requires_grad_(not frozen)
        program = compile_training(model, CONFIG, (16, 6, 6), images=2)
        (step,) = (step for step in program.steps if step.name == "0 weight gradient")
        taken[frozen] = step.vectors
    # 4 blocks of 4 channels and 9 taps, and a vector of ones; or a block, a tap and the ones.
    assert taken[False] * (4 + 1) == taken[True] * (4 * 4 * 9 + 1)


def test_phase_gp():
    """Frozen weights are not predicted and not updated, and a frozen head has no loss."""
    program = compiled("the first layers", compile_adagp)
    assert list(program.predictor.layers) == ["depthwise"] and program.head == "head"
    for part in program.parts.values():
        assert not [s for s in part.steps if s.layer == "first" and s.direction != "forward"]
    whole = compiled("nothing", compile_adagp)
    for name in ("bp", "gp"):
        assert len(program.parts[name].commands) < len(whole.parts[name].commands)
    program = compiled("the head", compile_adagp)
    assert program.head is None and list(program.predictor.layers) == ["first", "depthwise"]
    found = {step.direction for step in program.parts["gp"].steps}
    assert "loss" not in found and "predicted update" in found
    names = [step.name for step in compiled("biases", compile_adagp).parts["gp"].steps]
    assert "head.weight update" in names and "head.bias update" not in names
    names = [step.name for step in compiled("all but a bias", compile_training).steps]
    assert names[-2:] == ["grouped weight gradient", "grouped.bias update"]


@pytest.mark.parametrize("compile", [compile_training, compile_adagp])
def test_nothing_to_train(compile):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).requires_grad_(False)
    message = "nothing to train: its output 1 .* requires_grad; its parameters are 0.weight, 0.bias"
    with pytest.raises(CompileError, match=message):
        compile(model, CONFIG, (4,), images=2)
    with pytest.raises(CompileError, match="its output 0 .* its parameters are none"):
        compile(nn.Sequential(nn.ReLU()), CONFIG, (4,), images=2)


def test_what_is_frozen_is_known_when_the_network_is_traced():
    model = network(1, "the head")
    layers = {layer.name: layer for layer in trace(model, SHAPE)}
    model.requires_grad_(False)
    assert layers["head"].trainable == ()
    assert layers["norm"].trainable == ("norm.weight", "norm.bias")


def test_no_frozen_weight_is_predicted_by_name():
    message = "layer first cannot be predicted; layers that can are depthwise"
    with pytest.raises(CompileError, match=message):
        compiled("the first layers", compile_adagp, predict=["first"])
    with pytest.raises(CompileError, match="no layer whose gradient could be predicted"):
        compiled("weights", compile_adagp)
