"""What the command lines of the reports have in common."""

import argparse
import contextlib
import datetime
import json
import tempfile
from pathlib import Path

from cli.atomic_files import write_whole
from hw.config import ConfigError
from hw.config.selection import select_config

from .errors import ToolError

__all__ = [
    "check_json",
    "make_kept",
    "seed_list",
    "selected_config",
    "today",
    "work_directory",
    "write_json",
]


def selected_config(arguments: argparse.Namespace, *, file: Path | None = None):
    """The configuration of ``--variant``, ``--preset``, ``--set`` (``settings``) and a file.

    Raises :class:`ToolError` with everything that is wrong.
    """
    try:
        return select_config(
            variant=arguments.variant,
            preset=arguments.preset,
            settings=arguments.settings,
            file=file,
        )
    except ConfigError as error:
        raise ToolError("; ".join(error.problems)) from None


def seed_list(text: str) -> tuple[int, ...]:
    """Numbers separated by commas, each once; the type of an option."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"must be numbers separated by commas, not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))


def check_json(path: Path | None) -> None:
    """Raise :class:`ToolError`, before any work, where :func:`write_json` finds no directory."""
    if path and not path.absolute().parent.is_dir():
        raise ToolError(f"Directory of --json does not exist: {path.absolute().parent}")


def write_json(path: Path | None, figures: dict, *, indent: int = 2) -> None:
    """Write what was measured where ``--json`` asks for it.

    ``date`` is that of ``figures``; where they have none, they were measured now.
    """
    if path:
        write_whole(path, json.dumps({"date": today()} | figures, indent=indent) + "\n")


def today() -> str:
    """The date in UTC, as ISO 8601 writes it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def make_kept(directory: Path | None) -> None:
    """Make the directory of ``--keep``; raises :class:`ToolError` where that fails."""
    if directory:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolError(f"Directory of --keep cannot be made: {error}") from None


@contextlib.contextmanager
def work_directory(kept: Path | None, *, prefix: str):
    """``kept``, which is made, or a temporary directory that goes at the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as temporary:
        yield Path(temporary)
