"""Devices: what an accelerator is reached by."""

from collections.abc import Callable
from typing import Any, Protocol

from emulator.device import EmulatorDevice
from hw.config import AdaGPConfig

from .serial_device import SerialDevice
from .serial_link import SerialLine

__all__ = ["DEVICES", "SERIAL", "Device", "open_device", "require_device"]


class Device(Protocol):
    """An accelerator with its memory: five calls, and :meth:`close`.

    Addresses are those of the memory, from 0 on. Registers are named as in docs/registers.md.

    Members
    -------
    memory_bytes : size of the memory
    counts_cycles : whether :meth:`wait` returns the counters
    """

    memory_bytes: int
    counts_cycles: bool

    def put(self, address: int, data: bytes) -> None:
        """Write ``data`` into the memory."""

    def get(self, address: int, size: int) -> bytes:
        """``size`` bytes of the memory."""

    def write(self, register: str, value: int) -> None:
        """Write a register, or both halves of a pair ``NAME_LO``, ``NAME_HI`` as ``NAME``. Raises
        ValueError where the accelerator refuses."""

    def wait(self, timeout_cycles: int | None = None) -> dict[str, int]:
        """Wait for the interrupt and acknowledge it; registers by name, as they were before.
        Raises TimeoutError."""

    def reset(self) -> None:
        """Reset the accelerator; the memory keeps what it holds."""

    def close(self) -> None:
        """Give back what the device holds."""


def _rtl(config: AdaGPConfig, memory_bytes: int, **options: Any) -> Device:
    # Needs a simulator, which the other devices do not.
    from verif.system.device import RtlDevice

    return RtlDevice(config, memory_bytes, **options)


#: What the name of a board's serial port begins with.
SERIAL = "serial:"


def _serial(config: AdaGPConfig, memory_bytes: int, port: str, **options: Any) -> Device:
    """``port``: path, and behind an ``@`` the bits per second, unless they are the usual ones."""
    path, _, rate = port.partition("@")
    if rate and not rate.isdigit():
        raise ValueError(f"device {SERIAL}{port}: the rate must be a number, not {rate!r}")
    line = SerialLine(path, **({"baud": int(rate)} if rate else {}), **options)
    try:
        return SerialDevice(config, memory_bytes, line=line)
    except BaseException:
        line.close()
        raise


#: By name: called with a configuration, the least size of the memory in bytes, and options.
DEVICES: dict[str, Callable[..., Device]] = {"emulator": EmulatorDevice, "rtl": _rtl}


def require_device(device: str | Callable[..., Device]) -> None:
    """Raise ValueError, naming the devices there are, unless ``device`` is one of them, a board's
    port, ``serial:PATH`` or ``serial:PATH@BAUD``, or a function."""
    if callable(device) or device in DEVICES or _port(device):
        return
    raise ValueError(f"device must be one of {', '.join(DEVICES)} or {SERIAL}PORT, not {device!r}")


def _port(device: str) -> str:
    """The port that a name is for, "" if it is for none."""
    return device.removeprefix(SERIAL) if device.startswith(SERIAL) else ""


def open_device(
    device: str | Callable[..., Device], config: AdaGPConfig, memory_bytes: int, **options: Any
) -> Device:
    """The device called ``device``, or the one that this function makes; ValueError as
    :func:`require_device`."""
    require_device(device)
    if callable(device):
        return device(config, memory_bytes, **options)
    if port := _port(device):
        return _serial(config, memory_bytes, port, **options)
    return DEVICES[device](config, memory_bytes, **options)
