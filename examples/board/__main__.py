"""Command line of the example of a board: ``python -m examples.board``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("examples.board")  # before imports that take seconds

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from boards.catalogue import BOARDS, BoardError
from boards.options import add_system, board_of, system_of, whole
from cli.atomic_files import replacing
from cli.build_directory import build_root
from compiler import CompileError
from hw.config import ConfigError

from .prepare import BoardTraining

__all__ = ["main"]

_BATCHES, _IMAGES = 20, 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.board",
        description="Write what examples/board/train.c needs to train a small network on a board.",
        epilog="Example: python -m examples.board ulx3s; then see examples/README.md. "
        "Exit status: 0 done, 2 wrong input, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("board", nargs="?", default="ulx3s", help=f"one of {', '.join(BOARDS)} (%(default)s)")
    add_system(parser)
    add("--batches", type=whole(1), default=_BATCHES, help="how many (%(default)s)")
    add("--images", type=whole(1), default=_IMAGES, help="in a batch (%(default)s)")
    add("--output-dir", metavar="DIR", type=Path, help="default: build/board-example")
    options = parser.parse_args(arguments)
    directory = options.output_dir or build_root() / "board-example"
    try:
        config = system_of(board_of(options), options).accelerator
        training = BoardTraining(config=config, batches=options.batches, images=options.images)
        files = training.files()
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            with replacing(directory / name) as file:
                file.write(data)
            print(f"wrote {directory / name}")
    except ConfigError as error:
        message = "; ".join(error.problems)
    except (BoardError, CompileError, ValueError, OSError) as error:
        message = str(error)
    else:
        return 0
    print(f"examples.board: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
