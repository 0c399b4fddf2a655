"""The host's end of a board's serial line: bytes, and accesses of words in LiteX's UARTBone."""

import os
import select
import struct
import termios
import time
from typing import Protocol

from hw.registers.board import COMMANDS, MOST_WORDS

from .errors import AcceleratorError, PortError

__all__ = ["Line", "SerialLine", "UartBone"]


class Line(Protocol):
    """Bytes to and from a board."""

    def transfer(self, data: bytes, expected: int) -> bytes:
        """Send ``data``, then receive ``expected`` bytes; fewer where none come any more."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""

    def close(self) -> None:
        """Give the line back."""


class SerialLine:
    """A serial port of the system, or the end of a pseudo-terminal: 8 data bits, no parity, one
    stop bit, no flow control.

    Parameters
    ----------
    path : e.g. ``/dev/ttyUSB0``
    baud : bits per second; one of those that the system knows (``termios.B...``)
    timeout_seconds : without a byte that is waited for

    Raises
    ------
    PortError
        the port cannot be opened, or has no such rate
    """

    def __init__(self, path: str, baud: int = 3_000_000, timeout_seconds: float = 1.0) -> None:
        self._timeout = timeout_seconds
        speed = getattr(termios, f"B{baud}", None)
        if speed is None:
            raise PortError(f"{path}: the system has no rate of {baud} bits per second")
        try:
            self._port = os.open(path, os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            raise PortError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            settings = termios.tcgetattr(self._port)
            settings[:4] = 0, 0, termios.CS8 | termios.CREAD | termios.CLOCAL, 0
            settings[4:6] = speed, speed
            settings[6][termios.VMIN] = settings[6][termios.VTIME] = 0
            termios.tcsetattr(self._port, termios.TCSANOW, settings)
            termios.tcflush(self._port, termios.TCIOFLUSH)
        except termios.error as error:
            os.close(self._port)
            raise PortError(f"{path} is no serial port: {error.args[1]}") from None

    def transfer(self, data: bytes, expected: int) -> bytes:
        """See :class:`Line`."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._port, view) :]
        received = b""
        while len(received) < expected:
            ready, _, _ = select.select([self._port], [], [], self._timeout)
            part = os.read(self._port, expected - len(received)) if ready else b""
            if not part:
                break
            received += part
        return received

    def pause(self, seconds: float) -> None:
        """See :class:`Line`."""
        time.sleep(seconds)

    def close(self) -> None:
        """See :class:`Line`."""
        os.close(self._port)


class UartBone:
    """Words of 32 bits at byte addresses, over a line.

    Parameters
    ----------
    line : the board's
    """

    def __init__(self, line: Line) -> None:
        self.line = line

    def read(self, address: int, count: int) -> list[int]:
        """``count`` words from ``address`` on. Raises AcceleratorError if the board does not answer
        in full."""
        words: list[int] = []
        while len(words) < count:
            number = min(count - len(words), MOST_WORDS)
            request = self._head("read", number, address + 4 * len(words))
            answer = self.line.transfer(request, 4 * number)
            if len(answer) != 4 * number:
                raise AcceleratorError(
                    f"the board has sent {len(answer)} bytes, not {4 * number}, for a read at "
                    f"{address + 4 * len(words):#x}"
                )
            words += struct.unpack(f">{number}I", answer)
        return words

    def write(self, address: int, words: list[int]) -> None:
        """Write words from ``address`` on. A board does not answer; a later read shows whether it
        has them."""
        for begin in range(0, len(words), MOST_WORDS):
            part = words[begin : begin + MOST_WORDS]
            head = self._head("write", len(part), address + 4 * begin)
            self.line.transfer(head + struct.pack(f">{len(part)}I", *part), 0)

    @staticmethod
    def _head(command: str, count: int, address: int) -> bytes:
        return struct.pack(">BBI", COMMANDS[command], count % MOST_WORDS, address >> 2)
