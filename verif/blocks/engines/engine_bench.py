"""What the cocotb benches of the engines share: commands, stalls, and what an engine reports."""

import random
from dataclasses import dataclass, field

import cocotb

from .. import support
from ..ports import Ports

__all__ = ["EngineBench", "configuration", "reset"]


def configuration():
    """The configuration that the test was started with, and its main core."""
    config = support.configuration()
    return config, config.cores[0]


@dataclass(kw_only=True)
class EngineBench:
    """An engine with a command port, ``done``, ``flags``, ``stall``, ``error`` and a write port.

    ``busy_read`` and ``busy_write`` are the probabilities that a port does not accept. A bench adds
    ``step``, which answers the ports and ends with :meth:`end_cycle`, and ``pack``, which turns
    the fields of a command into bits.
    """

    #: Cycles after which :meth:`finish` gives up.
    LIMIT = 200_000

    dut: object
    rng: random.Random
    busy_read: float = 0.0
    busy_write: float = 0.0
    cycle: int = 0
    flags: int = 0
    stalls: int = 0
    writes: list = field(default_factory=list)
    errors: list = field(default_factory=list)
    done: list = field(default_factory=list)
    _held: dict = field(default_factory=dict)

    def take_write(self, accepted):
        """Record and return what the write port hands over: address, enable and data, or None."""
        dut = self.dut
        write = None
        if dut.write__valid.value:
            write = tuple(
                int(port.value) for port in (dut.write__address, dut.write__enable, dut.write__data)
            )
        self.keep("write", write, accepted)
        if write is None or not accepted:
            return None
        self.writes.append(write)
        return write

    def keep(self, port, request, accepted):
        """A ``request`` (None: no request) that is not accepted must be there in the next cycle."""
        before = self._held.get(port)
        assert before is None or before == request, f"stalled {port} changed: {before} -> {request}"
        self._held[port] = None if accepted else request

    async def end_cycle(self):
        """Look at what the engine reports, and go to the middle of the next cycle."""
        dut = self.dut
        self.flags |= int(dut.flags.value)
        self.stalls += int(dut.stall.value)
        if dut.done.value:
            self.done.append(self.cycle)
            assert self._held.get("write") is None, "done before the last write was accepted"
        if dut.error__valid.value:
            self.errors.append((int(dut.error__code.value), int(dut.error__address.value)))
        await support.next_cycle(dut)
        self.cycle += 1

    async def issue(self, fields):
        """Hand a command over; returns the cycle of its acceptance."""
        self.dut.command__payload.value = self.pack(fields)
        self.dut.command__valid.value = 1
        while not self.dut.command__ready.value:
            await self.step()
        accepted = self.cycle
        await self.step()
        self.dut.command__valid.value = 0
        return accepted

    async def finish(self, limit=None):
        """Wait for ``done``; returns its cycle."""
        limit = limit or self.LIMIT
        count = len(self.done)
        for _ in range(limit):
            if len(self.done) > count:
                return self.done[-1]
            await self.step()
        raise AssertionError(f"no done within {limit} cycles")

    def take(self):
        """Writes and flags since the last call."""
        writes, flags = self.writes, self.flags
        self.writes, self.flags = [], 0
        return writes, flags

    def forget(self):
        """A stop has withdrawn what was waiting."""
        self._held.clear()

    async def watch_stalls(self, cycles, *, least):
        """A port does not accept, which ``stall`` tells in at least so many of the cycles."""
        for _ in range(cycles):
            await self.step()
        stalls = f"{self.stalls} stall events in {cycles} cycles without a read"
        assert least <= self.stalls <= cycles, stalls

    async def stop(self, moment, *, cycles, quiet):
        """Stop the engine ``moment`` cycles after it has taken a command. From the next cycle on it
        is idle: for so many cycles the outputs ``quiet`` stay 0, and nothing is written, flagged or
        done."""
        dut = self.dut
        for _ in range(moment):
            await self.step()
        assert dut.busy.value, "the command should still be busy"
        dut.stop.value = 1
        await self.step()
        self.forget()
        dut.stop.value = self.rng.randrange(2)
        writes, done, self.flags = len(self.writes), len(self.done), 0
        for _ in range(cycles):
            for output in ("busy", *quiet):
                assert not getattr(dut, output).value, f"{output} after a stop in cycle {moment}"
            await self.step()
        assert len(self.writes) == writes, f"writes after a stop in cycle {moment}"
        assert self.flags == 0, f"flags after a stop in cycle {moment}"
        assert len(self.done) == done, f"done after a stop in cycle {moment}"
        dut.stop.value = 0
        await self.step()


async def reset(inputs, outputs):
    """Clock and reset with ``inputs`` at 0; afterwards ``outputs`` are 0. Returns the device."""
    dut = Ports(cocotb.top)
    for name in inputs:
        getattr(dut, name).value = 0
    await support.start(dut)
    for name in outputs:
        assert getattr(dut, name).value == 0, f"{name} is set after reset"
    return dut
