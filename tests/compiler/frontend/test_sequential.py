"""Networks into stages: how layers merge, and the message of every layer that is refused.

Covers: compiler/inference/tiling.py, compiler/inference/weight_layout.py,
compiler/tensors/tensor.py, compiler/tensors/encoding.py, compiler/tensors/intervals.py.
"""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.codegen.core_builder import dma_fields
from compiler.frontend.sequential import stages_of
from compiler.inference.run import Semaphore
from compiler.inference.tiling import Geometry, k_boxes
from compiler.inference.weight_layout import WeightSlice
from compiler.tensors.encoding import codes_of, dense_weights, tiled_biases
from compiler.tensors.tensor import Tensor
from emulator.machine import Machine
from golden.arithmetic.dot_product import FLOAT32, FORMATS, decode, encode
from golden.inference.stages import group_layers
from hw.config import AdaGPConfig, make_config
from hw.formats import FORMATS as HW_FORMATS
from hw.isa.encoding import Opcode

CONFIG = make_config(variant="baseline", preset="tiny")


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(3)],
        [nn.ReLU(), nn.AvgPool2d(2), nn.ReLU(), nn.ReLU()],
        [nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Conv2d(4, 5, 3), nn.Flatten()],
    ],
)
def test_same_stages_as_golden(layers):
    model = nn.Sequential(*layers)
    ours, golden = stages_of(model, (2, 3, 8, 8), CONFIG), group_layers(model, (3, 8, 8))
    assert len(ours) == len(golden)
    for stage, expected in zip(ours, golden, strict=True):
        channels, height, width = expected.output_shape
        assert stage.output_shape == (2, height, width, channels)
        assert stage.relu == expected.relu
        assert stage.wide == expected.wide
        assert {"max": "max", "sum": "average", None: None}[stage.pool] == (
            expected.pool and expected.pool.kind
        )


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Conv2d(3, 6, 3, groups=3)], "layer 0 Conv2d: groups must be 1, not 3"),
        ([nn.Conv2d(4, 6, 3)], "layer 0 Conv2d: expects 4 input channels but gets 3"),
        ([nn.Conv2d(3, 6, 3, padding_mode="circular", padding=1)], "padding_mode must be 'zeros'"),
        ([nn.Conv2d(3, 6, 9)], r"kernel \(9, 9\) is larger than its 8 x 8 input"),
        ([nn.ReLU(), nn.Sigmoid()], "layer 1 Sigmoid: not supported; allowed are Conv2d, Linear"),
        ([nn.Linear(8, 2)], "layer 0 Linear: a linear layer needs Flatten before it"),
        ([nn.Flatten(), nn.Linear(8, 2)], "expects 8 features but gets 192"),
        ([nn.Flatten(), nn.Conv2d(3, 1, 1)], "layer 1 Conv2d: a convolution cannot follow Flatten"),
        ([nn.Flatten(), nn.MaxPool2d(2)], "layer 1 MaxPool2d: a pooling layer cannot follow"),
        ([nn.Flatten(2)], "layer 0 Flatten: .* not start_dim=2 and end_dim=-1"),
        ([nn.MaxPool2d(3, padding=1)], "layer 0 MaxPool2d: padding must be 0, not 1"),
        ([nn.MaxPool2d(2, dilation=2)], "dilation must be 1, not 2"),
        ([nn.MaxPool2d(2, ceil_mode=True)], "ceil_mode must be False, not True"),
        ([nn.MaxPool2d(2, return_indices=True)], "return_indices must be False"),
        ([nn.AvgPool2d(2, divisor_override=3)], "divisor_override must be None, not 3"),
        ([nn.AvgPool2d(9)], r"window \(9, 9\) is larger than its 8 x 8 input"),
        ([nn.Conv2d(3, 1, 1, stride=300)], r"must be at most 255, not \(300, 300\) and \(1, 1\)"),
        ([nn.Flatten()], "the model has no layer that computes; allowed are Conv2d"),
    ],
)
def test_refused_layers(layers, message):
    with pytest.raises(compiler.CompileError, match=message):
        compiler.compile(nn.Sequential(*layers), CONFIG, (2, 3, 8, 8), placement="main")


