"""Devices: what an accelerator is reached by."""

from collections.abc import Callable
from typing import Any, Protocol

from emulator.device import EmulatorDevice
from hw.config import AdaGPConfig

__all__ = ["DEVICES", "Device", "open_device", "require_device"]


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


#: By name: called with a configuration, the least size of the memory in bytes, and options.
DEVICES: dict[str, Callable[..., Device]] = {"emulator": EmulatorDevice, "rtl": _rtl}


def require_device(device: str | Callable[..., Device]) -> None:
    """Raise ValueError, naming the devices there are, unless ``device`` is one of them, or a
    function."""
    if not callable(device) and device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, not {device!r}")


def open_device(
    device: str | Callable[..., Device], config: AdaGPConfig, memory_bytes: int, **options: Any
) -> Device:
    """The device called ``device``, or the one that this function makes; ValueError as
    :func:`require_device`."""
    require_device(device)
    make = device if callable(device) else DEVICES[device]
    return make(config, memory_bytes, **options)
