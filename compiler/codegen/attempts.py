"""A program is written; and again, in another way, where it turns out that it cannot be so."""

from collections.abc import Callable, Hashable
from math import inf
from typing import TypeVar

from hw.config import AdaGPConfig
from hw.isa.loops import LOOP_LEVELS

from .dependencies import Recorder, Scattered, Together, TooLong
from .linking.linker import Crowded
from .linking.loops import Unsettled
from .replay import Recordings

__all__ = ["MOST_WRITTEN_OUT", "write_program"]

#: Commands of a program that is written out without looking for loops: 4 MiB.
MOST_WRITTEN_OUT = 1 << 16
#: How many times as much a command has to hide where there are too few semaphores.
_MORE = 4.0

_T = TypeVar("_T")


def write_program(
    config: AdaGPConfig, write: Callable[[Recorder], _T], *, loops: bool | None,
    early: bool = False, levels: int = LOOP_LEVELS, recordings: Recordings | None = None,
) -> _T:  # fmt: skip
    """What ``write(recorder)`` returns, which emits and links a program. It may be called again.

    Parameters
    ----------
    loops : True: commands that come again are written once; loops whose periods turn out to be
        different are written out. False: all commands are. None: all are as long as these are no
        more than :data:`MOST_WRITTEN_OUT`.
    early : as of :class:`~compiler.codegen.linking.linker.Linker`
    recordings : of steps that have been recorded; they are replayed when it is called again
    """
    recordings = recordings or Recordings()
    most = MOST_WRITTEN_OUT if loops is None else None
    written_out: frozenset[Hashable] = frozenset()
    gathered: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()
    hides = 1.0
    while True:
        recorder = Recorder(
            config, loops=bool(loops), written_out=written_out, most=most, gathered=gathered,
            apart=apart, early=early, levels=levels, recordings=recordings if loops else None,
            hides=hides,
        )  # fmt: skip
        try:
            return write(recorder)
        except TooLong:
            loops, most = True, None
        except Unsettled as error:
            written_out |= error.loops
        except Scattered as error:
            gathered |= {error.run}
        except Together as error:
            # Lists of jobs have other numbers then.
            apart, gathered, written_out = apart | {error.group}, frozenset(), frozenset()
        except Crowded:
            # Steps beside each other let queues wait for each other that do not otherwise.
            if not recorder.together:
                raise
            hides = _MORE if loops and hides == 1 else inf
            gathered, written_out = frozenset(), frozenset()
        recorder.forget()