def test_other_errors():
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.raises(compiler.CompileError, match="must be a torch.nn.Sequential, not Conv2d"):
        stages_of(nn.Conv2d(3, 4, 1), (2, 3, 8, 8), CONFIG)
    with pytest.raises(compiler.CompileError, match=r"input_shape must be \(N, C, H, W\)"):
        stages_of(model, (3, 8, 8), CONFIG)
    with pytest.raises(compiler.CompileError, match="its input is a sequence; it takes maps"):
        compiler.compile(model, CONFIG, (3, 8, 8))
    with pytest.raises(compiler.CompileError, match=r"input_shape must be \(N, C, H, W\).* not 3"):
        compiler.compile(model, CONFIG, 3)
    with pytest.raises(compiler.CompileError, match="config must be an AdaGPConfig, .*, not None"):
        compiler.compile(model, None, (2, 3, 8, 8))
    scripted = torch.jit.script(model)
    with pytest.raises(compiler.CompileError, match="the model is scripted or traced"):
        compiler.compile(scripted, CONFIG, (2, 3, 8, 8))
    with pytest.raises(compiler.CompileError, match="placement 'split' needs two cores"):
        compiler.compile(model, CONFIG, (2, 3, 8, 8), placement="split")
    with pytest.raises(compiler.CompileError, match="placement must list a core from 0 to 0"):
        compiler.compile(model, CONFIG, (2, 3, 8, 8), placement=[1])
    with pytest.raises(compiler.CompileError, match="does not reach a predictor memory"):
        compiler.compile(model, CONFIG, (2, 3, 8, 8), predictor_memory=[0])
    integer = make_config(variant="baseline", preset="tiny", operand_format="int8")
    with pytest.raises(compiler.CompileError, match="int8 needs parameters, one entry for each"):
        compiler.compile(model, integer, (2, 3, 8, 8))
    pool = nn.Sequential(nn.AvgPool2d(8))
    shallow = make_config(variant="baseline", preset="tiny", accumulator_depth=16)
    with pytest.raises(compiler.CompileError, match="layer .*AvgPool2d: not even one output fits"):
        compiler.compile(pool, shallow, (2, 3, 8, 8))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"weights_bits": np.zeros((4, 3, 1, 1))}, "weights_bits or scale_field is missing"),
        ({"scale_field": 1}, "weights_bits or scale_field is missing"),
        (
            {"weights_bits": np.zeros((4, 3)), "scale_field": 1 << 32},
            "scale_field must have 32 bits",
        ),
        ({"weights_bits": np.zeros((4, 2)), "scale_field": 1}, "weights_bits must have shape"),
        (
            {"weights_bits": np.zeros((4, 3)), "scale_field": 1, "bias_bits": np.zeros(3)},
            "bias_bits must have shape",
        ),
    ],
)
def test_refused_parameters(entry, message):
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.raises(compiler.CompileError, match=f"layer 0 Conv2d: {message}"):
        compiler.compile(model, CONFIG, (2, 3, 8, 8), parameters=[entry])


def test_every_core_has_the_semaphores_that_programs_use():
    (field,) = (field for field in dataclasses.fields(AdaGPConfig) if field.name == "semaphores")
    assert len(Semaphore) == field.metadata["minimum"]


@pytest.mark.parametrize("name", list(HW_FORMATS))
def test_codes_equal_golden(name, rng):
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    narrow = np.ldexp(rng.normal(size=20_000), rng.integers(-30, 20, 20_000)).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1.5, 2.5, -2.5, 65519.9, 65520.0], np.float32)
    values = np.concatenate([values, narrow, special, np.float32([np.nan])])
    if not HW_FORMATS[name].is_float:
        values = values[np.isfinite(values)]
    got, expected = codes_of(HW_FORMATS[name], values), encode(FORMATS[name], values)
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), (
        f"{values[wrong[0]]!r}: expected {expected[wrong[0]]:#x}, not {got[wrong[0]]:#x}"
    )


