"""Accesses of a host: to memory, to registers, to the board; ``bus.ready`` when they are over."""

import random

import pytest
from amaranth.sim import Simulator

from boards.soc.host_access import HostAccess
from hw.registers.board import ACCELERATOR_BASE, MAGIC, SYSTEM_BASE, Control, Status, System


def make(data_width=32):
    return HostAccess(
        clock_hz=40_000_000, memory_bytes=1 << 25, data_width=data_width, register_width=12
    )


async def access(ctx, dut, address, value=None):
    """The word read, or None; and the cycles that it took."""
    ctx.set(dut.bus.valid, 1)
    ctx.set(dut.bus.address, address >> 2)
    ctx.set(dut.bus.write, value is not None)
    ctx.set(dut.bus.write_data, value or 0)
    for cycles in range(1, 200):  # noqa: B007
        _, _, ready, found = await ctx.tick().sample(dut.bus.ready, dut.bus.read_data)
        if ready:
            break
    else:
        raise AssertionError("the access never ends")
    ctx.set(dut.bus.valid, 0)
    return (found if value is None else None), cycles


def serve(port, store, rng, beat):
    """A slave that answers after a while; ``store``: beat number -> value."""

    async def process(ctx):
        address = {}
        while True:
            for name in ("ar", "aw", "w"):
                ctx.set(getattr(port, f"{name}ready"), rng.random() < 0.5)
            if ctx.get(port.arvalid & port.arready):
                address["r"] = ctx.get(port.araddr) // beat
            if ctx.get(port.awvalid & port.awready):
                address["w"] = ctx.get(port.awaddr) // beat
            if ctx.get(port.wvalid & port.wready):
                address["data"] = ctx.get(port.wdata), ctx.get(port.wstrb)
            if "r" in address and rng.random() < 0.3:
                ctx.set(port.rdata, store.get(address["r"], 0))
                ctx.set(port.rvalid, 1)
            if "w" in address and "data" in address and rng.random() < 0.3:
                data, strobes = address.pop("data")
                mask = sum(0xFF << 8 * i for i in range(beat) if strobes >> i & 1)
                number = address.pop("w")
                store[number] = store.get(number, 0) & ~mask | data & mask
                ctx.set(port.bvalid, 1)
            await ctx.tick()
            ctx.set(port.bvalid, 0)
            if ctx.get(port.rvalid):
                address.pop("r", None)
                ctx.set(port.rvalid, 0)

    return process


def run(dut, process, *background):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(process)
    for other in background:
        simulator.add_testbench(other, background=True)
    simulator.run()


@pytest.mark.parametrize("data_width", [32, 64, 128])
def test_memory_and_registers(data_width, seed):
    rng = random.Random(seed)
    dut, beat = make(data_width), data_width // 8
    memory, registers = {}, {}

    async def process(ctx):
        expected = {}
        for _ in range(60):
            base = rng.choice((0, ACCELERATOR_BASE))
            address = base + 4 * rng.randrange(12)
            if rng.random() < 0.5:
                value = rng.randrange(1 << 32)
                await access(ctx, dut, address, value)
                expected[address] = value
            else:
                found, _ = await access(ctx, dut, address)
                assert found == expected.get(address, 0), hex(address)
        assert ctx.get(dut.memory.awlen) == ctx.get(dut.memory.arlen) == 0

    run(dut, process, serve(dut.memory, memory, rng, beat), serve(dut.registers, registers, rng, 4))
    assert memory and registers


def test_board():
    dut = make()

    async def process(ctx):
        async def read(register):
            return (await access(ctx, dut, SYSTEM_BASE + 4 * register))[0]

        assert await read(System.MAGIC) == MAGIC
        assert await read(System.MEMORY_BYTES) == 1 << 25
        assert await read(System.CLOCK_HZ) == 40_000_000
        assert await read(System.STATUS) == 0
        ctx.set(dut.memory_ready, 1)
        ctx.set(dut.interrupt, 1)
        assert await read(System.STATUS) == 1 << Status.MEMORY_READY | 1 << Status.INTERRUPT
        ctx.set(dut.overrun, 1)
        await ctx.tick()
        ctx.set(dut.overrun, 0)
        assert await read(System.STATUS) >> Status.OVERRUN == 1
        await access(ctx, dut, SYSTEM_BASE + 4 * System.CONTROL, 1 << Control.CLEAR)
        assert await read(System.STATUS) >> Status.OVERRUN == 0
        # What nothing has: 0, at once.
        for address in (SYSTEM_BASE + 4 * 9, 0xA0000000, 0xFFFFFFFC):
            assert await access(ctx, dut, address) == (0, 1)
            await access(ctx, dut, address, 5)

    run(dut, process)


def test_reset():
    """For one cycle, when a host writes it, and not when it reads."""
    dut = make()

    async def process(ctx):
        address = SYSTEM_BASE + 4 * System.CONTROL
        for value, resets in ((1 << Control.RESET, 1), (1 << Control.CLEAR, 0), (None, 0)):
            ctx.set(dut.bus.address, address >> 2)
            ctx.set(dut.bus.write, value is not None)
            ctx.set(dut.bus.write_data, value or 0)
            assert not ctx.get(dut.reset)
            ctx.set(dut.bus.valid, 1)
            assert ctx.get(dut.bus.ready) and ctx.get(dut.reset) == resets
            await ctx.tick()
            ctx.set(dut.bus.valid, 0)

    run(dut, process)
