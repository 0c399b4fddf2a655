"""Programs of gradient prediction: parts, tensors, messages. What they compute: tests/verif.

Covers: compiler/adagp/predictor.py, compiler/adagp/steps.py, compiler/adagp/step_times.py,
compiler/adagp/tensors.py, compiler/adagp/compile.py, compiler/adagp/predicted_layers.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.adagp.compile import PARTS, PredictorShape, compile_adagp
from compiler.adagp.tensors import GRADIENT_STATISTICS
from compiler.errors import CompileError
from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.prediction.config import PredictorConfig
from golden.prediction.predictor import PredictorNetwork
from hw.config import make_config
from hw.isa.encoding import Opcode

SHAPE = (2, 6, 6)


def config_of(variant="low", **fields):
    return make_config(variant=variant, preset="tiny", **fields)


def network():
    """Predicted: 0, 3, 6. Not predicted: the grouped 5, and the head."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.ReLU(),
        nn.Conv2d(4, 4, 2, groups=2), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(),
        nn.Linear(36, 3),
    )  # fmt: skip


def compiled(variant="low", model=None, **options):
    return compile_adagp(model or network(), config_of(variant), SHAPE, **{"images": 3, **options})


@pytest.mark.parametrize("variant", ["baseline", "low", "efficient", "max"])
def test_parts(variant):
    program = compiled(variant)
    assert program.head == "8"
    assert list(program.predictor.layers) == ["0", "3", "6"]
    first = program.parts["bp"]
    for name in PARTS:
        part = program.parts[name]
        commands = part.command_list
        assert commands[-1][0] is Opcode.HALT
        # Everything that is kept is in the same place.
        for tensor in (*program.predictor.kept, *part.parameters, "loss", "targets"):
            assert part.tensors[tensor].offset == first.tensors[tensor].offset, tensor
        cores = {fields["core"] for opcode, fields in commands if opcode is not Opcode.HALT}
        assert cores == ({0, 1} if variant == "max" else {0})
        directions = {(step.layer, step.direction) for step in part.steps}
        assert ("0", "predict") in directions
        assert ("5", "predict") not in directions
    directions = {name: {s.direction for s in program.parts[name].steps} for name in PARTS}
    assert "input gradient" not in directions["gp"]
    assert "predictor learns" in directions["bp"] - directions["gp"]
    # Of Phase GP's only exact gradient, that of the head.
    layers = [s.layer for s in program.parts["gp"].steps if s.direction == "weight gradient"]
    assert layers == ["8"]


@pytest.mark.parametrize(("images", "layers"), [(1, ["6"]), (8, ["3", "6"])])
def test_updates_on_the_core_of_the_predictor(images, layers):
    """It has time for layer 3 if the products of 5 and 6 are long; the last one is always its."""
    part = compiled("max", images=images).parts["gp"]
    steps = [step for step in part.steps if step.direction == "predicted update"]
    assert [step.layer for step in steps] == layers
    assert all(step.predictor for step in steps)


def test_initial_memory(rng):
    """Weights, operand copies, the matrix and constants before the first batch."""
    program, model = compiled("max"), network()
    config = PredictorConfig(seed=3)
    wanted = PredictorNetwork(format_by_name("bf16"), largest=18, config=config, rows=4)
    full = encode(FLOAT32, rng.normal(size=wanted.weights.shape))
    wanted.restore(wanted.state() | {"weights": full})
    memory = program.memory(
        model.state_dict(),
        predictor={
            "predictor.taps": wanted.taps.reshape(1, 1, 10, 4),
            "predictor.full": full.reshape(1, 18, 1, 65),
        },
    )
    found = program.predictor_state(memory)
    np.testing.assert_array_equal(found["predictor.full"][0, :, 0], wanted.weights)
    np.testing.assert_array_equal(found["predictor.full.operands"][0, :, 0], wanted.operands)
    np.testing.assert_array_equal(found["predictor.taps"][0, 0], wanted.taps)
    np.testing.assert_array_equal(found["predictor.toeplitz"][0, :, 0], wanted.toeplitz)
    assert (found["predictor.ones"] == 0x3F80).all()
    assert (found["0.prediction.inputs"][0, -1] == 0x3F80).all()
    assert not found["0.prediction.inputs"][0, :-1].any()
    assert not found["predictor.full.velocity"].any()
    state = program.first.state(memory)
    np.testing.assert_array_equal(state["3.weight"], model.state_dict()["3.weight"].numpy())
    assert program.gates(memory) == {"0": 0.0, "3": 0.0, "6": 0.0}


