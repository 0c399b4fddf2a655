"""The accelerator seen from inside the simulation: registers, memory back door, whole runs.

Python wakes only for register accesses, the interrupt and the back door; in between the design
runs alone.
"""

import contextlib
import time
from pathlib import Path

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, First, RisingEdge, Timer

from verif.driver import Driver
from verif.record import BASE, RunRecord

__all__ = ["PERIOD_NS", "Harness", "LiteMaster", "Timeout"]

PERIOD_NS = 10
"""Clock period."""

_BUS_TIMEOUT_CYCLES = 1000


class Timeout(AssertionError):
    """Something that must happen did not."""


class LiteMaster:
    """A small AXI4-Lite master at the ports ``s_axil_*``; one access at a time."""

    def __init__(self, dut):
        self.dut = dut
        for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            self._port(name).value = 0

    def _port(self, name):
        return getattr(self.dut, f"s_axil_{name}")

    async def _handshake(self, *channels):
        """Raise ``valid`` on ``channels`` until each has been accepted."""
        await RisingEdge(self.dut.clk)  # callers come at any time
        for channel in channels:
            self._port(f"{channel}valid").value = 1
        waiting = set(channels)
        for _ in range(_BUS_TIMEOUT_CYCLES):
            await FallingEdge(self.dut.clk)
            accepted = {c for c in waiting if int(self._port(f"{c}ready").value)}
            await RisingEdge(self.dut.clk)
            for channel in accepted:
                self._port(f"{channel}valid").value = 0
            waiting -= accepted
            if not waiting:
                return
        raise Timeout(f"AXI4-Lite channels {', '.join(sorted(waiting))} are never ready")

    async def _answer(self, channel):
        self._port(f"{channel}ready").value = 1
        for _ in range(_BUS_TIMEOUT_CYCLES):
            await FallingEdge(self.dut.clk)
            if int(self._port(f"{channel}valid").value):
                break
        else:
            raise Timeout(f"AXI4-Lite channel {channel} never answers")
        response = int(self._port(f"{channel}resp").value)
        data = int(self._port("rdata").value) if channel == "r" else 0
        await RisingEdge(self.dut.clk)
        self._port(f"{channel}ready").value = 0
        return data, response

    async def read(self, address: int) -> tuple[int, int]:
        """(value, response) of a register."""
        self._port("araddr").value = address
        await self._handshake("ar")
        return await self._answer("r")

    async def write(self, address: int, value: int) -> int:
        """Write a register; returns the response."""
        self._port("awaddr").value = address
        self._port("wdata").value = value
        self._port("wstrb").value = 0xF
        await self._handshake("aw", "w")
        return (await self._answer("b"))[1]


