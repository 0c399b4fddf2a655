"""Ctrl-C ends a command line with one line of text."""

import atexit
import os
import signal
import sys

__all__ = ["end_on_interrupt"]

_STATUS = 128 + signal.SIGINT


def end_on_interrupt(program, note="") -> None:
    """From now on SIGINT raises ``SystemExit`` with status 130, so that temporary files go; then
    ``program: interrupted`` and ``note`` are printed.

    It is for the first lines of a command line, before imports that take seconds. A second signal
    ends the process at once. Where SIGINT is ignored it stays so.
    """

    def stop(_number, _frame):
        signal.signal(signal.SIGINT, lambda *_: os._exit(_STATUS))
        # Printed at the end, when nothing else writes on the terminal any more.
        atexit.register(print, f"{program}: interrupted{note}", file=sys.stderr)
        raise SystemExit(_STATUS)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)
