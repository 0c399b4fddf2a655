"""The C program trains on a board: on a model behind a serial port, and, long, at the simulated
pins. It notices a wrong byte, a wrong loss and another bitstream.

Covers: examples/board/__main__.py, examples/board/train.c, examples/board/uartbone.c,
rtl_gen/board_header.py.
"""

import subprocess
from pathlib import Path

import pytest

from boards.__main__ import main as boards
from boards.catalogue import board_by_name
from boards.sim.port import BoardPort, run_host
from examples.board.__main__ import main
from tests.boards.sim.test_port import Simulated

FOLDER = Path(__file__).parents[3] / "examples" / "board"
SMALL = ["rows=2", "columns=3"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
CONFIG = board_by_name("ulx3s").config(settings=SMALL).accelerator


def prepare(directory, *options):
    """The program, compiled."""
    assert main(["ulx3s", "--output-dir", str(directory), *options]) == 0
    command = ["make", "-C", FOLDER, f"EXAMPLE={directory}", "CFLAGS=-O0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "train"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    directory = tmp_path_factory.mktemp("board")
    prepare(directory, *OPTIONS, "--batches", "3", "--images", "5")
    return directory


@pytest.fixture
def run(capfd):
    def run(directory, config=CONFIG):
        """Exit status of the program, and what it prints."""
        with BoardPort(Simulated(config, 1 << 17), clock_hz=1_000_000) as port:
            status = run_host(port, f"{directory}/train {{port}} {directory} 300")
        text = capfd.readouterr()
        return status, text.out + text.err

    return run


def test_trains(example, run):
    status, text = run(example)
    assert status == 0, text
    assert f"configuration {CONFIG.hash}, clock 40000000 Hz, memory 131072 bytes\n" in text
    assert text.count("batch ") == 3
    assert "PASS 0 of " in text and "0 of 3 losses differ from golden" in text


@pytest.mark.parametrize(("file", "place"), [("expected.bin", 5), ("batches.bin", 40)])
def test_notices(example, run, file, place):
    """A bit that golden has otherwise, and an input that golden did not have."""
    kept = (example / file).read_bytes()
    changed = bytearray(kept)
    changed[place] ^= 0x20
    (example / file).write_bytes(changed)
    try:
        status, text = run(example)
    finally:
        (example / file).write_bytes(kept)
    assert status == 1
    expected = "FAIL 1 of " if file == "expected.bin" else "of 3 losses"
    assert expected in text and "PASS" not in text and "FAIL 0 of" not in text


def test_other_bitstream(example, run):
    other = board_by_name("ulx3s").config(settings=["rows=3", "columns=3"]).accelerator
    status, text = run(example, other)
    assert status == 1
    assert f"configuration {other.hash[:8]}, not {CONFIG.hash[:8]}" in text
    assert "FAIL the bitstream is for another configuration" in text


def test_bad_ports(example, tmp_path):
    def said(*arguments):
        done = subprocess.run(
            [example / "train", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        return done.stderr

    assert said() == "FAIL usage: train PORT DIRECTORY [SECONDS]\n"
    assert said(tmp_path / "none", example) == "FAIL the port cannot be opened\n"
    assert said(example / "memory.bin", example) == "FAIL this is no serial port\n"
    assert said("x", tmp_path) == f"FAIL {tmp_path}/memory.bin\n"


def test_bad_input(capsys, tmp_path):
    assert main(["ulx3", "--output-dir", str(tmp_path)]) == 2
    assert "board must be one of ulx3s, not 'ulx3'" in capsys.readouterr().err
    assert main(["--output-dir", str(tmp_path), "--set", "rows=0"]) == 2
    assert "rows must be an integer from 1 to 256" in capsys.readouterr().err
    assert main(["--output-dir", str(tmp_path), "--set", "training=false"]) == 2
    assert "training" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_pins(tmp_path, capfd):
    program = prepare(tmp_path, *OPTIONS, "--batches", "2", "--images", "5")
    host = f"{program} {{port}} {tmp_path} 900"
    assert boards(["sim", "ulx3s", *OPTIONS, "--host", host]) == 0
    text = capfd.readouterr().out
    assert "0 of 2 losses differ" in text and "0 violations" in text
