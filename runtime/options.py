"""The option of command lines that operate a board at a serial port."""

import argparse
import math
from typing import Any

__all__ = ["add_timeout", "line_options"]


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """The option for :func:`line_options`."""
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS",
        help="until a board that does not answer is given up; simulated ones are slow (1)",
    )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return seconds


def line_options(options: argparse.Namespace, *, serial: bool) -> dict[str, Any]:
    """What the options say of :class:`~runtime.serial_link.SerialLine`.

    Raises
    ------
    ValueError
        they say something, but what is operated is not at a serial port, as ``serial`` says
    """
    if options.timeout is None:
        return {}
    if not serial:
        raise ValueError("--timeout is for a serial port only")
    return {"timeout_seconds": options.timeout}
