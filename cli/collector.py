"""Python's search for cycles of objects, while millions of them are made that all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nobody looks for cycles of objects in this context: what a program or a design is made of
    stays until it is done, and each search would look at all of it, which takes longer than making
    it. Also a decorator."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
