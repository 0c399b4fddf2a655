"""Compiled training steps: plans, messages, the command line. Results are tested in tests/verif.

Covers: compiler/training/steps.py, compiler/training/step.py, compiler/training/compile.py,
compiler/frontend/example.py, compiler/training/graph.py, compiler/training/map_steps.py,
compiler/training/concatenations.py.
"""

import pytest
import torch
from torch import nn

from compiler.__main__ import main
from compiler.adagp.compile import compile_adagp
from compiler.errors import CompileError
from compiler.frontend.example import ResidualCNN
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.networks.train_blocks import BLOCKS, INPUT_SHAPE

CONFIG = make_config(variant="baseline", preset="tiny")


def test_memory_is_reused():
    torch.manual_seed(1)
    model = ResidualCNN()
    shared = compile_training(model, CONFIG, model.INPUT_SHAPE, images=8)
    apart = compile_training(model, CONFIG, model.INPUT_SHAPE, images=8, reuse=False)
    shared.plan.check()
    assert shared.plan.size < 0.8 * apart.plan.size
    assert shared.plan.size == shared.plan.peak
    assert shared.plan.size <= shared.program < shared.memory_size


def test_steps():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    program = compile_training(model, CONFIG, (1, 6, 6), images=2)
    assert [step.name for step in program.steps] == [
        "0 forward",
        "3 forward",
        "loss loss",
        "3 input gradient",
        "3 weight gradient",
        "3.weight update",
        "3.bias update",
        "1 backward",
        "0 weight gradient",
        "0.weight update",
        "0.bias update",
    ]
    assert program.steps[0].first == 0
    assert [s.last for s in program.steps[:-1]] == [s.first for s in program.steps[1:]]
    assert program.command_list[-1][0] is Opcode.HALT
    # The images of the next batch must not be overwritten: nothing else lies there.
    assert not program.plan.neighbours(program.maps["input"] if "input" in program.maps else
                                       next(iter(program.maps.values())))  # fmt: skip


def test_separate_steps_are_programs():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    program = compile_training(model, CONFIG, (1, 2, 2), images=2, separate=True)
    commands = program.command_list
    assert len(program.steps) == 5
    for step in program.steps:
        assert [o for o, _ in commands[step.first : step.last]].count(Opcode.HALT) == 1
        assert commands[step.last - 1][0] is Opcode.HALT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 0}, "a batch must have at least 1 image, not 0"),
        ({"images": 2.5}, "images: a batch must have at least 1 image, not 2.5"),
        ({"images": "2"}, "images: a batch must have at least 1 image, not '2'"),
        ({"loss": "hinge"}, "loss must be one of cross_entropy, mean_squared_error, binary"),
    ],
)
def test_messages(options, message):
    with pytest.raises(CompileError, match=message):
        compile_training(nn.Sequential(nn.Linear(4, 3)), CONFIG, (4,), **{"images": 2, **options})


def test_no_engines():
    config = make_config(variant="baseline", preset="tiny", training=False)
    with pytest.raises(CompileError, match="no engines for training"):
        compile_training(nn.Sequential(nn.Linear(4, 3)), config, (4,), images=2)


def test_what_the_compilers_are_given():
    """Something else than a module, a configuration or a predictor's shape."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    for compile in (compile_training, compile_adagp):
        with pytest.raises(CompileError, match="config must be an AdaGPConfig, .*, not 'tiny'"):
            compile(model, "tiny", (4,), images=2)
        with pytest.raises(CompileError, match="the model must be a torch.nn.Module, not dict"):
            compile({}, CONFIG, (4,), images=2)
        with pytest.raises(CompileError, match="the model is scripted or traced"):
            compile(torch.jit.script(model), CONFIG, (4,), images=2)
    with pytest.raises(CompileError, match="shape must be a PredictorShape, not 4"):
        compile_adagp(model, CONFIG, (4,), images=2, shape=4)
    with pytest.raises(CompileError, match="predict must be a list of names of layers, not '0'"):
        compile_adagp(model, CONFIG, (4,), images=2, predict="0")


def test_states_that_lack_something():
    """Of both kinds of program; a state of too few numbers is named, too."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    for compile in (compile_training, compile_adagp):
        program = compile(model, CONFIG, (4,), images=2)
        message = (
            "the state has no 0.weight, 0.bias, 2.weight, 2.bias; it must have all of 0.weight"
        )
        with pytest.raises(ValueError, match=message):
            program.memory({})
        with pytest.raises(
            ValueError, match="must map names .* as state_dict.* does, not Sequential"
        ):
            program.memory(model)
        state = model.state_dict()
        with pytest.raises(ValueError, match="keeps no momentum; slots may be velocity"):
            program.memory(state, {"momentum": {}})
        with pytest.raises(ValueError, match=r"2.bias has shape \(3,\), not \(4,\)"):
            program.memory(state | {"2.bias": torch.zeros(4)})


