"""The simulated accelerator as a device: five calls, while the simulation stands still between."""

import contextlib
import contextvars
import json
import pickle
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hw.config import AdaGPConfig
from verif.sim import runner

from .simulator import Simulator, build

__all__ = ["RtlDevice"]

#: Cycles until a run counts as hung, unless the host says otherwise.
TIMEOUT_CYCLES = 2_000_000_000
_YEAR = 365 * 24 * 3600.0
#: How often to look whether a simulator that does not answer is still there.
_PATIENCE_SECONDS = 0.5


class RtlDevice:
    """A device for :class:`runtime.Accelerator`: the emitted Verilog in Verilator.

    The simulator is a process of its own that answers one request after the other. Cycles pass in
    :meth:`wait`, for register accesses and in :meth:`reset`, and at no other time.

    Parameters
    ----------
    config : AdaGPConfig
    memory_bytes : size of the memory, at least; undefined at first
    simulator : of ``config``, if it has been built, with ``waves`` if these are wanted
    seed, stall_share, latency : of the memory, see :func:`verif.system.accelerator.run`
    waves : leave a waveform, in :attr:`result`
    directory : of the simulation's files; by default a temporary one
    kept : by default one that stays for a day, as those of :func:`verif.sim.runner.run` do

    Members
    -------
    memory_bytes : int
    counts_cycles : True
    result : of the simulation, when the device has been closed
    progress : called with the simulation cycle now and then while :meth:`wait` waits

    Raises
    ------
    BuildFailed, SimulationFailed
        the simulator cannot be built, or does not start
    """

    counts_cycles = True

    def __init__(
        self,
        config: AdaGPConfig,
        memory_bytes: int,
        *,
        simulator: Simulator | None = None,
        seed: int = runner.DEFAULT_SEED,
        stall_share: float = 0.0,
        latency: int = 0,
        waves: bool = False,
        directory: str | Path | None = None,
        kept: bool = False,
    ) -> None:
        simulator = simulator or build(config, memory_bytes=memory_bytes, waves=waves)
        self.config, self.memory_bytes = config, simulator.memory_bytes
        self.result: runner.Result | None = None
        self.progress: Callable[[int], object] = lambda cycle: None
        self._closing = contextlib.ExitStack()
        # Only this user reaches what is in a directory that tempfile has made.
        private = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        door = self._closing.enter_context(socket.socket(socket.AF_UNIX))
        door.bind(str(private / "door"))
        door.listen(1)
        door.settimeout(_PATIENCE_SECONDS)
        job = {
            "config": config.as_dict(), "socket": str(private / "door"),
            "stall_share": stall_share, "latency": latency, "seed": seed,
        }  # fmt: skip
        self._failure: Exception | None = None

        def simulate():
            try:
                self.result = runner.run(
                    simulator.design, "verif.system.cocotb_device", testcase="serve", seed=seed,
                    files={"job.json": json.dumps(job)},
                    directory=directory or (None if kept else private / "run"),
                    timeout_seconds=_YEAR, waves=waves,
                )  # fmt: skip
            except Exception as error:
                self._failure = error

        # Instruments of the caller see the run, too.
        context = contextvars.copy_context()
        self._simulation = threading.Thread(target=context.run, args=(simulate,), daemon=True)
        self._simulation.start()
        self._closing.callback(self._simulation.join)
        self._host = self._accept(door)

    def _accept(self, door):
        """A file to the simulator, when it has started."""
        while True:
            with contextlib.suppress(TimeoutError):
                host, _ = door.accept()
                host.settimeout(None)
                self._closing.enter_context(host)
                return self._closing.enter_context(host.makefile("rwb"))
            if not self._simulation.is_alive():
                self.close()
                raise self._failure or RuntimeError("the simulator has ended at once")

    def put(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` into the memory, through its back door."""
        self._ask("put", address, bytes(data))

    def get(self, address: int, size: int) -> bytes:
        """``size`` bytes of the memory, through its back door."""
        return self._ask("get", address, size)

    def write(self, register: str, value: int) -> None:
        """Write a register, or both halves of a pair ``NAME_LO``, ``NAME_HI`` as ``NAME``; see
        :meth:`emulator.device.EmulatorDevice.write`."""
        self._ask("write", register, value)

    def wait(self, timeout_cycles: int | None = None) -> dict[str, int]:
        """Let time pass until an interrupt, and acknowledge it.

        Returns
        -------
        all registers by name, as they are before the causes in INTERRUPT_STATUS are cleared

        Raises
        ------
        TimeoutError
            there is none in ``timeout_cycles``
        """
        return self._ask("wait", timeout_cycles or TIMEOUT_CYCLES)

    def reset(self) -> None:
        """Pulse ``rst``; the memory keeps what it holds."""
        self._ask("reset")

    # What only a simulation can tell ---------------------------------------------------------

    def observed(self) -> dict[str, int]:
        """``start_cycle`` and ``end_cycle``: simulation cycles of the last start and of the last
        interrupt; ``protocol_errors``: violations of AXI rules since the reset; ``both_cores``:
        cycles of the last run in which both arrays took a vector."""
        return self._ask("observed")

    def last_writes(self, address: int, size: int) -> np.ndarray:
        """For each beat of the memory from ``address`` on a row of two: the cycle of its last
        write, and how many cycles the main array had waited for weights or the buffer then."""
        return self._ask("last_writes", address, size)

    def close(self) -> None:
        """End the simulator. A second time nothing happens."""
        self._closing.close()

    def _ask(self, name, *arguments):
        try:
            pickle.dump((name, arguments), self._host)
            self._host.flush()
            good, answer = pickle.load(self._host)
            while good is None:
                self.progress(answer)
                good, answer = pickle.load(self._host)
        except (EOFError, OSError) as error:
            self.close()
            raise self._failure or RuntimeError("the simulator has ended") from error
        if good:
            return answer
        kind, text = answer
        raise _ERRORS.get(kind, RuntimeError)(text)


#: What an exception in the simulation is here, by its name.
_ERRORS = {"Timeout": TimeoutError, "KeyError": KeyError, "RegisterAccessError": ValueError}
