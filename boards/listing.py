"""``python -m boards list``: the boards there are."""

import argparse

from .catalogue import BOARDS
from .fits import MOST, fits
from .soc.sdram.timing import CHIPS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def _arrays(board, device, training):
    found = fits(board, device, training=training)
    parts = [
        f"{fit.rows} x {fit.columns}{'*' if fit.built else ''} ({100 * fit.share:.0f} %)"
        for fit in found
    ]
    return ", ".join(parts) or "none of those looked at"


def run(arguments: argparse.Namespace) -> int:
    for board in BOARDS.values():
        config = board.config()
        accelerator = config.accelerator
        sizes = sorted({CHIPS[name].size_bytes >> 20 for name in board.chips})
        training = " with training engines" if accelerator.has_training_engines else ""
        lines = {
            "FPGA": f"{' or '.join(board.devices)}, {board.package}, speed grade {board.speed}",
            "memory": f"SDR SDRAM, 16 bits, {' or '.join(map(str, sizes))} MiB, "
            f"at most {board.peak_mbytes:.0f} MB/s at {config.sdram.clock_mhz:g} MHz",
            "host": f"serial line over USB, up to {board.baud:,} bit/s",
            "default": f"{accelerator.variant}, {accelerator.rows} x {accelerator.columns} PEs of "
            f"{accelerator.operand_format}{training} at {config.clock_mhz:g} MHz",
        }
        print(f"{board.name}: {board.title}")
        for name, text in lines.items():
            print(f"  {name:8} {text}")
        for device in board.devices:
            for training in (True, False):
                engines = "with training engines" if training else "without"
                print(f"  {'fits':8} {device}, {engines}: {_arrays(board, device, training)}")
        print(
            f"  {'':8} * placed and routed; without *: counted, at most {100 * MOST:.0f} % of the"
        )
        print(f"  {'':8} sites for look-up tables")
    return 0
