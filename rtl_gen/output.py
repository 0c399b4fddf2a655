"""Output directories: written as a whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .manifest import GENERATOR

__all__ = ["OutputError", "check_replaceable", "compare", "write"]

_MANIFEST = "manifest.json"


class OutputError(Exception):
    """An output directory cannot be written; the message says which and why."""


def _listed_files(directory: Path) -> set[str] | None:
    """Files that we wrote into ``directory``, None if it is not one of ours."""
    try:
        content = json.loads((directory / _MANIFEST).read_text())
        if content["generator"] != GENERATOR:
            return None
        return {_MANIFEST, *content["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_parent(directory: Path) -> None:
    """Raise unless ``directory`` could be made."""
    parent = next(path for path in directory.parents if path.exists())
    if not parent.is_dir():
        raise OutputError(f"output directory {directory}: {parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"output directory {directory}: no permission to write in {parent}")


def check_replaceable(directory: Path) -> None:
    """Raise unless ``directory`` can be made, is empty, or holds only what we wrote.

    Raises
    ------
    OutputError
    """
    try:
        if not directory.exists() and not directory.is_symlink():
            _check_parent(directory.absolute())
            return
        if not directory.is_dir():
            raise OutputError(f"output directory {directory} is not a directory")
        present = {path.name for path in directory.iterdir()}
        _check_parent(directory.resolve())
    except OSError as error:
        raise OutputError(f"output directory {directory}: {error.strerror}") from None
    if not present:
        return
    ours = _listed_files(directory)
    if ours is None:
        raise OutputError(
            f"output directory {directory} holds files but no {_MANIFEST} of this generator; "
            "name an empty or a new one"
        )
    if foreign := sorted(present - ours):
        raise OutputError(
            f"output directory {directory} also holds {', '.join(foreign)}, which would be lost; "
            "move that away or name another one"
        )


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write ``files`` (name -> text) as the new content of ``directory``.

    They are written beside it first and moved when complete. Missing parents are made.

    Raises
    ------
    OutputError
        Nothing has changed then, but for parents that were made.
    """
    directory = directory.resolve()
    check_replaceable(directory)
    temporary = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8", newline="\n")
        try:
            if directory.exists():
                os.rename(directory, old)
            os.rename(new, directory)
        except BaseException:  # Ctrl-C as well: what was there is beside it now
            if old.exists() and not directory.exists():
                os.rename(old, directory)
            raise
    except OSError as error:
        raise OutputError(f"cannot write output directory {directory}: {error.strerror}") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def compare(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return one line for each file in which ``directory`` differs from ``files``."""
    differences = []
    for name, text in sorted(files.items()):
        try:
            present = (directory / name).read_bytes()
        except FileNotFoundError:
            differences.append(f"{name}: missing")
        except OSError as error:
            differences.append(f"{name}: {error.strerror}")
        else:
            if present != text.encode():
                differences.append(f"{name}: differs")
    if directory.is_dir():
        extra = {path.name for path in directory.iterdir()} - set(files)
        differences += [f"{name}: not generated" for name in sorted(extra)]
    return differences
