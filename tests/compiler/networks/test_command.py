"""``python -m compiler --network``: what is printed and written is what the program is.

Covers: compiler/networks/array_use.py, compiler/networks/command.py,
compiler/networks/command_counts.py, compiler/networks/layer_table.py,
compiler/networks/registry.py, compiler/networks/summary.py, compiler/stages.py,
compiler/__main__.py.
"""

import json
import re
from collections import Counter

import numpy as np
import pytest
from torch import nn

from compiler import AdaGPProgram, TrainingProgram
from compiler.__main__ import main
from compiler.adagp.compile import compile_adagp
from compiler.codegen.cost import Command, estimate
from compiler.codegen.program import executed_commands
from compiler.kernels.updates.rules import OPTIMIZERS
from compiler.networks.array_use import PRODUCTS, ArrayUse, cause_of, ratio
from compiler.networks.command_counts import command_counts
from compiler.networks.registry import network, network_names, published, read_shape, shape_text
from compiler.networks.summary import summarize
from compiler.stages import Stages, stage
from compiler.training.batch_input import LOSSES
from compiler.training.compile import compile_training, training_layers
from hw.config import make_config
from hw.isa.encoding import Opcode

#: A network that compiles in two seconds.
SMALL = ["--network", "vgg11", "--width", "0.0625", "--input", "3x8x8", "--batch", "2",
         "--preset", "tiny"]  # fmt: skip


def command_list(program):
    """Commands as the estimate takes them."""
    header = ("core", "wait", "signal")
    return [
        Command(opcode, *(fields[name] for name in header),
                {name: value for name, value in fields.items() if name not in header})
        for opcode, fields in program.command_list
    ]  # fmt: skip


