"""Command line of the boards: ``python -m boards``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("boards")  # before imports that take seconds

import argparse
import sys

from boards.bitstream import command as bitstream
from boards.bitstream import layout
from boards.catalogue import BoardError
from boards.litex_soc import command as litex_soc
from boards.sim import command as simulation
from boards.sim import roofline, timeline
from hw.config import ConfigError
from runtime.errors import AcceleratorError
from synth.common.errors import ToolError
from verif.sim.runner import BuildFailed

from . import listing
from .host_commands import Load, SelfTest

#: Name -> (module with ``add_arguments`` and ``run``, one line of help).
COMMANDS = {
    "list": (listing, "the boards there are, and what fits"),
    "sim": (simulation, "simulate a board at its pins"),
    "build": (bitstream, "build a bitstream"),
    "layout": (layout, "a picture of where a bitstream's blocks are"),
    "litex": (litex_soc, "Verilog of a LiteX SoC with the accelerator"),
    "roofline": (roofline, "a picture of which array which memory feeds"),
    "timeline": (timeline, "a picture of what serial line and accelerator do, and when"),
    "load": (Load, "load a bitstream into a board"),
    "self-test": (SelfTest, "identification, memory, a small network"),
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m boards",
        description="Boards: simulation at the pins, bitstreams.",
        epilog="Exit status: 0 all right, 1 a check failed or a clock is missed, 2 wrong input or "
        "a tool that fails, 130 interrupted.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=text, description=text))
    parsed = parser.parse_args(arguments)
    try:
        return COMMANDS[parsed.command][0].run(parsed)
    except ConfigError as error:
        message = "; ".join(error.problems)
    except (BoardError, ToolError, BuildFailed, AcceleratorError, OSError) as error:
        message = str(error)
    print(f"python -m boards {parsed.command}: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
