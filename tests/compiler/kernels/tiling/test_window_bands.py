"""Pooling whose windows do not fit into the buffer, against golden, bit for bit."""

import pytest

from compiler.errors import CompileError
from compiler.kernels.maps import pooling
from golden.arithmetic.dot_product import encode
from golden.layers import elementwise_pool
from hw.config import make_config
from verif.programs.layer_cases import random_map
from verif.programs.layer_programs import LayerProgram

#: Shape, kernel, stride, padding: one window; windows that overlap, with padding; parts of the
#: channels; ones that are apart.
CASES = {
    "one window": ((2, 13, 9, 3), (13, 9), (1, 1), (0, 0)),
    "overlapping": ((1, 12, 7, 5), (11, 4), (2, 2), (5, 2)),
    "channels": ((1, 8, 9, 13), (8, 9), (1, 1), (0, 0)),
    "apart": ((1, 18, 10, 5), (9, 5), (9, 5), (0, 0)),
}


def small(words):
    return make_config(
        variant="baseline", preset="tiny", buffer_banks=words // 16, buffer_bank_depth=16
    )


def geometry_of(name):
    return dict(zip(("kernel", "stride", "padding"), CASES[name][1:], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_average_pooling(name, rng, seed):
    shape, geometry = CASES[name][0], geometry_of(name)
    case = LayerProgram(config=small(64))
    codes = random_map(rng, case.format, shape, special=0.01)
    x = case.map("x", shape, codes)
    for include in (True, False):
        wanted, flags = elementwise_pool.average_pool(
            case.format, codes, **geometry, include_pad=include
        )
        y = case.map(f"y {include}", wanted.shape)
        case.layer(pooling.average_pool, x, y, **geometry, include_pad=include)
        case.expect(y, wanted, flags)
    case.check_with_interpreter(name, seed)


@pytest.mark.parametrize("name", CASES)
def test_max_pooling(name, rng, seed):
    """With the places of the maxima."""
    shape, geometry = CASES[name][0], geometry_of(name)
    case = LayerProgram(config=small(64))
    codes = random_map(rng, case.format, shape, special=0.05)
    wanted = elementwise_pool.max_pool(case.format, codes, **geometry)
    x, y = case.map("x", shape, codes), case.map("y", wanted.shape)
    places = case.map("places", wanted.shape)
    case.layer(pooling.max_pool, x, y, places, **geometry)
    case.expect(y, wanted)
    first = elementwise_pool.first_maximum(case.format, codes, **geometry)
    case.expect(places, encode(case.format, first))
    case.check_with_interpreter(name, seed)


def test_a_row_of_the_map_has_to_fit():
    case = LayerProgram(config=small(64))
    x, y = case.map("x", (1, 3, 70, 3)), case.map("y", (1, 1, 1, 3))
    case.layer(pooling.average_pool, x, y, kernel=(3, 70), stride=(1, 1))
    message = r"layer of y: a row of its map with one word per pixel, .* \(64 words\)"
    with pytest.raises(CompileError, match=message):
        _ = case.commands
