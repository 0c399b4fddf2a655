"""Ctrl-C and SIGTERM end a command line with one line of text, and the programs it has started."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

__all__ = ["descendants", "end_on_signals"]

#: How long threads that are not waiting for a program may take to end.
_GRACE_SECONDS = 10
#: How often it is looked whether an import has ended.
_IMPORT_SECONDS = 0.02
#: Held while programs are being ended: two threads do that, and must not end it half-way.
_ENDING = threading.RLock()


def end_on_signals(program, note="") -> None:
    """From now on SIGINT and SIGTERM end this process and all programs below it.

    It is for the first lines of a command line, before imports that take seconds. The exception is
    ``SystemExit`` with status 128 + signal, so that temporary files go; then ``program``,
    "interrupted" (SIGTERM: "stopped") and ``note`` are printed. A second signal ends it at once.
    Where a signal is ignored that stays so.
    """

    def stop(number, frame):
        word = "interrupted" if number == signal.SIGINT else "stopped"
        _stop_outside_imports(number, f"{program}: {word}{note}", frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def descendants(process: int) -> list[int]:
    """Numbers of all processes below one, the nearest first."""
    children = {}
    for child, parent in _processes():
        children.setdefault(parent, []).append(child)
    found = [process]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def _processes():
    """Pairs of a process and its parent."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        ).stdout
        return [tuple(map(int, line.split())) for line in listing.splitlines()]
    pairs = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        # Any of them may end now.
        with contextlib.suppress(OSError):
            text = Path("/proc", number, "stat").read_text(errors="replace")
            # The name between parentheses may hold anything; then state and parent.
            pairs.append((int(number), int(text.rpartition(")")[2].split()[1])))
    return pairs


def _stop_outside_imports(number, line, frame):
    """:func:`_stop`, after any import under way: extension modules clear exceptions that they do
    not expect."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(signal.SIGALRM, lambda _, now: _stop_outside_imports(number, line, now))
            signal.setitimer(signal.ITIMER_REAL, _IMPORT_SECONDS)
            return
        frame = frame.f_back
    _stop(number, line)


def _stop(number, line):
    status = 128 + number

    def end_at_once(*_):
        _end_programs()
        os._exit(status)

    for other in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(other) is not signal.SIG_IGN:
            signal.signal(other, end_at_once)
    # Whoever has caught the exit below goes on, and then misses a program that was ended: no error.
    sys.excepthook = lambda *_: sys.exit(status)
    # Half-made hardware is never used, which Amaranth would warn of.
    warnings.simplefilter("ignore")
    # Printed at the end, when nothing else writes on the terminal any more.
    atexit.register(print, line, file=sys.stderr)
    # Before that: the thread below dies with this process, but not with programs that it has
    # stopped and not killed yet.
    atexit.register(_ENDING.acquire)
    _end_programs()
    # Threads may start the next program before they notice.
    threading.Thread(target=_end, args=(status, line), daemon=True).start()
    raise SystemExit(status)


def _end(status, line):
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        _end_programs()
        time.sleep(0.1)
    print(line, file=sys.stderr, flush=True)
    os._exit(status)


def _end_programs():
    # Stopped first: what is killed while it starts another program leaves that behind.
    found = set()
    with _ENDING:
        while new := set(descendants(os.getpid())) - found:
            _signal(new, signal.SIGSTOP)
            found |= new
        _signal(found, signal.SIGKILL)


def _signal(processes, number):
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, number)
