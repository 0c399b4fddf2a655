"""The accelerator seen from inside the simulation: registers, memory back door, whole runs.

Python wakes only for register accesses, the interrupt and the back door; in between the design
runs alone.
"""

import time

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, First, RisingEdge, Timer

from verif.sim.axi_ram import SimMemory, dumped

from .driver import Driver
from .record import BASE, RunRecord

__all__ = ["PERIOD_NS", "Harness", "LiteMaster", "Timeout"]

PERIOD_NS = 10
"""Clock period."""

_PROGRESS_CYCLES = 200_000
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
    """Operates a simulated accelerator with its memory (``verif/sim/rtl/adagp_sim.v``)."""

    def __init__(self, dut, config, *, base: int = BASE):
        self.dut = dut
        self.config = config
        self.base = base
        self.driver = Driver(config, LiteMaster(dut))
        self.memory = SimMemory(dut, prefix="")
        dut.external.value = 0
        dut.keep.value = 0
        Clock(dut.clk, PERIOD_NS, unit="ns").start()

    async def reset(self, cycles: int = 4, *, keep: bool = False) -> None:
        """Reset the accelerator and, unless ``keep``, the memory's bus side; memory contents
        survive."""
        self.dut.keep.value = int(keep)
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
        pause = round(255 * share)
        self.memory.set_stalls(aw=pause, w=pause, b=pause, ar=pause, r=pause)
        self.memory.set_latency(read=latency, write=latency)
        self.memory.set_seed(seed)

    # Back door -------------------------------------------------------------------------------

    async def load(self, data: bytes, offset: int = 0) -> None:
        """Write ``data`` at ``offset`` in the memory window."""
        await self.memory.load(self.base + offset, data)

    async def dump_part(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` in the window on."""
        return bytes(await self.memory.dump(self.base + offset, size))

    async def last_writes(self, address: int, size: int) -> np.ndarray:
        """For each beat of ``size`` bytes from ``address`` on a row of two: the cycle of its last
        write, and how many cycles the main array had waited for weights or the buffer then."""
        await self.memory.dump(address, size)
        both = np.frombuffer(dumped("written.hex"), ">u8").astype(np.uint64)
        return np.stack([both & 0xFFFFFFFF, both >> 32], axis=1).astype(np.int64)

    # Runs ------------------------------------------------------------------------------------

    async def start(self, *, size: int, program: int, program_size: int, watchdog: int = 0) -> None:
        """Start the program at offset ``program``."""
        await self.driver.start(
            base=self.base, size=size, program=program, program_size=program_size, watchdog=watchdog
        )

    async def interrupt(self, timeout_cycles: int, progress=None) -> None:
        """Wait for the interrupt; ``progress`` is called with the simulation cycle now and then."""
        for begin in range(0, timeout_cycles, _PROGRESS_CYCLES):
            if int(self.dut.irq.value):
                return
            cycles = min(_PROGRESS_CYCLES, timeout_cycles - begin)
            limit = Timer(cycles * PERIOD_NS, unit="ns")
            if await First(RisingEdge(self.dut.irq), limit) is not limit:
                return
            if progress is not None:
                progress(int(self.dut.cycle.value))
        if int(self.dut.irq.value):
            return
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
            stopped=bool(causes["STOPPED"]),
            code=code.name,
            unit=unit.name,
            address=address,
            counters=await driver.counters(),
            flags=await driver.flags(),
            start_cycle=start_cycle,
            cycles=cycles,
            seconds=seconds,
            protocol_errors=int(self.dut.protocol_errors.value),
            both_cores=int(self.dut.both_cores.value),
        )

    async def run(self, *, size, program, program_size, timeout_cycles, watchdog=0) -> RunRecord:
        """Start a program and wait for its end, at most ``timeout_cycles``."""
        driver = self.driver
        await driver.clear_flags()
        await self.start(size=size, program=program, program_size=program_size, watchdog=watchdog)
        first, begin = int(self.dut.cycle.value), time.perf_counter()
        await self.interrupt(timeout_cycles)
        while (await driver.fields("STATUS"))["BUSY"]:
            pass  # the last batch is done, the end of the run near
        seconds = time.perf_counter() - begin
        return await self.record(first, int(self.dut.cycle.value) - first, seconds)
