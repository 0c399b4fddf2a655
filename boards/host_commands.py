"""``python -m boards self-test`` and ``load``: what a host does with a board."""

import argparse
import random
import shutil
import subprocess
from pathlib import Path

import torch
from torch import nn

from boards.catalogue import BOARDS, BoardError, board_by_name
from boards.options import add_system, board_of, system_of, whole
from boards.sim.simulator import BoardProcess, compile_board
from hw.registers import host
from runtime import Accelerator
from runtime.options import add_timeout, line_options
from runtime.serial_device import SerialDevice
from runtime.serial_link import Line, SerialLine

__all__ = ["Load", "SelfTest", "self_test"]

#: Of the memory test: bytes of a block, and how many blocks lie all over the memory.
_BLOCK, _BLOCKS = 256, 16
_LOADER = "openFPGALoader"


def self_test(config, line: Line, *, seed: int = 1, say=print) -> bool:
    """Identification and configuration, memory, a small layer compared with the emulator; whether
    all is right. Raises AcceleratorError where the board cannot be operated."""
    device = SerialDevice(config.accelerator, 1 << 20, line=line)
    capabilities = host.field_values(device._map, "CAPABILITIES", device.read("CAPABILITIES"))
    say(
        f"configuration {device.read('CONFIG_HASH'):08x}, {capabilities['CORES']} core(s), "
        f"clock {device.clock_hz / 1e6:g} MHz, memory {device.memory_bytes >> 20} MiB"
    )
    rng = random.Random(seed)
    places = [device.memory_bytes * i // _BLOCKS for i in range(_BLOCKS - 1)]
    places.append(device.memory_bytes - _BLOCK)
    blocks = {place: rng.randbytes(_BLOCK) for place in places}
    for place, block in blocks.items():
        device.put(place, block)
    wrong = [place for place, block in blocks.items() if device.get(place, _BLOCK) != block]
    say(
        f"memory: {len(places)} blocks of {_BLOCK} bytes, {len(wrong)} wrong"
        + (f", the first at {wrong[0]:#x}" if wrong else "")
    )
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    images = torch.randn(2, 2, 4, 4).numpy()
    results = []
    for kind in (lambda _config, _bytes: device, "emulator"):
        accelerator = Accelerator(config.accelerator, device=kind)
        results.append(accelerator.predict(model, images).tolist())
        if kind == "emulator":
            accelerator.close()
    say(f"layers: classes {results[0]}, the emulator has {results[1]}")
    lost = device.overrun()
    if lost:
        say("bytes to the board were lost")
    return not wrong and results[0] == results[1] and not lost


class SelfTest:
    """The command ``self-test``."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("board", help=f"one of {', '.join(BOARDS)}")
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--port", help="serial port of the board, e.g. /dev/ttyUSB0")
        where.add_argument("--simulate", action="store_true", help="the board at its pins")
        parser.epilog = "Example: python -m boards self-test ulx3s --port /dev/ttyUSB0"
        add_timeout(parser)
        parser.add_argument("--seed", type=whole(0), default=1, help="of the data (1)")
        add_system(parser)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """The exit status: 0 if all is right, 1 if not."""
        board = board_of(arguments)
        config = system_of(board, arguments, fastest=arguments.simulate)
        try:
            options = line_options(arguments, serial=not arguments.simulate)
        except ValueError as error:
            raise BoardError(str(error)) from None
        line: Line
        if arguments.simulate:
            line = BoardProcess(compile_board(board, config), clock_hz=config.clock_hz)
        else:
            line = SerialLine(arguments.port, config.baud, **options)
        try:
            good = self_test(config, line, seed=arguments.seed)
        finally:
            line.close()
        print("PASS" if good else "FAIL")
        return 0 if good else 1


class Load:
    """The command ``load``."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("board", help=f"one of {', '.join(BOARDS)}")
        parser.add_argument("file", type=Path, help="a .bit that `python -m boards build` wrote")
        parser.epilog = (
            "Example: python -m boards load ulx3s build/boards/ulx3s-e9bc89067ff8/ulx3s.bit"
        )
        parser.add_argument("--flash", action="store_true", help="to stay when power is off")
        parser.add_argument("--dry-run", action="store_true", help="print the command, and end")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """The exit status of the loader."""
        board = board_by_name(arguments.board)
        if not arguments.file.is_file():
            raise BoardError(f"{arguments.file} does not exist")
        command = [_LOADER, "-b", board.name, *(["-f"] if arguments.flash else [])]
        command.append(str(arguments.file))
        if arguments.dry_run:
            print(" ".join(command))
            return 0
        if shutil.which(_LOADER) is None:
            raise BoardError(f"{_LOADER} is not installed: it comes with the system's packages")
        return subprocess.run(command, check=False).returncode