class Harness:
    """Operates a simulated accelerator with its memory (``verif/rtl/adagp_sim.v``)."""

    def __init__(self, dut, config, *, base: int = BASE):
        self.dut = dut
        self.config = config
        self.base = base
        self.driver = Driver(config, LiteMaster(dut))
        dut.external.value = 0
        self.stalls()
        self.errors()
        Clock(dut.clk, PERIOD_NS, unit="ns").start()

    async def reset(self, cycles: int = 4) -> None:
        """Reset the accelerator and the memory's bus side; memory contents survive."""
        self.dut.rst.value = 1
        await self.wait(cycles)
        self.dut.rst.value = 0
        await self.wait(1)

    async def wait(self, cycles: int) -> None:
        """Let cycles pass; returns at a falling edge."""
        await Timer(cycles * PERIOD_NS, unit="ns")
        await FallingEdge(self.dut.clk)

    def stalls(self, share: float = 0.0, *, latency: int = 0, seed: int = 1) -> None:
        """Every channel of the memory pauses in ``share`` of the cycles, each burst waits for
        ``latency`` cycles."""
        for channel in ("aw", "w", "b", "ar", "r"):
            getattr(self.dut, f"stall_{channel}").value = round(255 * share)
        self.dut.read_latency.value = latency
        self.dut.write_latency.value = latency
        self.dut.seed.value = seed

    def errors(self, *, address: int = 0, size: int = 0, response: int = 0) -> None:
        """The memory answers bursts in ``size`` bytes from ``address`` with ``response``."""
        self.dut.error_base.value = address
        self.dut.error_size.value = size
        self.dut.error_resp.value = response

    # Back door -------------------------------------------------------------------------------

    async def load(self, data: bytes, offset: int = 0) -> None:
        """Write ``data`` at ``offset`` in the memory window; whole beats."""
        beat = self.config.beat_bytes
        if offset % beat:
            raise ValueError(f"offset must be a multiple of {beat}, not {offset}")
        padded = bytes(data) + bytes(-len(data) % beat)
        words = np.frombuffer(padded, np.uint8).reshape(-1, beat)
        Path("memory_in.bin").write_bytes(words[:, ::-1].tobytes())
        self.dut.load_first.value = (self.base + offset) // beat
        self.dut.load_count.value = len(words)
        await self._toggle("load")

    async def dump(self, size: int) -> tuple[bytes, np.ndarray]:
        """The first ``size`` bytes of the window, and for each beat the cycle of its last write."""
        beat = self.config.beat_bytes
        first, count = self.base // beat, -(-size // beat)
        self.dut.dump_first.value = first
        self.dut.dump_last.value = first + count - 1
        await self._toggle("dump")
        words = _words("memory_out.hex", count)
        data = b"".join(bytes.fromhex(word)[::-1] for word in words)
        written = np.array([int(word, 16) for word in _words("written.hex", count)], np.int64)
        return data[:size], written

    async def _toggle(self, name):
        request, done = getattr(self.dut, name), getattr(self.dut, f"{name}_done")
        target = 1 - int(done.value)
        request.value = target
        await self.wait(2)
        if int(done.value) != target:
            raise Timeout(f"the memory's back door did not {name}")

    # Runs ------------------------------------------------------------------------------------

    async def start(self, *, size: int, program: int, program_size: int) -> None:
        """Start the program at offset ``program``."""
        await self.driver.start(
            base=self.base, size=size, program=program, program_size=program_size
        )

    async def interrupt(self, timeout_cycles: int) -> None:
        """Wait for the interrupt."""
        if int(self.dut.irq.value):
            return
        limit = Timer(timeout_cycles * PERIOD_NS, unit="ns")
        if await First(RisingEdge(self.dut.irq), limit) is limit:
            status = await self.driver.fields("STATUS")
            raise Timeout(f"no interrupt in {timeout_cycles} cycles; STATUS is {status}")

    async def record(self, start_cycle: int, cycles: int, seconds: float) -> RunRecord:
        """Collect what the registers say, and acknowledge the interrupt."""
        driver = self.driver
        causes = await driver.acknowledge()
        await self.wait(2)
        if int(self.dut.irq.value):
            raise AssertionError("the interrupt stays high after it has been acknowledged")
        code, unit, address = await driver.error()
        return RunRecord(
            done=bool(causes["DONE"]),
            error=bool(causes["ERROR"]),
            code=code.name,
            unit=unit.name,
            address=address,
            counters=await driver.counters(),
            flags=await driver.flags(),
            start_cycle=start_cycle,
            cycles=cycles,
            seconds=seconds,
            protocol_errors=int(self.dut.protocol_errors.value),
        )

    async def run(self, *, size, program, program_size, timeout_cycles) -> RunRecord:
        """Start a program and wait for its end."""
        with contextlib.suppress(FileNotFoundError):
            Path("memory_in.bin").unlink()
        await self.start(size=size, program=program, program_size=program_size)
        first, begin = int(self.dut.cycle.value), time.perf_counter()
        await self.interrupt(timeout_cycles)
        seconds = time.perf_counter() - begin
        return await self.record(first, int(self.dut.cycle.value) - first, seconds)


def _words(path, count):
    lines = Path(path).read_text().split("\n")
    words = [line.strip() for line in lines if line.strip() and line[0] not in "@/"]
    if len(words) != count:
        raise AssertionError(f"{path} holds {len(words)} words, not {count}")
    return words
