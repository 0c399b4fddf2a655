"""Column tiles of products in training."""

import pytest

from compiler.tensors.column_tiles import ColumnTiles
from hw.config import make_config

PAPER = make_config(variant="baseline").cores[0]
WIDE = make_config(variant="baseline", rows=4, columns=10, post_lanes=2).cores[0]


@pytest.mark.parametrize("core", [PAPER, WIDE], ids=["paper", "wide"])
def test_tiles_cover_all_channels_with_as_few_tiles_as_possible(core):
    for channels in range(1, 100):
        tiles = ColumnTiles.of(channels, core)
        ranges = [tiles.range(tile) for tile in range(tiles.count)]
        assert [c for part in ranges for c in range(*part)] == list(range(channels)), channels
        assert tiles.count == -(-channels // core.columns), channels
        assert tiles.width <= core.columns and tiles.width % core.post_lanes == 0, channels


def test_widths():
    assert [ColumnTiles.of(c, PAPER).width for c in (1, 15, 16, 32, 36, 37, 64, 75)] == [
        12, 15, 12, 12, 12, 15, 15, 15,
    ]  # fmt: skip
    assert ColumnTiles.of(32, PAPER).range(2) == (24, 32)
    # Whole words where a tile has room for them, whole groups elsewhere.
    assert [ColumnTiles.of(c, WIDE).width for c in (11, 17, 25)] == [8, 10, 10]


def test_groups_take_all_columns():
    assert ColumnTiles.of(32, PAPER, groups=2).width == 15


@pytest.mark.parametrize(
    ("channels", "width", "most", "groups"),
    [
        (70, 4, 5, [(0, 5), (5, 10), (10, 15), (15, 18)]),
        # Words of 24 bytes begin with every second tile of 15 float32 numbers.
        (100, 15, 3, [(0, 2), (2, 4), (4, 7)]),
        (100, 15, 1, [(0, 2), (2, 4), (4, 6), (6, 7)]),
        (40, 7, 2, [(0, 6)]),
        (5, 7, 1, [(0, 1)]),
    ],
)
def test_groups_begin_with_a_word(channels, width, most, groups):
    tiles = ColumnTiles(channels, width)
    assert tiles.groups(most, 4, 24 if width > 4 else 8) == groups
    for begin, end in groups:
        assert not tiles.range(begin)[0] * 4 % (24 if width > 4 else 8) and end > begin
