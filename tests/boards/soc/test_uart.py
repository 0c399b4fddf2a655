"""Serial line: bytes arrive, at rates that are no multiple of the clock and off by 2 %; what is no
byte is dropped; how long a byte takes."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from boards.soc.uart import UartReceiver, UartTransmitter, phase_step

CLOCK = 1e6


def simulate(dut, *processes):
    simulator = Simulator(dut)
    simulator.add_clock(1 / CLOCK)
    for process in processes:
        simulator.add_testbench(process)
    simulator.run()


async def send(ctx, dut, byte, cycles_per_bit, *, stop=1):
    """Puts a byte on the line; bits end at the nearest cycle."""
    at = 0.0
    for number, bit in enumerate([0, *(byte >> i & 1 for i in range(8)), stop], 1):
        ctx.set(dut.rx, bit)
        while at < round(number * cycles_per_bit):
            await ctx.tick()
            at += 1
    ctx.set(dut.rx, 1)


@pytest.mark.parametrize("divisor", [4, 5.3, 16.67, 40])
@pytest.mark.parametrize("error", [-0.02, 0, 0.02])
def test_receiver(divisor, error, seed):
    dut = UartReceiver(CLOCK, CLOCK / divisor)
    rng = random.Random(seed)
    sent = [rng.randrange(256) for _ in range(12)] + [0, 255, 0x55]
    received = []

    async def line(ctx):
        for byte in sent:
            await send(ctx, dut, byte, divisor * (1 + error))
            await ctx.tick().repeat(1 + rng.randrange(3))
        await ctx.tick().repeat(round(2 * divisor) + 4)

    async def listen(ctx):
        while len(received) < len(sent):
            await ctx.tick()
            if ctx.get(dut.o.valid):
                received.append(ctx.get(dut.o.payload))

    simulate(dut, line, listen)
    assert received == sent


def test_what_is_no_byte():
    dut = UartReceiver(CLOCK, CLOCK / 10)
    received = []

    async def line(ctx):
        await ctx.tick().repeat(20)
        # Too short for a start bit; then a break, which has no stop bit.
        for cycles in (3, 150):
            ctx.set(dut.rx, 0)
            await ctx.tick().repeat(cycles)
            ctx.set(dut.rx, 1)
            await ctx.tick().repeat(30)
        await send(ctx, dut, 0xA7, 10)
        await send(ctx, dut, 0x12, 10, stop=0)
        await ctx.tick().repeat(30)

    async def listen(ctx):
        for _ in range(500):
            await ctx.tick()
            if ctx.get(dut.o.valid):
                received.append(ctx.get(dut.o.payload))

    simulate(dut, line, listen)
    assert received == [0xA7]


@pytest.mark.parametrize("divisor", [4, 5.3, 16.67])
def test_transmitter(divisor, seed):
    """What it sends is what a receiver reads, without a gap between bytes but one cycle."""
    m = Module()
    m.submodules.transmitter = transmitter = UartTransmitter(CLOCK, CLOCK / divisor)
    m.submodules.receiver = receiver = UartReceiver(CLOCK, CLOCK / divisor)
    m.d.comb += receiver.rx.eq(transmitter.tx)
    rng = random.Random(seed)
    sent = [rng.randrange(256) for _ in range(20)]
    received, taken = [], []

    async def give(ctx):
        assert ctx.get(transmitter.tx) == 1 and ctx.get(transmitter.i.ready) == 1
        for byte in sent:
            ctx.set(transmitter.i.payload, byte)
            ctx.set(transmitter.i.valid, 1)
            cycles = 1
            while not ctx.get(transmitter.i.ready):
                await ctx.tick()
                cycles += 1
            await ctx.tick()
            taken.append(cycles)
        ctx.set(transmitter.i.valid, 0)

    async def listen(ctx):
        while len(received) < len(sent):
            await ctx.tick()
            if ctx.get(receiver.o.valid):
                received.append(ctx.get(receiver.o.payload))

    simulate(m, give, listen)
    assert received == sent
    assert all(10 * divisor <= cycles <= 10 * divisor + 2 for cycles in taken[1:])


def test_rates():
    assert phase_step(4e6, 1e6) == 1 << 14
    with pytest.raises(
        ValueError, match=r"baud rate must be from 9766 to 10000000 .* not 1.1e\+07"
    ):
        phase_step(40e6, 11e6)
