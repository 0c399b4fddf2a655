"""Compiled programs against the golden model: every stored output, bit for bit.

Covers: compiler/inference, emulator/machine.py, emulator/memory.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from emulator.interpreter import interpret
from hw.config import make_config
from verif.networks.workload import golden_network

DIGITS_LIKE = [
    nn.Conv2d(1, 6, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(6, 13, 3, padding=1, bias=False),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(52, 10),
]


def run(layers, shape, config, *, seed=0, **options):
    """Compile, interpret and compare; returns program and interpreter result."""
    torch.manual_seed(seed)
    print(f"seed {seed}, {config}")
    model = nn.Sequential(*layers)
    for layer in model:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    values = np.random.default_rng(seed).normal(size=(shape[0], *shape[2:], shape[1]))
    values = values.reshape(shape[0], *((1, 1) if len(shape) == 2 else shape[2:]), shape[1])
    network = golden_network(model, config, shape[1:], values)
    codes = network.encode_input(values)
    parameters = list(network.parameters.values())
    program = compiler.compile(model, config, shape, parameters=parameters, reuse=False, **options)
    memory = program.memory(codes, fill=0xA5)
    outputs = [(tensor.offset, tensor.size) for tensor in program.outputs]
    result = interpret(config, program.commands, memory, seed=seed, unwritten=outputs)
    assert result.semaphores == {}, "semaphores must end at zero"
    compare(program, network, codes, memory)
    return program, result


def compare(program, network, codes, memory):
    rows = {info.output: info.rows for info in program.stages}
    done = network.forward(codes, rows=rows)
    for info in program.stages:
        tensor, expected = program.tensors[info.output], done.outputs[info.output]
        got = tensor.unpack(bytes(memory))
        wrong = np.argwhere(got != expected)
        if len(wrong):
            place = tuple(int(i) for i in wrong[0])
            pytest.fail(
                f"{info.name} (N, H, W, C) = {place}: expected {int(expected[place]):#x} "
                f"({tensor.values(expected[place])}), not {int(got[place]):#x} "
                f"({tensor.values(got[place])}); {len(wrong)} of {got.size} differ"
            )


@pytest.mark.parametrize("preset", ["tiny", "ulx3s", "paper"])
@pytest.mark.parametrize("variant", ["baseline", "low", "efficient", "max"])
def test_presets(variant, preset):
    run(DIGITS_LIKE, (5, 1, 8, 8), make_config(variant=variant, preset=preset))


@pytest.mark.parametrize("operand_format", ["bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8"])
def test_formats(operand_format):
    config = make_config(variant="max", preset="tiny", operand_format=operand_format)
    run(DIGITS_LIKE, (3, 1, 8, 8), config, seed=1)


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(6, 12), (12, 6)])
def test_array_shapes(rows, columns, lanes):
    config = make_config(
        variant="baseline", preset="tiny", rows=rows, columns=columns, post_lanes=lanes
    )
    run([nn.Conv2d(7, 29, 3, padding=1), nn.ReLU()], (2, 7, 6, 5), config, seed=lanes)


RAGGED = {
    "1x1": ([nn.Conv2d(9, 11, 1)], (3, 9, 5, 4)),
    "5x5 stride 2": ([nn.Conv2d(3, 10, 5, stride=2, padding=2)], (2, 3, 9, 11)),
    "batch 1": ([nn.Conv2d(5, 7, 3)], (1, 5, 7, 7)),
    "padding wider than the kernel": ([nn.Conv2d(3, 5, 1, padding=2)], (1, 3, 4, 4)),
    "oblong": ([nn.Conv2d(4, 6, (1, 3), padding=(0, 1), stride=(2, 1))], (2, 4, 7, 6)),
    "overlapping pools": (
        [nn.Conv2d(3, 5, 3), nn.MaxPool2d(3, stride=1), nn.ReLU(), nn.AvgPool2d(2, stride=1)],
        (2, 3, 9, 8),
    ),
    "sparse pools": ([nn.Conv2d(3, 5, 3), nn.MaxPool2d(2, stride=3)], (2, 3, 9, 8)),
    "pooling first": ([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.ReLU()], (2, 5, 8, 8)),
    "linear": ([nn.Linear(37, 21), nn.ReLU(), nn.Linear(21, 5)], (7, 37)),
    "flatten": ([nn.Flatten(), nn.Linear(3 * 5 * 4, 9)], (4, 3, 5, 4)),
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("seed", [1, 2])
def test_ragged(name, seed):
    layers, shape = RAGGED[name]
    rows, columns = [(4, 4), (3, 5), (8, 6)][seed % 3]
    config = make_config(variant="max", preset="tiny", rows=rows, columns=columns)
    run(layers, shape, config, seed=seed)


SMALL = {
    "rows": 3,
    "columns": 5,
    "buffer_banks": 2,
    "buffer_bank_depth": 64,
    "accumulator_depth": 16,
}
LARGER_THAN_BUFFERS = {
    "images and rows": ([nn.Conv2d(3, 6, 3, padding=1)], (2, 3, 12, 6)),
    "columns": ([nn.Conv2d(3, 6, 3, padding=1)], (1, 3, 3, 40)),
    "many channels": ([nn.Conv2d(40, 9, 3, padding=1)], (1, 40, 4, 4)),
    "kernel": ([nn.Flatten(), nn.Linear(2 * 12 * 12, 7)], (2, 2, 12, 12)),
    "outputs": ([nn.Linear(20, 90)], (20, 20)),
}


@pytest.mark.parametrize("name", LARGER_THAN_BUFFERS)
def test_layer_larger_than_every_buffer(name):
    layers, shape = LARGER_THAN_BUFFERS[name]
    config = make_config(variant="baseline", preset="tiny", **SMALL)
    program, _ = run(layers, shape, config, seed=3)
    words = config.memory_depth[0]
    weights = (
        program.tensors["1.weight" if name == "kernel" else "0.weight"].size
        // config.cores[0].word_bytes
    )
    inputs = program.input.size // config.cores[0].word_bytes
    assert weights + inputs > words or program.stages[0].runs[0]["tiles"] > 1


@pytest.mark.parametrize("placement", ["main", "pipeline", "split", [1, 0, 1], [1, 1, 1]])
def test_placements(placement):
    config = make_config(variant="max", preset="tiny", rows=6, columns=4, predictor_rows=4)
    program, result = run(DIGITS_LIKE, (6, 1, 8, 8), config, seed=4, placement=placement)
    used = {run["core"] for stage in program.stages for run in stage.runs}
    assert used == ({0} if placement == "main" else {1} if placement == [1] * 3 else {0, 1})
    assert result.overlap > 1


def test_weights_in_the_predictor_memory():
    config = make_config(variant="efficient", preset="tiny")
    program, _ = run(DIGITS_LIKE, (3, 1, 8, 8), config)
    assert [s.runs[0]["weights_memory"] for s in program.stages] == [0, 0, 1]
    program, _ = run(DIGITS_LIKE, (3, 1, 8, 8), config, predictor_memory=[0, 1])
    assert [s.runs[0]["weights_memory"] for s in program.stages] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_that_the_semaphores_allow(seed):
    config = make_config(variant="max", preset="tiny", buffer_bank_depth=128)
    run(DIGITS_LIKE, (4, 1, 8, 8), config, seed=seed)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel lengths")
def test_dilation_and_same_padding_against_torch():
    """Small integers: every sum is exact, whatever its order."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, dilation=2, padding=1),
        nn.Conv2d(5, 4, (3, 5), padding="same"),
        nn.Conv2d(4, 3, (2, 4), padding="same", dilation=(3, 1)),
    )
    shape = (2, 3, 8, 9)
    for layer in model:
        layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
        layer.bias.data = torch.randint(-3, 4, layer.bias.shape).float()
    x = torch.randint(-1, 2, shape).float()
    config = make_config(variant="low", preset="tiny")
    program = compiler.compile(model, config, shape)
    memory = program.memory(x.numpy().transpose(0, 2, 3, 1))
    interpret(config, program.commands, memory)
    got = program.outputs[-1].values(program.outputs[-1].unpack(bytes(memory)))
    expected = model(x).detach().numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("layers", "shape", "share"),
    [
        ([nn.Conv2d(64, 64, 3, padding=1)], (4, 64, 16, 16), 0.7585),
        ([nn.Linear(512, 512)], (512, 512), 0.9676),
    ],
)
def test_benchmark_plans_keep_the_array_busy(layers, shape, share):
    program = compiler.compile(nn.Sequential(*layers), make_config(variant="low"), shape)
    (stage,) = program.stages
    assert stage.efficiency > share
    assert stage.vector_cycles / program.estimated_cycles > 0.99
