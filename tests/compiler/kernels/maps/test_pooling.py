"""Max pooling with more places in a window than the operand format has whole numbers."""

import numpy as np
import pytest

from compiler.errors import CompileError
from compiler.kernels.maps import pooling
from golden.layers import elementwise_pool
from hw.config import make_config
from verif.programs.layer_cases import random_map
from verif.programs.layer_programs import LayerProgram


def config_of(operand_format):
    return make_config(
        variant="baseline", preset="tiny", operand_format=operand_format, rows=6, columns=4
    )


@pytest.mark.parametrize(
    ("operand_format", "shape", "kernel"),
    [
        ("bf16", (1, 1, 301, 3), (1, 300)),
        # Whole numbers up to 8 and up to 16; 113 numbers in all.
        ("fp8_e5m2", (2, 5, 5, 7), (4, 4)),
        ("fp8_e4m3", (1, 6, 7, 3), (5, 5)),
        ("fp8_e4m3", (1, 10, 11, 3), (10, 11)),
    ],
)
def test_places_of_large_windows(operand_format, shape, kernel, rng, seed):
    case = LayerProgram(config=config_of(operand_format))
    geometry = {"kernel": kernel, "stride": (1, 1)}
    codes = random_map(rng, case.format, shape, special=0)
    # Whatever the format, the maxima are late in their windows.
    first = elementwise_pool.max_pool(case.format, codes, kernel=(1, 1), stride=(1, 1))
    codes = np.where(np.arange(first.size).reshape(shape) < first.size // 2, 0, codes)
    wanted = elementwise_pool.max_pool(case.format, codes, **geometry)
    dy_codes = random_map(rng, case.format, wanted.shape, special=0.02)
    x, y = case.map("x", shape, codes), case.map("y", wanted.shape)
    places, dx = case.map("places", wanted.shape), case.map("dx", shape)
    dy = case.map("dy", wanted.shape, dy_codes)
    case.layer(pooling.max_pool, x, y, places, **geometry)
    case.layer(pooling.max_pool_backward, dy, places, dx, **geometry)
    case.expect(y, wanted)
    gradient = elementwise_pool.max_pool_backward(case.format, codes, dy_codes, **geometry)
    case.expect(dx, *gradient)
    case.check_with_interpreter(f"{operand_format}, {kernel}", seed)


def test_more_places_than_numbers():
    case = LayerProgram(config=config_of("fp8_e4m3"))
    x, y = case.map("x", (1, 11, 12, 3)), case.map("y", (1, 1, 1, 3))
    places = case.map("places", y.shape)
    case.layer(pooling.max_pool, x, y, places, kernel=(11, 12), stride=(1, 1))
    message = "layer of y: its windows have 132 places, but fp8_e4m3 can tell only 113 of them"
    with pytest.raises(CompileError, match=message):
        _ = case.commands
