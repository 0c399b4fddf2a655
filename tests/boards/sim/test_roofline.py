"""What an array needs and what a memory gives; the whole measurement is long."""

import pytest

from boards.__main__ import main
from boards.catalogue import board_by_name
from boards.sim.networks import prepare_network
from boards.sim.roofline import Point, draw, measure, memory_rates
from hw.config import make_config


def test_multiplications():
    """Counted from the layers by hand: each product forward, and as many for both gradients; the
    first layer has no input gradient."""
    config = make_config(variant="low", preset="tiny", axi_data_width=32)
    network = prepare_network("train-digits", config, images=2, batches=1)
    first, second, third, head = 64 * 9 * 6, 64 * 9 * 6 * 10, 16 * 9 * 10 * 14, 56 * 10
    assert network.macs == 2 * (2 * first + 3 * (second + third + head))


def test_picture(tmp_path, capsys):
    point = Point(rows=4, columns=4, macs=10**6, moved=10**6, ideal=10**5, cycles=1.1e5, wrong=0)
    assert (point.intensity, point.peak) == (1.0, 16)
    draw([point], {1: 1.9, 2: 3.9}, board_by_name("ulx3s").config(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SystemExit):
        main(["roofline", "ulx3s", "--array", "4"])
    assert "must be like 4x8, not '4'" in capsys.readouterr().err


@pytest.mark.long
def test_measured():
    board = board_by_name("ulx3s")
    config = board.config(settings=["rows=2", "columns=2", "buffer_bank_depth=1024"])
    point = measure(board, config, images=2)
    assert not point.wrong and point.moved > 50_000
    assert point.ideal <= point.cycles < 1.15 * point.ideal
    rates = memory_rates(config)
    assert 1.8 < rates[1] < 2 and 3.6 < rates[2] < 4