def test_gates():
    program = compiled("efficient")
    name = program.predictor.layers["3"].gradient_statistics.name
    numbers = np.zeros(program.first.tensors[name].shape, np.float32)
    numbers[0, 0, GRADIENT_STATISTICS.index("gate")] = 0.25
    memory = program.memory(network().state_dict(), predictor={name: numbers})
    assert program.gates(memory) == {"0": 0.0, "3": 0.25, "6": 0.0}


def test_what_is_predicted():
    program = compiled(predict=["6", "0"])
    assert list(program.predictor.layers) == ["0", "6"]
    assert program.predictor.full.shape == (1, 18, 1, 65)
    assert {s.layer for s in program.parts["gp"].steps if s.direction == "predict"} == {"0", "6"}
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    program = compiled(model=model)
    assert program.head is None
    assert "loss" not in program.parts["gp"].tensors


class Unused(nn.Module):
    """A convolution of which nothing comes."""

    def __init__(self):
        super().__init__()
        self.first, self.unused = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.first(x)
        self.unused(x)
        return self.head(x.mean((2, 3)))


def test_a_layer_without_influence_is_not_predicted():
    """As in golden: it has no gradient that a prediction could stand for."""
    program = compiled(model=Unused())
    assert list(program.predictor.layers) == ["first"] and program.head == "head"
    with pytest.raises(CompileError, match="layer unused cannot be predicted; .* can are first"):
        compiled(model=Unused(), predict=["unused"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 0}, "a batch must have at least 1 image, not 0"),
        ({"loss": "hinge"}, "loss must be one of cross_entropy, mean_squared_error, binary"),
        ({"predict": ["5"]}, "layer 5 cannot be predicted; layers that can are 0, 3, 6"),
        ({"predict": ["8"]}, "layer 8 cannot be predicted; layers that can are 0, 3, 6"),
        ({"predict": []}, "the network has no layer whose gradient could be predicted"),
        (
            {"model": nn.Sequential(nn.Flatten(), nn.Linear(72, 3))},
            "the network has no layer whose gradient could be predicted",
        ),
    ],
)
def test_messages(options, message):
    with pytest.raises(CompileError, match=message):
        compiled(**options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"channels": 0}, "channels must be an integer of at least 1, not 0"),
        ({"map_size": 2.0}, "map_size must be an integer of at least 1, not 2.0"),
        ({"running": 1}, "running must be at least 0 and below 1, not 1"),
    ],
)
def test_shapes(fields, message):
    with pytest.raises(CompileError, match=message):
        PredictorShape(**fields)


def test_channels_are_whole_granules():
    shape = PredictorShape(channels=3)
    with pytest.raises(CompileError, match="granules of 8 bytes, which 3 operands of 16 bits"):
        compiled(shape=shape)
    assert compiled(shape=PredictorShape(channels=8, map_size=2)).predictor.shape.features == 32


def test_no_engines():
    with pytest.raises(CompileError, match="no engines for training"):
        compile_adagp(network(), config_of(training=False), SHAPE, images=2)
    with pytest.raises(CompileError, match="training needs a float format, not int8"):
        compile_adagp(network(), config_of(operand_format="int8"), SHAPE, images=2)


def test_what_does_not_fit_names_the_layer():
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.Conv2d(3, 20, 1), nn.Flatten(), nn.Linear(20 * 16, 2)
    )
    config = config_of("max", predictor_memory_bank_depth=16)
    message = r"layer 0: its cells, one word per pixel, and their statistics .* \(64 words\)"
    with pytest.raises(CompileError, match=message):
        compile_adagp(model, config, SHAPE, images=2)


def test_unknown_state():
    with pytest.raises(ValueError, match="the predictor keeps no predictor.nothing; it keeps "):
        compiled().memory(network().state_dict(), predictor={"predictor.nothing": np.zeros(1)})


def test_the_same_program_twice():
    """Nothing depends on the order of sets."""
    torch.manual_seed(1)
    first, second = compiled("max"), compiled("max")
    assert all(first.parts[name].commands == second.parts[name].commands for name in PARTS)
    assert first.loop.commands == second.loop.commands


@pytest.mark.parametrize("variant", ["efficient", "max"])
def test_every_predicted_layer_is_updated_once(variant):
    """Where it is written depends on how long products, predictions and updates take."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 32, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(32, 16, 1), nn.Flatten(),
        nn.Linear(16 * 16, 10),
    )  # fmt: skip
    for images in (1, 24):
        config = make_config(variant=variant, preset="paper")
        program = compile_adagp(model, config, (3, 8, 8), images=images)
        part = program.parts["gp"]
        for name in program.predictor.layers:
            weight = f"{name}.weight"
            steps = [step.name for step in part.steps if weight in step.writes]
            assert len(steps) == 1, f"{weight} is written by {steps}"
