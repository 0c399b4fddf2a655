"""A board as a device: the five calls, over its serial line."""

import struct
from collections.abc import Callable

from hw.config import AdaGPConfig
from hw.registers import host
from hw.registers.board import ACCELERATOR_BASE, MAGIC, SYSTEM_BASE, Control, Status, System
from hw.registers.map import register_map

from .errors import AcceleratorError
from .serial_link import Line, UartBone

__all__ = ["SerialDevice"]

#: How long to wait between two looks at the interrupt, and for the memory to be initialised.
_POLL_SECONDS, _READY_SECONDS = 50e-6, 0.1
#: Cycles until a program counts as hung, unless the host says otherwise.
_TIMEOUT_CYCLES = 20_000_000_000


class SerialDevice:
    """A device for :class:`runtime.Accelerator`: a board at the end of a line.

    Parameters
    ----------
    config : AdaGPConfig
    memory_bytes : that the board must have, at least
    line : to the board; closed with the device

    Members
    -------
    memory_bytes : that it has
    counts_cycles : True
    clock_hz : of the accelerator
    progress : called with the seconds waited now and then while :meth:`wait` waits

    Raises
    ------
    AcceleratorError
        nobody answers, the bitstream is for another configuration, or the memory is too small
    """

    counts_cycles = True

    def __init__(self, config: AdaGPConfig, memory_bytes: int, *, line: Line) -> None:
        self.config, self._line, self._bone = config, line, UartBone(line)
        self._map = register_map(config)
        self.progress: Callable[[float], object] = lambda seconds: None
        magic = self._system(System.MAGIC)
        if magic != MAGIC:
            raise AcceleratorError(
                f"the board says {magic:#010x}, not {MAGIC:#010x}: this bitstream is none of ours"
            )
        self._require_configuration()
        self.clock_hz = self._system(System.CLOCK_HZ)
        self.memory_bytes = self._system(System.MEMORY_BYTES)
        if memory_bytes > self.memory_bytes:
            raise AcceleratorError(
                f"the board has {self.memory_bytes} bytes of memory, {memory_bytes} are needed"
            )
        if not self._soon(lambda: self._status(Status.MEMORY_READY), _READY_SECONDS):
            raise AcceleratorError("the board's memory does not become ready")

    def _require_configuration(self) -> None:
        """Raise AcceleratorError, with what differs, unless the bitstream is for ours."""
        found, own = self.read("CONFIG_HASH"), self._map["CONFIG_HASH"].reset
        if found == own:
            return
        names = ["VERSION", "CAPABILITIES", "GRANULE"]
        names += [f"CORE{core.index}_ARRAY" for core in self.config.cores]
        differing = []
        for name in names:
            theirs = host.field_values(self._map, name, self.read(name))
            ours = host.field_values(self._map, name, self._map[name].reset)
            differing += [
                f"{name}.{field} is {theirs[field]}, not {value}"
                for field, value in ours.items()
                if theirs[field] != value
            ]
        raise AcceleratorError(
            f"the bitstream is for configuration {found:08x}, not {own:08x}"
            + (f": {', '.join(differing)}" if differing else "")
        )

    def _system(self, register: System) -> int:
        return self._bone.read(SYSTEM_BASE + 4 * register, 1)[0]

    def _status(self, bit: Status) -> int:
        return self._system(System.STATUS) >> bit & 1

    def _soon(self, condition: Callable[[], int], seconds: float) -> bool:
        """Whether it comes true in that time."""
        waited = 0.0
        while not condition():
            if waited >= seconds:
                return False
            self._line.pause(_POLL_SECONDS)
            waited += _POLL_SECONDS
            self.progress(waited)
        return True

    # Memory ----------------------------------------------------------------------------------

    def put(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` into the memory."""
        self._check(address, len(data))
        end = address + len(data)
        if not data:
            return
        # Whole words are written.
        before = self.get(address & -4, address % 4)
        after = self.get(end, -end % 4)
        whole = before + bytes(data) + after
        self._bone.write(address & -4, list(struct.unpack(f"<{len(whole) // 4}I", whole)))

    def get(self, address: int, size: int) -> bytes:
        """``size`` bytes of the memory."""
        self._check(address, size)
        if not size:
            return b""
        first, end = address & -4, address + size
        words = self._bone.read(first, (end - first + 3) // 4)
        data = struct.pack(f"<{len(words)}I", *words)
        return data[address - first : end - first]

    def _check(self, address: int, size: int) -> None:
        if address < 0 or address + size > self.memory_bytes:
            raise ValueError(
                f"{size} bytes at {address:#x} are not in the memory of {self.memory_bytes} bytes"
            )

    # Registers -------------------------------------------------------------------------------

    def read(self, register: str) -> int:
        """A register."""
        return self._bone.read(ACCELERATOR_BASE + self._map[register].offset, 1)[0]

    def write(self, register: str, value: int) -> None:
        """Write a register, or both halves of a pair ``NAME_LO``, ``NAME_HI`` as ``NAME``; see
        :meth:`emulator.device.EmulatorDevice.write`. A register that is locked by a run is
        refused, too."""
        for found, part in host.register_writes(self._map, register, value, status=self._now):
            self._bone.write(ACCELERATOR_BASE + found.offset, [part])

    def _now(self) -> int:
        return self.read("STATUS")

    def _busy(self) -> int:
        return host.field_values(self._map, "STATUS", self._now())["BUSY"]

    def wait(self, timeout_cycles: int | None = None) -> dict[str, int]:
        """Wait for the interrupt, and acknowledge it.

        Returns
        -------
        all registers by name, as they are before the causes in INTERRUPT_STATUS are cleared

        Raises
        ------
        TimeoutError
            there is none in ``timeout_cycles``
        """
        cycles = timeout_cycles or _TIMEOUT_CYCLES
        if not self._soon(lambda: self._status(Status.INTERRUPT), cycles / self.clock_hz):
            status = host.field_values(self._map, "STATUS", self.read("STATUS"))
            raise TimeoutError(f"no interrupt in {cycles} cycles; STATUS is {status}")
        values = self._registers()
        self._bone.write(
            ACCELERATOR_BASE + self._map["INTERRUPT_STATUS"].offset, [values["INTERRUPT_STATUS"]]
        )
        return values

    def _registers(self) -> dict[str, int]:
        """All of them, from low addresses to high ones: a pair's low half latches its high half."""
        offsets = {register.name: register.offset for register in self._map}
        words = self._bone.read(ACCELERATOR_BASE, max(offsets.values()) // 4 + 1)
        return {name: words[offset // 4] for name, offset in offsets.items()}

    def reset(self) -> None:
        """Reset the accelerator, once it is idle; the memory keeps what it holds.

        Raises
        ------
        TimeoutError
            a run does not end, even when it is stopped
        """
        stop = {f.name: f.mask for f in self._map["CONTROL"].fields}["STOP"]
        if self._busy():
            self._bone.write(ACCELERATOR_BASE + self._map["CONTROL"].offset, [stop])
            if not self._soon(lambda: not self._busy(), 1.0):
                raise TimeoutError("the run does not end")
        self._bone.write(SYSTEM_BASE + 4 * System.CONTROL, [1 << Control.RESET])

    def overrun(self) -> bool:
        """Whether bytes to the board were lost since it was configured."""
        return bool(self._status(Status.OVERRUN))

    def close(self) -> None:
        """Give the line back."""
        self._line.close()
