"""Options of the command line that say what is built."""

import argparse
from collections.abc import Callable

from hw.config import VARIANTS
from hw.config.selection import add_settings

from .catalogue import Board, board_by_name
from .soc.sdram.timing import CHIPS
from .soc.system import SystemConfig

__all__ = ["add_system", "board_of", "system_of", "whole"]


def whole(least: int) -> Callable[[str], int]:
    """The type of an option that is a number from ``least`` on."""

    def convert(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a number from {least} on, not {text!r}")
        return int(text)

    return convert


def add_system(parser: argparse.ArgumentParser, *, variant: str = "baseline") -> None:
    """The options for :func:`board_of` and :func:`system_of`; ``variant`` is the default, in
    words."""
    add = parser.add_argument
    add("--device", help="the FPGA, where the board is made with several")
    add("--variant", choices=tuple(VARIANTS), help=f"of the accelerator ({variant})")
    add_settings(parser)
    add("--clock", type=float, metavar="MHZ", help="of the accelerator; default: the board's")
    add("--ratio", type=int, choices=(1, 2), help="SDRAM cycles in one of the accelerator (2)")
    add("--chip", default="any", help=f"the SDRAM, one of {', '.join(CHIPS)} (any)")
    add("--baud", type=whole(1), help="bits per second of the serial line")


def board_of(arguments: argparse.Namespace, name: str | None = None) -> Board:
    """The board of that name, or the one that the options have, with the FPGA that they have.
    Raises :class:`~boards.catalogue.BoardError`."""
    board = board_by_name(name or arguments.board)
    return board.with_device(arguments.device) if arguments.device else board


def system_of(
    board: Board, arguments: argparse.Namespace, *, variant: str = "baseline", fastest: bool = False
) -> SystemConfig:
    """What the options ask for.

    ``variant``: unless one is given; ``fastest``: without ``--baud``, the fastest line there is.
    Raises ConfigError and :class:`~boards.catalogue.BoardError`.
    """
    config = board.config(
        variant=arguments.variant or variant, settings=arguments.settings, chip=arguments.chip,
        clock_mhz=arguments.clock, ratio=arguments.ratio, baud=arguments.baud,
    )  # fmt: skip
    if not fastest or arguments.baud:
        return config
    return board.config(
        variant=arguments.variant or variant, settings=arguments.settings, chip=arguments.chip,
        clock_mhz=arguments.clock, ratio=arguments.ratio, baud=config.clock_hz // 4,
    )  # fmt: skip
