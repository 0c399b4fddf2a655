"""``python -m boards litex``: Verilog of a LiteX SoC with the accelerator."""

import argparse
from pathlib import Path

from boards.options import add_system, board_of, system_of
from cli.atomic_files import write_whole
from cli.build_directory import build_root
from rtl_gen.board_header import board_header
from rtl_gen.c_header import c_header

from .designs import NATIVE_WIDTHS, TARGETS, board_soc

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: python -m boards litex ecpix5 --clock 50 --set rows=8"
    add = parser.add_argument
    add("board", help=f"one of {', '.join(TARGETS)}")
    add_system(parser)
    add("-o", "--output", type=Path, metavar="DIR", help="default: build/boards/litex-BOARD-HASH")


def run(arguments: argparse.Namespace) -> int:
    """The exit status, 0."""
    given = {setting.partition("=")[0].strip() for setting in arguments.settings}
    width = NATIVE_WIDTHS.get(arguments.board)
    if width and "axi_data_width" not in given:
        arguments.settings = [*arguments.settings, f"axi_data_width={width}"]
    # The accelerator is that of the board of our own.
    config = system_of(board_of(arguments, "ulx3s"), arguments)
    design = board_soc(arguments.board, config)
    accelerator = config.accelerator
    name = f"litex-{arguments.board}-{accelerator.hash}"
    directory = arguments.output or build_root() / "boards" / name
    directory.mkdir(parents=True, exist_ok=True)
    headers = {"adagp_regs.h": c_header(accelerator), "adagp_board.h": board_header()}
    for file, text in (design.files | headers).items():
        write_whole(directory / file, text)
        print(f"wrote {directory / file}, {len(text):,} bytes")
    return 0
