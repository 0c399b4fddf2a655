"""The boards, and what the command line says of them.

Covers: boards/listing.py, boards/options.py, boards/__main__.py.
"""

import argparse

import pytest

from boards.__main__ import main
from boards.catalogue import BOARDS, BoardError, board_by_name
from boards.options import add_system, board_of, system_of


def test_defaults():
    for name, board in BOARDS.items():
        config = board_by_name(name).config()
        assert config.accelerator.axi_data_width == 32
        assert config.accelerator.technology == "ecp5"
        assert board.peak_mbytes == 2 * config.sdram.clock_mhz
    changed = BOARDS["ulx3s"].config(settings=["columns=8"], clock_mhz=50, chip="AS4C32M16SB-7")
    assert (changed.accelerator.columns, changed.clock_mhz) == (8, 50)
    assert changed.accelerator.training and changed.chip.size_bytes == 64 << 20


def test_smaller_device():
    """It has settings of its own, which every command takes with the device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("board")
    add_system(parser)

    def queues(*words):
        arguments = parser.parse_args(["ulx3s", *words])
        board = board_of(arguments)
        return board.device, system_of(board, arguments).accelerator.command_queue_depth

    assert queues() == queues("--device", "LFE5U-85F") == ("LFE5U-85F", 4)
    assert queues("--device", "LFE5U-45F") == ("LFE5U-45F", 2)
    assert queues("--device", "LFE5U-45F", "--set", "command_queue_depth=1") == ("LFE5U-45F", 1)


def test_unknown():
    with pytest.raises(BoardError, match="board must be one of ulx3s, not 'ulxs'; did you mean"):
        board_by_name("ulxs")
    with pytest.raises(BoardError, match="chip must be one of any, .*, not 'x'"):
        BOARDS["ulx3s"].config(chip="x")


def test_list(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert "or LFE5U-25F, CABGA381, speed grade 6" in text and "160 MB/s" in text
    assert "LFE5U-85F, with training engines: 4 x 4* (43 %), " in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sim", "ulx3s"], "give one of --run, --memory-test, --serve and --host"),
        (["sim", "ulx4", "--memory-test"], "board must be one of ulx3s, not 'ulx4'"),
        (["sim", "ulx3s", "--memory-test", "--clock", "90"], "must be from 20 to 133 MHz, not 180"),
        (["build", "ulx3s", "--set", "rows=0"], "rows must be an integer from 1 to 256, not 0"),
        (["build", "ulx3s", "--dry-run", "--clock", "43.21"], "the next is 42.8571 MHz"),
        (["build", "ulx3s", "--chip", "DDR"], "chip must be one of any, "),
        (["build", "ulx3s", "--device", "X"], "device must be one of LFE5U-85F, LFE5U-45F, "),
        (["sim", "ulx3s", "--run", "train-adagp", "--batches", "3"], "must be a multiple of 4"),
    ],
)
def test_bad_input(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_bad_numbers(capsys):
    with pytest.raises(SystemExit) as error:
        main(["sim", "ulx3s", "--memory-test", "--requests", "0"])
    assert error.value.code == 2
    assert "must be a number from 1 on, not '0'" in capsys.readouterr().err
