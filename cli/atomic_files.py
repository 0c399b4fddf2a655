"""Files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "write_whole"]


@contextlib.contextmanager
def replacing(path) -> Iterator[BinaryIO]:
    """A binary file to write; it takes the place of ``path`` when all has gone well."""
    path = Path(path)
    if path.exists() and not path.is_file():  # /dev/stdout
        with open(path, "wb") as file:
            yield file
        return
    real = path.resolve()
    temporary = real.with_name(f".{real.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, real)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise


def write_whole(path, text: str) -> None:
    """Write a text file, in UTF-8, by :func:`replacing`."""
    with replacing(path) as file:
        file.write(text.encode())