def test_one_pixel_per_channel():
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    message = r"layer 0 \(batch normalisation\): .* but the batch is 1 image of 1 x 1"
    with pytest.raises(CompileError, match=message):
        compile_training(model, CONFIG, (2, 1, 1), images=1)


def test_cross_entropy_of_a_flattened_map():
    message = r"layer 1: cross-entropy needs .* a vector, not a map \(3, 3, 3\) that has been"
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())
    with pytest.raises(CompileError, match=message):
        compile_training(model, CONFIG, (1, 5, 5), images=2)


def test_what_does_not_fit_names_the_layer():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    config = make_config(variant="baseline", preset="tiny", buffer_banks=1, buffer_bank_depth=16)
    with pytest.raises(CompileError, match=r"layer 2: .* do not fit"):
        compile_training(model, config, (1, 6, 6), images=1)


def test_command_line(capsys, tmp_path):
    plot = tmp_path / "plan.png"
    assert main(["--plan", "--images", "4", "--plot", str(plot)]) == 0
    text = capsys.readouterr().out
    assert "block2.conv1" in text
    assert "input gradient" in text
    assert "commands for a batch of 4 images" in text
    assert "bytes; " in text
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "compiler"], "--model must be MODULE:NAME, not 'compiler'"),
        (["--model", "no_such_module:X"], "--model no_such_module:X: No module named"),
        (["--model", "compiler.frontend.example:Nothing"], "has no attribute 'Nothing'"),
        (["--input", "1,x"], "--input must be channels, height and width of an image"),
        (["--input", "3,8,8"], "takes 1 channels but gets 3"),
        (["--loss", "hinge"], "loss must be one of"),
    ],
)
def test_command_line_messages(capsys, arguments, message):
    assert main(["--plan", *arguments]) == 2
    assert message in capsys.readouterr().err


def compiled_block(network):
    """Names of the steps of a block, and its program."""
    torch.manual_seed(1)
    program = compile_training(BLOCKS[network](), CONFIG, INPUT_SHAPE, images=2)
    return [step.name for step in program.steps], program


def test_concatenations_copy_nothing():
    """Parts are written where they are joined, and their gradients are read there."""
    names, program = compiled_block("inception")
    assert not [name for name in names if name.startswith("cat ")]
    whole = program.tensors[program.maps["cat"]]
    parts = [program.tensors[program.maps[name]] for name in ("max_pool2d", "pool", "wide")]
    item = whole.dtype.itemsize
    assert [part.offset - whole.offset for part in parts] == [0, 4 * item, 12 * item]
    assert {part.distance for part in parts} == {whole.pitch}
    gradient = program.tensors[program.gradients["cat"]]
    part = program.tensors[program.gradients["pool"]]
    assert part.offset == gradient.offset + 4 * item and part.distance == gradient.pitch


def test_a_map_in_two_concatenations_is_copied_once():
    names, program = compiled_block("dense")
    # The backward step adds the gradients of two layers that read the inner one.
    assert [name for name in names if name.startswith("cat")] == ["cat forward", "cat backward"]
    outer, inner = program.tensors[program.maps["cat_2"]], program.tensors[program.maps["cat_1"]]
    assert inner.offset == outer.offset and inner.distance == outer.pitch == 24


def test_parts_that_are_no_whole_granules_are_joined_by_a_product():
    """They lie side by side, each from a granule on, until it closes the gaps; all but what is
    somewhere else, the input, and a map for the second time, is written there."""
    names, program = compiled_block("uneven")
    joined = [name for name in names if name.startswith("cat ")]
    # Of the last two one adds the gradients of three layers that read it.
    assert joined == ["cat forward", "cat forward", "cat backward", "cat backward"]
    parts, whole = program.tensors["cat.parts"], program.tensors[program.maps["cat"]]
    assert (parts.shape[3], parts.pitch, whole.shape[3]) == (14, 16, 10)
    first, second = (program.tensors[program.maps[name]] for name in ("relu", "narrow"))
    item = parts.dtype.itemsize
    assert [part.offset - parts.offset for part in (first, second)] == [4 * item, 12 * item]
    # With granules of one operand there are no gaps.
    config = make_config(variant="baseline", preset="tiny", rows=5, columns=3)
    assert config.granule_operands == 1
    plain = compile_training(BLOCKS["uneven"](), config, INPUT_SHAPE, images=2)
    assert not [name for name in plain.tensors if name.endswith((".parts", ".selection"))]


@pytest.mark.long
def test_a_large_map_on_a_small_machine():
    """A line of its weight gradient takes half of the buffer, and the sums that stay must not lie
    between two lines."""
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    config = make_config(variant="baseline", preset="tiny")
    program = compile_training(network, config, (3, 112, 112), images=2)
    assert len(program.commands) < 1 << 19
