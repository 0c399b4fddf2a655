"""A board behind a serial port of the system: hosts as they are used with hardware, in processes of
their own too. The board is a model in the fast tests, the pins in the long one.
"""

import contextlib
import sys
import threading

import pytest

from boards.__main__ import main
from boards.catalogue import BoardError, board_by_name
from boards.sim.port import BoardPort, run_host
from boards.sim.simulator import BoardProcess, compile_board
from hw.config import make_config
from hw.registers.board import ACCELERATOR_BASE
from runtime.command import main as runtime
from runtime.device import open_device
from runtime.errors import AcceleratorError
from tests.boards.sim.test_simulator import OPTIONS, SMALL
from tests.runtime.test_serial_device import ModelBoard

SETTINGS = ["rows=2", "columns=2", "training=false"]
CONFIG = board_by_name("ulx3s").config(settings=SETTINGS)


class Simulated(ModelBoard):
    """Counts the cycles that it is given; a look at the accelerator's STATUS runs the emulator,
    too."""

    cycles = 0

    def read(self, address):
        if address == ACCELERATOR_BASE + self.map["STATUS"].offset:
            self.status()
        return super().read(address)

    def transfer(self, data, expected, *, patience_cycles=0):
        self.cycles += patience_cycles
        return super().transfer(data, expected)


@contextlib.contextmanager
def served(board, clock_hz=1_000_000):
    """The path of a port that a thread serves."""
    ended = threading.Event()
    with BoardPort(board, clock_hz=clock_hz) as port:
        server = threading.Thread(target=port.serve, args=(ended.is_set,))
        server.start()
        try:
            yield port.path
        finally:
            ended.set()
            server.join(10)
    assert not server.is_alive()


def test_self_test(capsys):
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    with served(Simulated(CONFIG.accelerator, 4 << 20)) as path:
        assert main(["self-test", "ulx3s", "--port", path, "--timeout", "300", *options]) == 0
        assert capsys.readouterr().out.endswith("PASS\n")
        # A bitstream of another configuration.
        other = [option.replace("columns=2", "columns=3") for option in options]
        assert main(["self-test", "ulx3s", "--port", path, *other]) == 2
        assert "CORE0_ARRAY.COLUMNS is 2, not 3" in capsys.readouterr().err


def _train(path, options, folder, monkeypatch):
    """``python -m runtime train`` and ``predict`` with a board; what they print."""
    monkeypatch.chdir(folder)
    (folder / "net.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    common = ["--model", "net.py:net", "--test", "2", "--batch", "2", "--timeout", "300", *options]
    common += ["--device", f"serial:{path}"]
    assert runtime(["train", *common, "--method", "bp", "--train", "2", "--epochs", "1", "--check",
                    "--weights", "net.pt"]) == 0  # fmt: skip
    assert runtime(["predict", *common, "--weights", "net.pt"]) == 0


def test_runtime(capsys, tmp_path, monkeypatch):
    """The command line of :mod:`runtime` takes a serial port for a device."""
    config = make_config(variant="baseline", preset="tiny", axi_data_width=32)
    options = ["--variant", "baseline", "--preset", "tiny", "--set", "axi_data_width=32"]
    with served(Simulated(config, 4 << 20)) as path:
        _train(path, options, tmp_path, monkeypatch)
    text = capsys.readouterr().out
    assert "every number equals golden's after every batch" in text and "2 samples, " in text


def test_time_stands_still():
    """It passes behind what the host has sent, and no longer."""
    board, still = Simulated(CONFIG.accelerator, 1 << 12), threading.Event()
    with BoardPort(board, clock_hz=1_000_000) as port:
        with open(port.path, "r+b", buffering=0) as host:
            host.write(bytes.fromhex("02 01 24000000"))  # read a word at 0x9000_0000
            port.serve(still.is_set, still.set)
            assert host.read(4) == b"ADGP"
        assert board.cycles == 400 * (1 + BoardPort.IDLE_SECONDS * 1e6 / 400)


def test_hosts(capfd):
    with BoardPort(Simulated(CONFIG.accelerator), clock_hz=1000) as port:
        words = f"{sys.executable} -c \"import os; os.write(1, b'{{port}}'); os._exit(3)\""
        assert run_host(port, words) == 3
        assert capfd.readouterr().out == port.path
        for command in ("/nowhere/at-all {port}", ""):
            with pytest.raises(BoardError, match=f"host '{command}' cannot be started: "):
                run_host(port, command)


@pytest.mark.long
def test_pins(capsys):
    """The same calls reach the simulated pins, from this process and from others."""
    board = board_by_name("ulx3s")
    config = board.config(settings=SMALL, baud=10_000_000)
    with BoardProcess(compile_board(board, config), clock_hz=config.clock_hz) as process:
        with served(process, config.clock_hz) as path:
            name = f"serial:{path}"
            device = open_device(name, config.accelerator, 1 << 20, timeout_seconds=60)
            data = bytes(range(256)) * 2
            device.put(0x1003, data)
            assert device.get(0x1003, len(data)) == data
            device.close()
            other = board.config(settings=["rows=3", *SMALL[1:]]).accelerator
            with pytest.raises(AcceleratorError, match="CORE0_ARRAY.ROWS is 2, not 3"):
                open_device(name, other, 1 << 20, timeout_seconds=60)
        status = process.status()
    assert (status["violations"], status["framing_errors"]) == ("0", "0")
    host = f"{sys.executable} -m boards self-test ulx3s --port {{port}} --timeout 60"
    assert main(["sim", "ulx3s", *OPTIONS, "--host", " ".join([host, *OPTIONS])]) == 0
    assert "0 violations" in capsys.readouterr().out
    assert main(["sim", "ulx3s", *OPTIONS, "--host", f"{sys.executable} -c 'exit(2)'"]) == 1


@pytest.mark.long
def test_runtime_at_pins(capsys, tmp_path, monkeypatch):
    board, settings = board_by_name("ulx3s"), [*SMALL[:3], "training=true"]
    config = board.config(settings=settings, baud=10_000_000)
    options = ["--variant", "baseline", "--preset", "ulx3s"]
    options += [part for setting in ["axi_data_width=32", *settings] for part in ("--set", setting)]
    with BoardProcess(compile_board(board, config), clock_hz=config.clock_hz) as process:
        with served(process, config.clock_hz) as path:
            _train(path, options, tmp_path, monkeypatch)
        status = process.status()
    assert (status["violations"], status["framing_errors"]) == ("0", "0")
    text = capsys.readouterr().out
    assert "every number equals golden's after every batch" in text and "2 samples, " in text