def test_help_names_all_losses_and_optimizers(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert f"--optimizer NAME {', '.join(OPTIMIZERS)} (default: sgd)" in words
    assert f"--loss LOSS {', '.join(LOSSES)} (default" in words


def test_a_network(tmp_path, capsys):
    result, saved = tmp_path / "vgg.json", tmp_path / "vgg.bin"
    arguments = [*SMALL, "--set", "columns=5", "--profile", "--json", str(result), "-o", str(saved)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    program, found = TrainingProgram.load(saved), json.loads(result.read_text())
    assert program.config.columns == 5 and found["configuration"] == program.config.hash
    count = len(program.command_list)
    batch = found["programs"]["bp"]
    assert batch["commands"] == batch["executed"] == count
    assert sum(layer["commands"]["bp"] for layer in found["layers"]) == count - 1  # HALT
    assert f"bp: {count:,} commands" in printed
    # The network has no loops: the estimate is that of all commands, shared out among the layers.
    assert batch["cycles"] == estimate(command_list(program), program.config)
    shares = [sum(layer["cycles"]["bp"].values()) for layer in found["layers"]]
    assert sum(shares) == batch["cycles"]
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert layers["0"]["macs"] == 2 * 8 * 8 * 4 * 3 * 9
    assert layers["29"]["macs"] == 2 * 32 * 10
    assert set(layers["29"]["cycles"]["bp"]) == {"forward", "backward", "update"}
    assert batch["vectors"] == sum(step.vectors for step in program.steps)
    assert batch["vectors"] + sum(batch["idle"].values()) == batch["cycles"]
    assert all(cycles > 0 for cycles in batch["idle"].values()) and len(batch["idle"]) == 4
    assert f"takes a vector in {batch['vectors'] / batch['cycles']:.1%} of them" in printed
    uses = {name: layer["array"]["bp"] for name, layer in layers.items() if layer["array"]}
    assert set(uses["0"]) == {"forward", "weight gradient"}  # nobody wants the images' gradient
    assert set(uses["29"]) == {"forward", "input gradient", "weight gradient"}
    # 3 channels on 4 rows, 4 on 5 columns, in every cycle with a vector.
    assert uses["0"]["forward"]["vectors"] == 2 * 8 * 8 * 9
    assert re.search(r"\n 0 +60\.0% ", printed)
    every = sum(use["vectors"] for directions in uses.values() for use in directions.values())
    assert every == batch["vectors"]
    assert found["memory_bytes"] == program.memory_size
    assert re.search(r"bp +weight gradient +\d+ ", printed)
    stages = found["stages"]
    assert {"trace", "memory plan", "forward", "semaphores", "encode", "estimate"} <= set(stages)
    assert all(name in printed for name in stages)


@pytest.mark.parametrize("variant", ["low", "max"])
def test_predicted_layers(variant):
    """A row has its layer's steps of both batches, and their cycles; those of the predictor beside
    the network have a clock of their own."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 4)
    )
    config = make_config(preset="tiny", variant=variant)
    program = compile_adagp(model, config, (3, 4, 4), images=2)
    assert isinstance(program, AdaGPProgram)
    layers, programs = summarize(program)
    # A ReLU is a part of the product before it, but has a mask of its own backward.
    assert [layer.name for layer in layers] == ["0", "1", "3", "4", "5", "loss"]
    for name, part in program.parts.items():
        assert programs[name].commands == len(part.command_list)
        assert sum(layer.commands.get(name, 0) for layer in layers) == programs[name].commands - 1
        assert programs[name].cycles == estimate(command_list(part), config)
        places = sorted(place for step in part.steps for place in step.places)
        assert places == list(range(len(part.command_list) - 1))
        for step in part.steps:
            found = [part.command_list[place] for place in step.places]
            cores = {fields["core"] for opcode, fields in found if opcode is not Opcode.REPEAT}
            assert cores == {int(variant == "max" and step.predictor)}, step.name
        clocks = dict.fromkeys((False, True), 0)
        for layer in layers:
            for phase, cycles in layer.cycles.get(name, {}).items():
                clocks[variant == "max" and phase == "predictor"] += cycles
        assert max(clocks.values()) == programs[name].cycles
        assert (clocks[True] > 0) == (variant == "max")
        total = clocks[False]
        counts = command_counts(part)
        assert set(counts) == {step.direction for step in part.steps}
        assert sum(count.written for count in counts.values()) == programs[name].commands - 1
        beside = variant == "max"  # a core of its own
        main = [step.vectors for step in part.steps if not (beside and step.predictor)]
        assert programs[name].vectors == sum(main)
        assert sum(programs[name].idle.values()) == (0 if beside else total - sum(main))
        assert any(layer.array for layer in layers) != beside
    vectors = sum(step.vectors for step in program.parts["gp"].steps)
    assert sum(layer.vectors.get("gp", 0) for layer in layers) == vectors


def test_causes():
    """What the array waits for, by step."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4))
    config = make_config(preset="tiny", variant="low")
    program = compile_adagp(model, config, (3, 4, 4), images=2)
    causes = {step.direction: cause_of(step) for step in program.parts["bp"].steps}
    products = {causes[direction] for direction in PRODUCTS}
    assert products == {"loads and stores of products (DMA)"}
    assert causes["backward"] == "layers between products (VECTOR)"
    assert causes["loss"] == "loss (LOSS)" and causes["update"] == "updates (VECTOR)"
    assert causes["predict"] == causes["predictor learns"] == "predictor"
    late = {step.direction: cause_of(step) for step in program.parts["gp"].steps}
    assert late["predicted update"] == "updates (VECTOR)"
    assert ratio(1, 0) == 0 and ArrayUse().busy == 0


def test_command_counts():
    """By direction of steps and by type; those in loops as often as they are executed."""
    model = nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(432, 4))
    config = make_config(variant="low", preset="tiny", accumulator_depth=16)
    program = compile_training(model, config, (3, 8, 8), images=24, loops=True)
    counts = command_counts(program)
    assert set(counts) == {step.direction for step in program.steps}
    assert sum(count.steps for count in counts.values()) == len(program.steps)
    executed = [opcode for opcode, _ in executed_commands(program.command_list, program.program)]
    assert sum(count.executed for count in counts.values()) == len(executed) - 1  # HALT
    opcodes = sum((count.opcodes for count in counts.values()), Counter())
    assert opcodes + Counter([Opcode.HALT]) == Counter(opcode for opcode, _ in program.command_list)
    forward = counts["forward"]
    assert 0 < forward.looped < forward.written < forward.executed
    assert counts["loss"].looped == 0 < counts["loss"].written == counts["loss"].executed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "vgg"], "network must be one of vgg11, vgg13, .*, not 'vgg'"),
        (["--input", "3x32"], "--input must be channels, height and width .*, not '3x32'"),
        (["--input", "3x0x8"], "--input must be channels, height and width .*, not '3x0x8'"),
        (["--input", "7+0"], "--input must be .* the lengths of sentences as in 32.32, not '7.0'"),
        (["--input", "7+5"], "the input of network vgg11 must be one as 3x32x32, not 7.5"),
        (["--network", "transformer", "--input", "7+5+3"], ".* be one as 32.32, not 7.5.3"),
        (["--input", "3x4x4"], "network vgg11: images must have at least 8 x 8 .*, not 4 x 4"),
        (["--batch", "0"], "images: a batch must have at least 1 image, not 0"),
        (["--width", "0"], "width must be above 0 and at most 16, not 0.0"),
        (["--classes", "0"], "classes must be at least 1, not 0"),
        (["--loss", "x"], "loss must be one of .*, not 'x'"),
        (["--optimizer", "x"], "optimizer must be one of sgd, nesterov, braked, adam, .* not 'x'"),
        (["--set", "rows=0"], "rows must be an integer from 1 to 256, not 0"),
        (["--set", "training=false"], "this configuration has no engines for training.*"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message, capsys):
    assert main([*SMALL, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(f"error: {message}\n", captured.err), captured.err


def test_all_networks_have_shapes_and_no_memory():
    assert len(network_names(relatives=False)) == 15
    for name in network_names():
        shape = (3, 32, 32) if published(name).reads_images else published(name).shapes[0]
        assert read_shape(shape_text(shape)) == shape
        model = network(name, shape, width=0.25)
        assert all(parameter.is_meta for parameter in model.parameters()), name
        biases = {value.shape for name, value in model.named_parameters() if value.dim() == 1}
        assert {"yolo-v3": (3 * (5 + 20),), "transformer": (10_000,)}.get(name, (10,)) in biases


def test_constants_of_a_network_without_weights():
    """The Transformer's positions are numbers, which the compiler stores."""
    shape = (7,), (5,)
    model = network("transformer", shape, classes=9, width=1 / 64)
    layers = training_layers(model, make_config(preset="tiny"), shape, 2)
    constants = [layer.options["values"] for layer in layers if layer.kind == "constant"]
    assert constants and all(np.isfinite(values).all() for values in constants)
    assert any((values == 1).any() for values in constants)  # cos 0


def test_stages():
    """Seconds of a stage are without those of the stages inside it."""
    begun = []
    with Stages(lambda *names: begun.append(names)) as stages, stage("outer", "a"):
        with stage("inner", "b"):
            sum(range(200_000))
    with stage("nobody watches"):
        pass
    assert begun == [("outer", "a"), ("inner", "b")]
    assert set(stages.seconds) == {"outer", "inner"}
    assert 0 <= stages.seconds["outer"] < stages.seconds["inner"]
