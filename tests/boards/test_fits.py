"""Which arrays fit: counted from measured designs, and near those that were measured."""

import pytest

from boards.catalogue import board_by_name
from boards.fits import MOST, fits

BOARD = board_by_name("ulx3s")


def sizes(device, training):
    return {(fit.rows, fit.columns): fit for fit in fits(BOARD, device, training=training)}


def test_near_what_was_measured():
    """docs/results_fpga.md: 12 x 9 PEs with both engines take 71 % and are routed, 12 x 12 take
    83 % (with a row of multipliers in tables) and are not."""
    found = sizes("LFE5U-85F", True)
    assert found[4, 4].built and found[4, 4].share == pytest.approx(36_028 / 83_640)
    assert found[12, 9].share == pytest.approx(0.71, abs=0.01) and not found[12, 9].built
    assert (12, 12) not in found
    assert found[8, 8].built and found[8, 8].share == pytest.approx(50_068 / 83_640)
    assert sum(fit.built for fit in found.values()) == 2


def test_smaller_devices():
    for training in (True, False):
        before = set(sizes("LFE5U-85F", training))
        for device in ("LFE5U-45F", "LFE5U-25F"):
            found = sizes(device, training)
            assert set(found) <= before and all(fit.share <= MOST for fit in found.values())
            before = set(found)
    assert not sizes("LFE5U-25F", True)
    (small,) = sizes("LFE5U-45F", True).values()
    assert small.built and small.share == pytest.approx(33_278 / 43_848)
    assert set(sizes("LFE5U-85F", True)) <= set(sizes("LFE5U-85F", False))
