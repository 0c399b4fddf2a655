"""Parameters in DRAM: shapes and pitch, round trips, what the layout means to torch and golden."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from compiler.tensors.dram_planner import Arena
from compiler.tensors.parameters import channel_pitch, pack_state, stored_parameters, unpack_state
from compiler.tensors.tensor import transfers
from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.layers.conv_general import block_diagonal
from golden.layers.optimizer import SGD
from golden.training.step import Training
from hw.config import make_config

CONFIGS = {
    "paper": make_config(variant="baseline"),
    "paper max": make_config(variant="max"),
    "tiny": make_config(variant="max", preset="tiny"),
    "ragged": make_config(variant="baseline", preset="tiny", rows=5, columns=7),
    "8 bits": make_config(variant="baseline", operand_format="fp8_e5m2"),
    "fp16": make_config(variant="max", preset="ulx3s", operand_format="fp16"),
}


def model_and_shape():
    return (
        nn.Sequential(
            nn.Conv2d(3, 10, (3, 2), padding=1),
            nn.BatchNorm2d(10),
            nn.Conv2d(10, 10, 3, groups=10, bias=False),
            nn.Conv2d(10, 15, (1, 3), groups=5),
            nn.Conv2d(15, 30, 1, groups=15),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(30 * 3 * 2, 7),
            nn.BatchNorm1d(7),
            nn.Linear(7, 3, bias=False),
        ),
        (3, 8, 8),
    )


def make(config, seed, **options):
    torch.manual_seed(seed)
    model, shape = model_and_shape()
    with torch.no_grad():
        for parameter in [*model.parameters(), *model.buffers()]:
            if parameter.is_floating_point():
                parameter.normal_()
    layers = trace(model, shape)
    parameters = stored_parameters(layers, config, **options)
    arena = Arena(64)
    for parameter in parameters.values():
        for tensor in parameter.tensors.values():
            arena.add(tensor.name, tensor.size, kind=tensor.kind, shape=tensor.shape)
    plan = arena.plan()
    plan.check()
    return model, {n: p.placed(plan.offsets) for n, p in parameters.items()}, plan.size


def memory_of(parameters, size, contents):
    memory = bytearray(b"\xa5" * size)
    for parameter in parameters.values():
        for tensor in parameter.tensors.values():
            if tensor.name in contents:
                data = contents[tensor.name]
                assert len(data) == tensor.size, tensor.name
                memory[tensor.offset : tensor.offset + tensor.size] = data
    return bytes(memory)


def assert_equal(actual, expected, what):
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    wrong = np.argwhere(actual != expected)
    assert not len(wrong), f"{what}[{wrong[0]}]: {actual[tuple(wrong[0])]}, expected " + str(
        expected[tuple(wrong[0])]
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_round_trip(name, seed):
    """Weights, statistics and velocities to memory and back; operand copies are golden's."""
    config = CONFIGS[name]
    model, parameters, size = make(config, seed)
    state = model.state_dict()
    velocity = {n: torch.randn(p.shape) for n, p in model.named_parameters()}
    contents = pack_state(parameters, state, {"velocity": velocity})
    memory = memory_of(parameters, size, contents)
    masters = unpack_state(parameters, memory)
    assert set(masters) == {key for key in state if "num_batches" not in key}
    for key, values in masters.items():
        assert values.dtype == np.float32
        assert_equal(values, state[key].numpy(), key)
    velocities = unpack_state(parameters, memory, "velocity")
    assert set(velocities) == set(velocity)
    for key, values in velocities.items():
        assert_equal(values, velocity[key].numpy(), key)
    fmt = format_by_name(config.operand_format)
    products = [n for n, p in parameters.items() if "operands" in p.tensors]
    assert products == [f"{number}.weight" for number in (0, 2, 3, 4, 7, 9)]
    for key in products:
        assert_equal(
            parameters[key].unpack("operands", memory), encode(fmt, state[key].numpy()), key
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_of_a_parameter_cover_the_same_channels(name, seed):
    """One pitch, whole granules, float32 rows of exactly as many words as VECTOR walks."""
    config = CONFIGS[name]
    _, parameters, _ = make(config, seed, slots=("first moment", "second moment"))
    for parameter in parameters.values():
        assert len({tensor.pitch for tensor in parameter.tensors.values()}) == 1, parameter.name
        for tensor in parameter.tensors.values():
            row = tensor.pitch * tensor.dtype.itemsize
            assert row % config.granule_bytes == 0, tensor.name
            assert tensor.size == np.prod(tensor.shape[:3]) * row, tensor.name
            box = [(0, size) for size in tensor.shape]
            for core in config.cores:
                chunks = core.chunks_per_wide if tensor.kind == "float32" else 1
                words = chunks * -(-tensor.pitch // core.rows) * np.prod(tensor.shape[:3])
                moves = transfers(tensor, *box[:3], (0, tensor.pitch), core.word_bytes)
                assert sum(move.words for move in moves) == words, tensor.name
    for core in config.cores:
        for channels in range(1, 3 * core.rows + 2):
            pitch = channel_pitch(channels, config)
            steps = -(-channel_pitch(channels, config) // core.rows)
            assert pitch >= channels
            assert -(-pitch * 4 // core.word_bytes) == steps * 32 // config.format.width
            # What POST writes in whole groups stays in the row.
            groups = -(-pitch // core.post_lanes) * core.post_lanes
            assert groups * 4 <= steps * 4 * core.rows
    roles = [*parameters["3.weight"].tensors]
    assert roles == ["master", "first moment", "second moment", "gradient", "operands", "mask"]


def test_pitch():
    paper, tiny = CONFIGS["paper"], CONFIGS["tiny"]
    assert [channel_pitch(c, paper) for c in (1, 4, 8, 9, 12, 13, 16, 64)] == [
        8, 8, 8, 12, 12, 20, 20, 68,
    ]  # fmt: skip
    assert [channel_pitch(c, tiny) for c in (1, 4, 5, 64)] == [4, 4, 8, 64]


def test_shapes(seed):
    _, parameters, _ = make(CONFIGS["tiny"], seed)
    shapes = {name: (p.shape, p.groups) for name, p in parameters.items() if "weight" in name}
    assert shapes == {
        "0.weight": ((3, 2, 3, 10), 1),
        "1.weight": ((1, 1, 1, 10), 1),
        "2.weight": ((3, 3, 1, 10), 1),
        "3.weight": ((1, 3, 10, 15), 5),
        "4.weight": ((1, 1, 15, 30), 15),
        "7.weight": ((3, 2, 30, 7), 1),
        "8.weight": ((1, 1, 1, 7), 1),
        "9.weight": ((1, 1, 7, 3), 1),
    }
    assert [*parameters["1.running_var"].tensors] == ["master"]
    assert [*parameters["0.bias"].tensors] == ["master", "velocity", "gradient"]
    assert parameters["0.weight"].tensors["operands"].name == "0.weight.operands"


def test_a_linear_layer_is_a_convolution_of_its_map(seed):
    """Torch, on integers: exact."""
    _, parameters, _ = make(CONFIGS["paper"], seed)
    parameter = parameters["7.weight"]
    weights = torch.randint(-4, 5, parameter.torch_shape).double()
    maps = torch.randint(-4, 5, (2, 30, 3, 2)).double()
    kernel = torch.from_numpy(parameter.to_memory(weights.numpy())).permute(3, 2, 0, 1)
    expected = functional.linear(maps.flatten(1), weights)
    assert torch.equal(functional.conv2d(maps, kernel).flatten(1), expected)


@pytest.mark.parametrize(("key", "groups"), [("3.weight", 5), ("4.weight", 15)])
def test_groups_are_blocks_on_the_diagonal(key, groups, seed, rng):
    _, parameters, size = make(CONFIGS["tiny"], seed)
    parameter = parameters[key]
    values = rng.integers(1, 1000, parameter.torch_shape)
    dense = parameter.to_memory(values)
    for kh in range(dense.shape[0]):
        for kw in range(dense.shape[1]):
            expected = block_diagonal(values[:, :, kh, kw], groups).T
            assert_equal(dense[kh, kw], expected, f"{key} at {kh}, {kw}")
    assert_equal(parameter.mask, block_diagonal(values[:, :, 0, 0], groups).T > 0, "mask")
    assert_equal(parameter.from_memory(dense), values, key)
    # What lies outside the groups does not matter.
    dirty = np.where(parameter.mask, dense, -7)
    assert_equal(parameter.from_memory(dirty), values, key)
    state = {name: np.zeros(p.torch_shape) for name, p in parameters.items()}
    memory = memory_of(parameters, size, pack_state(parameters, state))
    mask = parameter.tensors["mask"].unpack(memory)
    assert_equal(mask[0, 0], np.where(parameter.mask, 0x3F80, 0), "codes of the mask")


def test_restart_equals_golden(seed, rng):
    """Weights, velocities and statistics after a step of golden's, through memory, as bits."""
    config = CONFIGS["paper"]
    model, parameters, size = make(config, seed)
    training = Training(
        model,
        input_shape=model_and_shape()[1],
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
        rows=config.rows,
        columns=config.columns,
    )
    training.step(rng.standard_normal((2, 8, 8, 3)), rng.integers(0, 3, 2))
    bits = training.weights | training.running
    contents = pack_state(
        parameters,
        {name: decode(FLOAT32, values) for name, values in bits.items()},
        {"velocity": {name: decode(FLOAT32, slot[0]) for name, slot in training.slots.items()}},
    )
    memory = memory_of(parameters, size, contents)
    for name, parameter in parameters.items():
        assert_equal(parameter.unpack("master", memory), bits[name], name)
        if name in training.operands:
            assert_equal(parameter.unpack("operands", memory), training.operands[name], name)
        if name in training.slots:
            assert_equal(parameter.unpack("velocity", memory), training.slots[name][0], name)


def test_special_values_are_those_of_golden(seed):
    _, parameters, size = make(CONFIGS["tiny"], seed)
    parameter = parameters["8.weight"]
    values = np.array([1e-40, -1e-39, np.inf, -np.inf, np.nan, -0.0, 3.0])
    state = {n: np.zeros(p.torch_shape) for n, p in parameters.items()} | {"8.weight": values}
    contents = pack_state(parameters, state, {"velocity": {"8.weight": values}})
    memory = memory_of(parameters, size, contents)
    for role in ("master", "velocity"):
        assert_equal(parameter.unpack(role, memory), encode(FLOAT32, values), role)


def test_messages(seed):
    model, shape = model_and_shape()
    layers = trace(model, shape)
    with pytest.raises(CompileError, match="needs a float format, not int8; allowed are bf16, fp1"):
        stored_parameters(layers, make_config(variant="low", operand_format="int8"))
    parameter = stored_parameters(layers, CONFIGS["tiny"])["0.weight"]
    with pytest.raises(ValueError, match=r"0.weight has shape \(10, 3, 3, 2\), not \(3, 2, 3, 10"):
        parameter.to_memory(np.zeros(parameter.shape))
    with pytest.raises(ValueError, match=r"0.weight is stored as \(3, 2, 3, 10\), not \(10, 3, "):
        parameter.from_memory(np.zeros(parameter.torch_shape))
