"""A simulated board behind a pseudo-terminal, for hosts that open a serial port."""

import contextlib
import os
import select
import shlex
import subprocess
import tty
from collections.abc import Callable

from boards.catalogue import BoardError

from .simulator import BoardProcess

__all__ = ["BoardPort", "run_host"]

#: Bytes that are taken from the host at a time.
_CHUNK_BYTES = 256
#: Cycles of the accelerator between two looks at what the host sends.
_STEP_CYCLES = 400
#: Seconds between two looks at whether to end, while time stands still.
_LOOK_SECONDS = 0.1


class BoardPort:
    """A serial port of the system with a simulated board at its other end; a context manager.

    The board's time passes by itself, as fast as the simulation goes. Where nothing has come from
    the host or gone to it for :attr:`IDLE_SECONDS` of it, it stands still until the host sends
    something. The rate that the host chooses for the port does nothing.

    Parameters
    ----------
    board : the simulation; it stays the caller's
    clock_hz : of the accelerator

    Members
    -------
    path : of the port
    """

    IDLE_SECONDS = 0.01

    def __init__(self, board: BoardProcess, *, clock_hz: int):
        self._board = board
        self._idle_cycles = round(self.IDLE_SECONDS * clock_hz)
        # The host's end stays open here, too: hosts come and go.
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Take the port away."""
        os.close(self._master)
        os.close(self._slave)

    def serve(self, ended: Callable[[], bool], still: Callable[[], None] = lambda: None) -> None:
        """Carry bytes until ``ended()``; ``still()`` is called when time comes to a halt."""
        left = 0
        while not ended():
            ready, _, _ = select.select([self._master], [], [], 0 if left > 0 else _LOOK_SECONDS)
            data = os.read(self._master, _CHUNK_BYTES) if ready else b""
            if not data and left <= 0:
                continue
            answer = self._board.transfer(data, 1, patience_cycles=_STEP_CYCLES)
            if data or answer:
                left = self._idle_cycles
            else:
                left -= _STEP_CYCLES
                if left <= 0:
                    still()
            # Bytes that no host reads are lost, as on a board.
            with contextlib.suppress(BlockingIOError):
                os.write(self._master, answer)


def run_host(port: BoardPort, command: str) -> int:
    """Run a program of a host, with the port's path for each ``{port}`` of its command line; its
    exit status. Raises BoardError if it cannot be started."""
    words = [word.replace("{port}", port.path) for word in shlex.split(command)]
    try:
        host = subprocess.Popen(words)
    except (OSError, IndexError) as error:
        raise BoardError(f"host {command!r} cannot be started: {error}") from None
    try:
        port.serve(lambda: host.poll() is not None)
    finally:
        host.kill()
    return host.wait()