def _tiles(config, stage, image, box, parts, first, end):
    """K tiles that WEIGHTS brings, ``parts`` of ``box`` one after the other, from the buffer."""
    core = config.cores[0]
    geometry = Geometry(stage, core)
    unit = config.granule_bytes // 2
    pitch = -(-stage.weight.shape[0] // unit) * unit
    codes = dense_weights(stage)
    tensor = Tensor(
        name="w", offset=64, size=codes.size // codes.shape[3] * pitch * 2, shape=codes.shape,
        pitch=pitch, kind="bf16", stage=0,
    )  # fmt: skip
    memory = bytearray(64) + tensor.pack(codes) + image
    weights = WeightSlice(tensor, geometry, unit, box, first, end)
    machine = Machine(config, memory)
    for part in parts:
        for move in weights.moves(part):
            machine.execute(Opcode.LOAD, {"core": 0, **dma_fields(10 + move.word, move)})
            assert move.word + move.words <= weights.words
    for column_tile in range(first, end):
        for part in parts:
            fields = weights.fields(column_tile, part, address=10, bias_address=None)
            machine.execute(Opcode.WEIGHTS, {"core": 0, **fields})
    return [tile for tile, bias in machine.tiles[0] if bias is None]


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 4), (4, 2), (12, 15), (8, 3)])
@pytest.mark.parametrize("groups", [1, 2, 9])
def test_every_weight_is_where_the_array_expects_it(rows, columns, groups):
    """Slices of all sizes, loaded and used in parts; everything else is zero."""
    torch.manual_seed(2)
    config = make_config(variant="baseline", preset="tiny", rows=rows, columns=columns)
    (stage,) = stages_of(nn.Sequential(nn.Conv2d(13, 19, (2, 3))), (1, 13, 8, 8), config)
    geometry = Geometry(stage, config.cores[0])
    for limit in (geometry.k_tiles, 6, 4, 2, 1):
        parts = k_boxes(geometry, [limit])
        for first in range(0, geometry.column_tiles, groups):
            end = min(first + groups, geometry.column_tiles)
            for box, inner in [(geometry.whole, parts), *((part, [part]) for part in parts)]:
                tiles = iter(_tiles(config, stage, bytes(8), box, inner, first, end))
                for nt in range(first, end):
                    for part in inner:
                        _check_tiles(stage, rows, columns, nt, part, tiles)
                assert next(tiles, None) is None


def _check_tiles(stage, rows, columns, column_tile, box, tiles):
    padded = np.zeros((*dense_weights(stage).shape[:2], 48, 48), np.uint16)
    padded[:, :, :13, :19] = dense_weights(stage)
    for cb in range(box.cb0, box.cb1):
        for kh in range(box.kh0, box.kh1):
            for kw in range(box.kw0, box.kw1):
                outputs = slice(column_tile * columns, (column_tile + 1) * columns)
                expected = padded[kh, kw, cb * rows : (cb + 1) * rows, outputs]
                np.testing.assert_array_equal(next(tiles), expected, f"{column_tile} {box}")


def test_biases():
    torch.manual_seed(2)
    config = make_config(variant="baseline", preset="tiny", rows=3, columns=4)
    (stage,) = stages_of(nn.Sequential(model := nn.Conv2d(5, 7, 1)), (1, 5, 8, 8), config)
    biases = tiled_biases(stage, config.cores[0])
    assert biases.shape == (1, 1, 2, 4)
    np.testing.assert_array_equal(
        decode(FLOAT32, biases.ravel()), [*model.bias.detach().double().numpy(), 0]
    )
