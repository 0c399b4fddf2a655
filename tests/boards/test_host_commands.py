"""What a host does with a board: the self-test finds what is wrong; the loader's command.

Covers: boards/sim/simulator.py.
"""

import pytest

from boards.__main__ import main
from boards.catalogue import board_by_name
from boards.host_commands import self_test
from hw.registers.board import Status
from tests.runtime.test_serial_device import ModelBoard

CONFIG = board_by_name("ulx3s").config(settings=["rows=2", "columns=2", "training=false"])
MEMORY = 4 << 20


class Faulty(ModelBoard):
    """One bit of the memory is wrong."""

    def read(self, address):
        return super().read(address) ^ (address == MEMORY // 2)


class Losing(ModelBoard):
    """Bytes were lost."""

    def status(self):
        return super().status() | 1 << Status.OVERRUN


def test_self_test():
    said = []
    assert self_test(CONFIG, ModelBoard(CONFIG.accelerator, MEMORY), say=said.append)
    assert "clock 40 MHz, memory 4 MiB" in said[0]
    assert said[1] == "memory: 16 blocks of 256 bytes, 0 wrong"
    assert said[2].startswith("layers: classes [")


def test_faults():
    said = []
    assert not self_test(CONFIG, Faulty(CONFIG.accelerator, MEMORY), say=said.append)
    assert said[1] == "memory: 16 blocks of 256 bytes, 1 wrong, the first at 0x200000"
    assert not self_test(CONFIG, Losing(CONFIG.accelerator, MEMORY), say=said.append)
    assert said[-1] == "bytes to the board were lost"


def test_timeout_needs_a_port(capsys):
    assert main(["self-test", "ulx3s", "--simulate", "--timeout", "60"]) == 2
    assert "--timeout is for a serial port only" in capsys.readouterr().err


def test_load(capsys, tmp_path, monkeypatch):
    file = tmp_path / "x.bit"
    assert main(["load", "ulx3s", str(file), "--dry-run"]) == 2
    assert f"{file} does not exist" in capsys.readouterr().err
    file.touch()
    assert main(["load", "ulx3s", str(file), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"openFPGALoader -b ulx3s {file}\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["load", "ulx3s", str(file)]) == 2
    assert "openFPGALoader is not installed" in capsys.readouterr().err
    (tmp_path / "openFPGALoader").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "openFPGALoader").chmod(0o755)
    assert main(["load", "ulx3s", str(file), "--flash"]) == 3


@pytest.mark.long
def test_simulated(capsys):
    options = ["--set", "rows=2", "--set", "columns=2", "--set", "training=false"]
    assert main(["self-test", "ulx3s", "--simulate", *options]) == 0
    assert capsys.readouterr().out.endswith("PASS\n")
