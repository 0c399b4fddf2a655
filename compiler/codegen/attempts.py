"""A program is written; and again, in another way, where it turns out that it cannot be so."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from hw.config import AdaGPConfig
from hw.isa.loops import LOOP_LEVELS

from .dependencies import Recorder, Scattered, Together, TooLong
from .linking.linker import Crowded
from .linking.loops import Unsettled
from .replay import Recordings

__all__ = ["MOST_WRITTEN_OUT", "Findings", "write_program"]

#: Commands of a program that is written out without looking for loops: 4 MiB.
MOST_WRITTEN_OUT = 1 << 16
#: How many times as much a command has to hide where there are too few semaphores.
_MORE = 4.0

_T = TypeVar("_T")


@dataclass
class Findings:
    """How a program cannot be written, as it has turned out: for each of the parameters of
    :class:`~compiler.codegen.dependencies.Recorder` what there is no way around. Another program
    that differs little begins with it."""

    written_out: frozenset[Hashable] = frozenset()
    gathered: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()
    hides: float = 1.0


def write_program(
    config: AdaGPConfig, write: Callable[[Recorder], _T], *, loops: bool | None,
    early: bool = False, levels: int = LOOP_LEVELS, recordings: Recordings | None = None,
    findings: Findings | None = None,
) -> _T:  # fmt: skip
    """What ``write(recorder)`` returns, which emits and links a program. It may be called again.

    Parameters
    ----------
    loops : True: commands that come again are written once; loops whose periods turn out to be
        different are written out. False: all commands are. None: all are as long as these are no
        more than :data:`MOST_WRITTEN_OUT`.
    early : as of :class:`~compiler.codegen.linking.linker.Linker`
    recordings : of steps that have been recorded; they are replayed when it is called again
    findings : of another program, with the same ``loops``; those of this one are added
    """
    recordings, found = recordings or Recordings(), findings or Findings()
    most = MOST_WRITTEN_OUT if loops is None else None
    while True:
        recorder = Recorder(
            config, loops=bool(loops), written_out=found.written_out, most=most,
            gathered=found.gathered, apart=found.apart, early=early, levels=levels,
            recordings=recordings if loops else None, hides=found.hides,
        )  # fmt: skip
        try:
            return write(recorder)
        except TooLong:
            loops, most = True, None
        except Unsettled as error:
            found.written_out |= error.loops
        except Scattered as error:
            found.gathered |= {error.run}
        except Together as error:
            # Lists of jobs have other numbers then.
            found.apart |= {error.group}
            found.gathered, found.written_out = frozenset(), frozenset()
        except Crowded:
            # Steps beside each other let queues wait for each other that do not otherwise.
            if not recorder.together:
                raise
            found.hides = _MORE if loops and found.hides == 1 else inf
            found.gathered, found.written_out = frozenset(), frozenset()
        recorder.forget()
