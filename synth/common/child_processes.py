"""Nothing that a measurement started goes on after the measurement was stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

__all__ = ["descendants", "stoppable"]

#: How long threads that are not waiting for a program may take to end.
_GRACE_SECONDS = 10


@contextlib.contextmanager
def stoppable():
    """Within it SIGTERM and SIGINT end this process and all programs below it.

    The exception is ``SystemExit`` with status 128 + signal, so that temporary files go. Where the
    signals are ignored or the caller is not the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name between parentheses may hold anything; then state and parent.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            pairs.append((int(path.parent.name), int(fields[1])))
    return pairs


def _stop(number, _frame):
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    status = 128 + number
    _end_programs()
    # Threads may start the next program before they notice.
    threading.Thread(target=_end, args=(status,), daemon=True).start()
    print("stopped; what was measured is kept", file=sys.stderr)
    raise SystemExit(status)


def _end(status):
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        _end_programs()
        time.sleep(0.1)
    os._exit(status)


def _end_programs():
    # Stopped first: what is killed while it starts another program leaves that behind.
    found = set()
    while new := set(descendants(os.getpid())) - found:
        _signal(new, signal.SIGSTOP)
        found |= new
    _signal(found, signal.SIGKILL)


def _signal(processes, number):
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, number)
