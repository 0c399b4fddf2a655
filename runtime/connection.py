"""A device: its memory divided into windows, and programs that run in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.tensors.tensor import Tensor
from emulator.memory import FunctionalError
from hw.config import AdaGPConfig
from hw.registers import host
from hw.registers.map import register_map

from .device import Device, open_device, require_device
from .errors import AcceleratorError

__all__ = ["Connection", "Interrupt", "Window"]

#: Windows begin at multiples of this (MEM_BASE).
_ALIGNMENT = 4096
#: The least memory of a device, in bytes: what small programs need, so that it need not grow.
_LEAST_MEMORY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Window:
    """Memory of one program, ``size`` bytes from address ``base`` on."""

    base: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """What the registers say when an interrupt has come.

    Members
    -------
    ended : no program runs any more
    registers : values by name
    counters : by name, since the start of the run; those that the device has
    """

    ended: bool
    registers: dict[str, int]
    counters: dict[str, int]


class Connection:
    """A device: its memory, and programs that run on it.

    Parameters
    ----------
    config : AdaGPConfig
    device : "emulator", "rtl" (the Verilog in Verilator; the first time it is compiled, which takes
        a minute), "serial:/dev/ttyUSB0" (a board at this port), or a function that makes a
        :class:`~runtime.device.Device` of a configuration and a size
    timeout_cycles : until a program counts as hung; None: as the device says
    watchdog : cycles without progress that end a run with an error; 0: none do
    options : for the device, e.g. ``latency=40`` of the simulated memory

    A device is opened when it is first needed, and again with more memory when a program needs
    that; what is in its memory stays.
    """

    def __init__(
        self,
        config: AdaGPConfig,
        device: str | Callable[..., Device] = "emulator",
        *,
        timeout_cycles: int | None = None,
        watchdog: int = 0,
        **options: Any,
    ) -> None:
        if not isinstance(config, AdaGPConfig):
            raise TypeError(
                f"config must be an AdaGPConfig (hw.config.make_config), not {config!r}"
            )
        self.config, self._kind, self._options = config, device, options
        self._timeout, self._watchdog = timeout_cycles, watchdog
        self._map = register_map(config)
        self._device: Device | None = None
        self._windows: list[Window] = []
        self._end_run: Callable[[], None] | None = None
        require_device(device)

    def close(self) -> None:
        """Close the device; its memory is lost."""
        if self._device is not None:
            self._device.close()
        self._device, self._windows, self._end_run = None, [], None

    @property
    def device_name(self) -> str:
        """What kind of device it is."""
        return self._kind if isinstance(self._kind, str) else self._kind.__name__

    @property
    def device(self) -> Device:
        """The device, opened if it was not."""
        if self._device is None:
            self._device = open_device(self._kind, self.config, _LEAST_MEMORY, **self._options)
        return self._device

    # Memory ----------------------------------------------------------------------------------

    def window(self, size: int) -> Window:
        """A window of at least ``size`` bytes, whatever is in it."""
        base = 0
        for used in sorted(self._windows, key=lambda window: window.base):
            if used.base - base >= size:
                break
            base = -(-(used.base + used.size) // _ALIGNMENT) * _ALIGNMENT
        window = Window(base=base, size=size)
        self._grow(base + size)
        self._windows.append(window)
        return window

    def free(self, window: Window) -> None:
        """Give a window back."""
        self._windows.remove(window)

    def _require_window(self, window: Window) -> None:
        if window not in self._windows:
            raise AcceleratorError(
                f"the memory at {window.base:#x} has been given back, or the device was closed: "
                "what it held is lost"
            )

    def _grow(self, size: int) -> None:
        if self._device is not None and self._device.memory_bytes >= size:
            return
        self.let_go()
        kept = [(window, self.get(window, 0, window.size)) for window in self._windows]
        if self._device is not None:
            self._device.close()
        wanted = max(_LEAST_MEMORY, 1 << (size - 1).bit_length())
        self._device = open_device(self._kind, self.config, wanted, **self._options)
        for window, data in kept:
            self.put(window, 0, data)

    def put(self, window: Window, offset: int, data: bytes | bytearray) -> None:
        """Write ``data`` at ``offset`` of a window. Raises as :meth:`get`."""
        self._require_window(window)
        self.device.put(window.base + offset, bytes(data))

    def get(self, window: Window, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` of a window on. Raises AcceleratorError if it has been
        given back, or its device closed."""
        self._require_window(window)
        return self.device.get(window.base + offset, size)

    def read(self, window: Window, tensor: Tensor) -> np.ndarray:
        """Codes of a tensor of the program in ``window``, in its shape."""
        data = self.get(window, tensor.offset, tensor.extent)
        return replace(tensor, offset=0).unpack(data)

    # Programs --------------------------------------------------------------------------------

    def require(self, config: AdaGPConfig) -> None:
        """Raise ValueError unless a program for ``config`` can run here."""
        if config != self.config:
            own, other = self.config.as_dict(), config.as_dict()
            names = [name for name, value in other.items() if own[name] != value]
            ours, theirs = (
                ", ".join(f"{name}={one[name]}" for name in names) for one in (own, other)
            )
            raise ValueError(f"the program was compiled for {theirs}; the accelerator has {ours}")

    def hold(self, end_run: Callable[[], None]) -> None:
        """A run is open that waits for its host between batches; ``end_run`` ends it."""
        self._end_run = end_run

    def let_go(self) -> None:
        """End an open run, so that registers may be written and another program may start."""
        end_run, self._end_run = self._end_run, None
        if end_run is not None:
            end_run()

    def start(
        self,
        window: Window,
        *,
        program: int,
        program_size: int,
        registers: Mapping[str, int] | None = None,
    ) -> None:
        """Start the program at offset ``program`` of a window, behind ``registers``, values by
        name. An open run ends first."""
        self.let_go()
        values = host.start_values(
            self._map, base=window.base, size=window.size, program=program,
            program_size=program_size, watchdog=self._watchdog,
        )  # fmt: skip
        for name, value in {**(registers or {}), **values}.items():
            self.device.write(name, value)

    def wait(self) -> Interrupt:
        """Wait until a batch has ended or the whole run.

        Raises
        ------
        AcceleratorError
            the program has ended with an error or was stopped, or there is no interrupt in time
        """
        try:
            values = self.device.wait(self._timeout)
        except TimeoutError as error:
            raise AcceleratorError(str(error)) from error
        except FunctionalError as error:
            raise AcceleratorError(f"the emulator has ended the program: {error}") from error
        status = host.field_values(self._map, "STATUS", values["STATUS"])
        if status["ERROR"] or status["STOPPED"]:
            raise AcceleratorError(host.ending(self._map, values))
        return Interrupt(
            ended=not status["BUSY"], registers=values, counters=host.counters(self._map, values)
        )

    def run(
        self,
        window: Window,
        *,
        program: int,
        program_size: int,
        registers: Mapping[str, int] | None = None,
    ) -> Interrupt:
        """Run a program without batches to its end; parameters and errors as :meth:`start` and
        :meth:`wait`."""
        self.start(window, program=program, program_size=program_size, registers=registers)
        while True:
            interrupt = self.wait()
            if interrupt.ended:
                return interrupt
