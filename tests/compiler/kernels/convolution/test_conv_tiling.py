"""Tiles of the map that a product writes."""

import pytest

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.errors import CompileError
from compiler.kernels.convolution.conv_tiling import cut_map
from hw.config import make_config

CONFIG = make_config(variant="baseline")


def cut(images, height, columns, **options):
    program = CoreProgram(CONFIG, CONFIG.cores[0], Recorder(CONFIG))
    options = {"size": lambda *part: 1, "weights": 0, "what": "it"} | options
    return cut_map(program, images, height, columns, **options)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("images", "height", "columns"), [(8, 16, 16), (8, 8, 8), (1, 64, 40), (3, 1, 1), (2, 5, 300)]
)
def test_tiles_cover_every_line_once(images, height, columns, step):
    parts = cut(images, height, columns, step=step)
    lines = [(n, h) for (n0, n1), (h0, h1) in parts for n in range(n0, n1) for h in range(h0, h1)]
    assert lines == [(n, h) for n in range(images) for h in range(height)]
    for (n0, n1), (h0, h1) in parts:
        assert (n1 - n0) * -(-(h1 - h0) // step) * columns <= CONFIG.accumulator_depth
        assert h0 % step == 0 and (n1 - n0 == 1 or (h0, h1) == (0, height))


def test_the_first_and_the_last_tile_are_short():
    assert cut(8, 16, 16) == [
        ((0, 1), (0, 4)), ((0, 1), (4, 16)), ((1, 2), (0, 16)),
        ((2, 4), (0, 16)), ((4, 6), (0, 16)),
        ((6, 7), (0, 16)), ((7, 8), (0, 12)), ((7, 8), (12, 16)),
    ]  # fmt: skip
    assert cut(1, 64, 40)[0] == ((0, 1), (0, 1))
    # Images too small for a tile of their own.
    images = [end - begin for (begin, end), _ in cut(1200, 1, 1)]
    assert images == [64, 176, 240, 240, 240, 176, 64]
    assert cut(8, 1, 1) == [((0, 8), (0, 1))]
    # The parts of a strided gradient begin with the first line of a phase.
    assert cut(8, 16, 8, step=2)[-1] == ((7, 8), (0, 16))


def test_what_does_not_fit():
    with pytest.raises(
        CompileError, match=r"it does not fit into the accumulators \(512 vectors\)"
    ):
        cut(1, 4, 513)
    with pytest.raises(CompileError, match=r"or the buffer \(16384 words\)"):
        cut(1, 4, 4, size=lambda *part: 20_000)
