"""A hook for tools that measure what simulations do.

A tool adds sources and options to every build, and sees what every run leaves, also of benches
that know nothing of it::

    with instrumented(tool):
        ...  # anything that calls runner.build and runner.run
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Instrument", "current", "instrumented"]


class Instrument:
    """Measures what simulations do: see :func:`instrumented`. This one adds nothing."""

    def prepare(
        self, toplevel: str, sources: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Further source files and options for the build of ``sources``."""
        return {}, ()

    def watch(self, config, text: str) -> Mapping[str, str]:
        """Further source files for the accelerator of an :class:`~hw.config.AdaGPConfig`, whose
        Verilog is ``text``."""
        return {}

    def collect(self, build: Path, run: Path) -> None:
        """Look at what a run has left in its working directory, whether it passed or not.

        ``build`` is the directory of the build, with the sources in ``src/``.
        """


_INSTRUMENT: contextvars.ContextVar[Instrument | None] = contextvars.ContextVar(
    "instrument", default=None
)


@contextlib.contextmanager
def instrumented(tool: Instrument) -> Iterator[None]:
    """Builds and runs inside go through ``tool``, and Verilog names its Python sources."""
    token = _INSTRUMENT.set(tool)
    try:
        yield
    finally:
        _INSTRUMENT.reset(token)


def current() -> Instrument | None:
    """The tool of the :func:`instrumented` around."""
    return _INSTRUMENT.get()
