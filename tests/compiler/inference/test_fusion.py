"""Fused products: which layers they have, and where their weights lie.

Covers: compiler/inference/fused_product.py, compiler/inference/numbers.py,
compiler/inference/tiling.py, compiler/inference/weight_layout.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.codegen.core_builder import dma_fields
from compiler.frontend.torch_graph import trace
from compiler.inference.fusion import fuse
from compiler.inference.numbers import with_numbers
from compiler.inference.tiling import Geometry, k_boxes
from compiler.inference.weight_layout import WeightSlice
from compiler.tensors.tensor import Tensor
from emulator.machine import Machine
from golden.frontend import torch_graph as golden_graph
from golden.inference import fusion as golden_fusion
from hw.config import make_config
from hw.isa.encoding import Opcode


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(3)],
        [nn.ReLU(), nn.AvgPool2d(2), nn.ReLU(), nn.ReLU()],
        [nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Conv2d(4, 5, 3), nn.Flatten()],
        [nn.Conv2d(3, 4, 3, dilation=2), nn.AvgPool2d(4, 1), nn.ReLU(), nn.Flatten(), nn.ReLU()],
        [nn.Flatten(), nn.ReLU(), nn.Linear(192, 2)],
    ],
)
def test_same_products_as_golden(layers, training):
    """The window of 4 x 4 is more than the accumulators hold."""
    config = make_config(
        variant="baseline", preset="tiny", training=training or layers[0].__class__ is nn.Conv2d,
        accumulator_depth=16,
    )  # fmt: skip
    model, shape = nn.Sequential(*layers), (3, 8, 8)
    ours = fuse(trace(model, shape), config)
    golden = golden_fusion.fuse(
        golden_graph.trace(model, shape), vector=config.training, window=config.accumulator_depth
    )
    assert [layer.kind for layer in ours] == [node.kind for node in golden]
    assert [layer.name for layer in ours[1:]] == [node.name for node in golden[1:]]
    for layer, node in zip(ours, golden, strict=True):
        if layer.kind != "fused":
            continue
        own, expected = layer.options["product"], node.options["product"]
        channels, height, width = expected.output_shape
        assert (own.outputs, *own.output_map) == (channels, height, width)
        assert (own.relu, own.wide, own.kernel) == (expected.relu, expected.wide, expected.kernel)
        pool = expected.pool and {"max": "max", "average": "sum"}[expected.pool.kind]
        assert own.pool == pool


def _tiles(config, product, codes, image, box, parts, first, end):
    """K tiles that WEIGHTS brings, ``parts`` of ``box`` one after the other, from the buffer."""
    core = config.cores[0]
    geometry = Geometry(product, core)
    unit = config.granule_bytes // 2
    pitch = -(-product.outputs // unit) * unit
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
    _, layer = fuse(trace(nn.Sequential(nn.Conv2d(13, 19, (2, 3))), (13, 8, 8)), config)
    _, numbers = with_numbers([layer], config, None)
    product, codes = layer.options["product"], numbers["0"].weights
    geometry = Geometry(product, config.cores[0])
    for limit in (geometry.k_tiles, 6, 4, 2, 1):
        parts = k_boxes(geometry, [limit])
        for first in range(0, geometry.column_tiles, groups):
            end = min(first + groups, geometry.column_tiles)
            for box, inner in [(geometry.whole, parts), *((part, [part]) for part in parts)]:
                tiles = iter(_tiles(config, product, codes, bytes(8), box, inner, first, end))
                for nt in range(first, end):
                    for part in inner:
                        _check_tiles(codes, rows, columns, nt, part, tiles)
                assert next(tiles, None) is None


def _check_tiles(codes, rows, columns, column_tile, box, tiles):
    padded = np.zeros((*codes.shape[:2], 48, 48), np.uint16)
    padded[:, :, :13, :19] = codes
    for cb in range(box.cb0, box.cb1):
        for kh in range(box.kh0, box.kh1):
            for kw in range(box.kw0, box.kw1):
                outputs = slice(column_tile * columns, (column_tile + 1) * columns)
                expected = padded[kh, kw, cb * rows : (cb + 1) * rows, outputs]
                np.testing.assert_array_equal(next(tiles), expected, f"{column_tile} {box}")


def test_biases():
    """A row for each column tile of the core, filled up with zeros."""
    torch.manual_seed(2)
    config = make_config(variant="baseline", preset="tiny", rows=3, columns=4)
    program = compiler.compile(nn.Sequential(model := nn.Conv2d(5, 7, 1)), config, (1, 5, 8, 8))
    tensor = program.tensors["0.bias.core0"]
    biases = tensor.unpack(program.image())
    assert biases.shape == (1, 1, 2, 4)
    np.testing.assert_array_equal(
        tensor.values(biases).ravel(), [*model.bias.detach().double().numpy(), 0]
    )
