"""``python -m boards list``: the boards there are."""

import argparse

from .catalogue import BOARDS
from .soc.sdram.timing import CHIPS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(arguments: argparse.Namespace) -> int:
    for board in BOARDS.values():
        config = board.config()
        accelerator = config.accelerator
        sizes = sorted({CHIPS[name].size_bytes >> 20 for name in board.chips})
        training = " with training engines" if accelerator.has_training_engines else ""
        lines = {
            "FPGA": f"{board.device}, {board.package}, speed grade {board.speed}",
            "memory": f"SDR SDRAM, 16 bits, {' or '.join(map(str, sizes))} MiB, "
            f"at most {board.peak_mbytes:.0f} MB/s at {config.sdram.clock_mhz:g} MHz",
            "host": f"serial line over USB, up to {board.baud:,} bit/s",
            "default": f"{accelerator.variant}, {accelerator.rows} x {accelerator.columns} PEs of "
            f"{accelerator.operand_format}{training} at {config.clock_mhz:g} MHz",
        }
        print(f"{board.name}: {board.title}")
        for name, text in lines.items():
            print(f"  {name:8} {text}")
        for line in board.fits:
            print(f"  {'fits':8} {line}")
    return 0
