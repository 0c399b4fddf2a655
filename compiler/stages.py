"""What the compiler is doing, for a progress bar, and how long it has taken."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Stages", "stage"]


class Stages:
    """Stages of a compilation; use it as a context in which something is compiled.

    Parameters
    ----------
    begin : called with (kind, what) when a stage begins, for a progress bar

    Members
    -------
    seconds : kind of stage -> seconds, without those of stages inside it
    """

    def __init__(self, begin: Callable[[str, str], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._begin = begin
        self._inside = 0.0  # seconds of the stages inside the one under way

    def __enter__(self) -> "Stages":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)

    @contextmanager
    def run(self, kind: str, what: str) -> Iterator[None]:
        """A stage: ``kind`` adds up over what it is done for."""
        if self._begin is not None:
            self._begin(kind, what)
        outside, self._inside = self._inside, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[kind] = self.seconds.get(kind, 0.0) + spent - self._inside
            self._inside = outside + spent


_CURRENT: ContextVar[Stages | None] = ContextVar("stages", default=None)


@contextmanager
def stage(kind: str, what: str = "") -> Iterator[None]:
    """A stage of whatever :class:`Stages` watches; nothing where none does."""
    stages = _CURRENT.get()
    if stages is None:
        yield
        return
    with stages.run(kind, what):
        yield
