"""What torch raises becomes the error of a layer."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CompileError

__all__ = ["first_line", "refusing"]


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """What is raised within is the cause of a :class:`CompileError` of the layer ``name``."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:  # whatever torch, or a model's own code, raises
        raise CompileError(f"layer {name}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
