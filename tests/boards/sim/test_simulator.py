"""A board at its pins: what a host reads and writes through the serial line, a network, and a chip
that does not fit its controller.

Covers: boards/sim/command.py, boards/sim/cpp/board.cpp, boards/sim/rtl/ecp5_io.v,
boards/sim/rtl/ehxplll.v.
"""

import re

import pytest

from boards.__main__ import main
from boards.catalogue import board_by_name
from boards.sim.simulator import BoardProcess, compile_board, violations
from hw.registers.board import MAGIC, SYSTEM_BASE
from runtime.errors import AcceleratorError
from runtime.serial_device import SerialDevice
from runtime.serial_link import UartBone

SMALL = ["rows=2", "columns=2", "buffer_bank_depth=256", "training=false"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]


def test_violations():
    assert [violations(count) for count in (0, 1, "1", 8801)] == [
        "0 violations", "1 violation", "1 violation", "8801 violations",
    ]  # fmt: skip


@pytest.mark.long
def test_memory_behind_the_line(rng):
    config = board_by_name("ulx3s").config(settings=SMALL, baud=10_000_000)
    program = compile_board(board_by_name("ulx3s"), config)
    with BoardProcess(program, clock_hz=config.clock_hz) as line:
        assert UartBone(line).read(SYSTEM_BASE, 1) == [MAGIC]
        device = SerialDevice(config.accelerator, 1 << 24, line=line)
        assert device.memory_bytes == 32 << 20
        data = rng.bytes(2000)
        for address in (1, 0x100FFD, (32 << 20) - 2001):
            device.put(address, data)
            assert device.get(address - 1, 2002)[1:2001] == data
        assert not device.overrun()
        status = line.status()
        assert (status["violations"], status["framing_errors"]) == ("0", "0")
        assert "text" not in status and int(status["transfers"]) > 6000
        other = board_by_name("ulx3s").config(settings=[*SMALL, "accumulator_depth=128"])
        with pytest.raises(AcceleratorError, match="bitstream is for configuration"):
            SerialDevice(other.accelerator, 1 << 20, line=line)


@pytest.mark.long
def test_network(capsys):
    assert main(["sim", "ulx3s", *OPTIONS, "--run", "digits", "--images", "1"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"PASS digits: 0 of [\d,]+ bytes differ from golden; 0 violations", text)
    assert "x those with ideal memory" in text


@pytest.mark.long
def test_chip_that_does_not_fit(capsys):
    arguments = ["sim", "ulx3s", *OPTIONS, "--run", "digits", "--images", "1", "--no-ideal"]
    assert main([*arguments, "--break", "trcd"]) == 1
    assert "tRCD" in capsys.readouterr().out


@pytest.mark.long
def test_memory_test(capsys):
    arguments = ["sim", "ulx3s", "--memory-test", "--requests", "2000", "--seeds", "1,2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("PASS") == 6
    for broken in ("trcd", "refresh", "init"):
        assert main([*arguments, "--break", broken]) == 1
        assert "FAIL" in capsys.readouterr().out
