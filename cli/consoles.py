"""Where tables are printed."""

import sys

from rich.console import Console

__all__ = ["table_console"]


def table_console(width: int) -> Console:
    """Standard output; so many columns wide where no window limits it, to cut nothing short."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else width)
