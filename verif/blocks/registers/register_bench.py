"""The register file with a bus master, for cocotb.

The configuration comes as JSON in ``ADAGP_CONFIG``. Events, errors and flags are driven at the
ports that the accelerator connects.
"""

import itertools
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from hw.registers.map import register_map
from hw.registers.model import Access

from ..support import configuration

__all__ = [
    "CONFIG",
    "HARDWARE_REGISTERS",
    "LOCKED_REGISTERS",
    "MAP",
    "UPDATED_REGISTERS",
    "bench",
    "check_counters",
    "one_run",
]

CONFIG = configuration()
MAP = register_map(CONFIG)
_WRITTEN = {Access.READ_WRITE, Access.SHARED}
#: Registers that the host writes and the rest of the machine uses; those that it may not write
#: during a run.
HARDWARE_REGISTERS = tuple(
    register.name
    for register in MAP
    if register.name != "INTERRUPT_ENABLE"
    and any(field.access in _WRITTEN for field in register.fields)
)
LOCKED_REGISTERS = tuple(name for name in HARDWARE_REGISTERS if MAP[name].locked)
#: Those that the machine writes.
UPDATED_REGISTERS = ("BATCHES_DONE", "EPOCH", "EPOCH_BATCH", "PHASE")


class Bench:
    """The register file with a bus master and quiet hardware ports."""

    def __init__(self, dut):
        self.dut = dut
        self.master = None

    async def reset(self, cycles=3):
        dut = self.dut
        for name in (
            "finish", "stopped", "draining", "error_valid", "error_code", "error_unit",
            "error_address",
        ):  # fmt: skip
            getattr(dut, name).value = 0
        for name in (
            *(f"events_{name}" for name in MAP.events),
            *(f"core{c.index}_flags" for c in CONFIG.cores),
            "waiting",
            "batch",
            *(f"{name.lower()}_update_valid" for name in UPDATED_REGISTERS),
        ):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        if self.master is None:
            Clock(dut.clk, 10, unit="ns").start()
            bus = AxiLiteBus.from_prefix(dut, "s_axil")
            self.master = AxiLiteMaster(bus, dut.clk, dut.rst)
        await self.cycles(cycles)
        dut.rst.value = 0
        await self.cycles(2)

    async def cycles(self, count):
        for _ in range(count):
            await RisingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)

    async def pulse(self, **signals):
        """Drive signals for one cycle."""
        for name, value in signals.items():
            getattr(self.dut, name).value = value
        await self.cycles(1)
        for name in signals:
            getattr(self.dut, name).value = 0

    async def write(self, name, value, expected=AxiResp.OKAY):
        offset = MAP[name].offset if isinstance(name, str) else name
        response = await self.master.write(offset, value.to_bytes(4, "little"))
        assert response.resp == expected, f"write {name}: {response.resp!r}, not {expected!r}"

    async def raw_write(self, name, value, strobe):
        """A write whose data is not zero where the strobe is."""
        channels = self.master.write_if
        address, data = (
            channels.aw_channel._transaction_obj(),
            channels.w_channel._transaction_obj(),
        )
        address.awaddr, data.wdata, data.wstrb = MAP[name].offset, value, strobe
        await channels.w_channel.send(data)
        await channels.aw_channel.send(address)
        response = await channels.b_channel.recv()
        assert int(response.bresp) == AxiResp.OKAY

    async def read(self, name, expected=AxiResp.OKAY):
        offset = MAP[name].offset if isinstance(name, str) else name
        response = await self.master.read(offset, 4)
        assert response.resp == expected, f"read {name}: {response.resp!r}, not {expected!r}"
        return int.from_bytes(response.data, "little")

    async def expect(self, name, value):
        actual = await self.read(name)
        assert actual == value, f"{name} is {actual:#010x}, not {value:#010x}"

    async def counter(self, name):
        low = await self.read(f"{name}_LO")
        return low | (await self.read(f"{name}_HI")) << 32

    def pause(self, probability):
        """Random idles and back-pressure on all five channels."""
        write, read = self.master.write_if, self.master.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel)
        for channel in (*channels, read.ar_channel, read.r_channel):
            generator = random.Random(random.getrandbits(32))
            channel.set_pause_generator(generator.random() < probability for _ in itertools.count())


async def bench(dut):
    result = Bench(dut)
    await result.reset()
    return result


async def drive_events(tb, counts, density):
    """Random events in every cycle; adds up those that come while busy."""
    dut = tb.dut
    while True:
        await FallingEdge(dut.clk)
        busy = int(dut.busy.value)
        counts["busy"] = counts.get("busy", 0) + busy
        for name, width in MAP.events.items():
            value = random.getrandbits(width) if random.random() < density else 0
            value = (1 << width) - 1 if density == 1 else value
            getattr(dut, f"events_{name}").value = value
            counts[name] = counts.get(name, 0) + (value if busy else 0)


async def one_run(tb, *, cycles, density, error=None, keep_reading=False):
    """Start, events, end; returns the expected counts."""
    dut = tb.dut
    counts = {}
    driver = cocotb.start_soon(drive_events(tb, counts, density))
    await tb.write("CONTROL", 1)
    await tb.expect("STATUS", 1)
    if keep_reading:
        for counter in itertools.islice(itertools.cycle(MAP.counters), cycles // 20):
            await tb.read(f"{counter.name}_LO")
    else:
        await tb.cycles(cycles)
    if error:
        code, unit, address = error
        await tb.pulse(error_valid=1, error_code=code, error_unit=unit, error_address=address)
        await tb.pulse(error_valid=1, error_code=1, error_unit=1, error_address=1)
    await RisingEdge(dut.clk)
    dut.finish.value = 1
    await RisingEdge(dut.clk)
    dut.finish.value = 0
    await FallingEdge(dut.clk)
    await tb.cycles(5)
    driver.cancel()
    return counts


async def check_counters(tb, counts):
    for counter in MAP.counters:
        actual = await tb.counter(counter.name)
        expected = counts[counter.event or "busy"] * counter.step
        assert actual == expected, f"{counter.name} is {actual}, not {expected}"
