"""Stream registers against a queue: nothing lost, nothing twice, rate, latency, reset."""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.primitives.stream_register import HalfRateRegister, SkidBuffer

#: Class -> entries that it holds, cycles per item without a stall.
KINDS = {HalfRateRegister: (1, 2), SkidBuffer: (2, 1)}


def simulate(dut, process, clear=None):
    simulator = Simulator(dut if clear is None else ResetInserter(clear)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(process)
    simulator.run()


async def play(ctx, dut, rng, cycles, *, offer, take, depth, first=0):
    """Offer numbered items with one chance per cycle and take them with another; returns how many
    were taken. An item that waits keeps its payload; ``o`` never waits for ``ready``."""
    sent = got = first
    waiting = False
    for _ in range(cycles):
        waiting = waiting or rng.random() < offer
        ctx.set(dut.i.valid, waiting)
        ctx.set(dut.i.payload, sent & 0xFF if waiting else rng.randrange(256))
        valid = ctx.get(dut.o.valid)
        accepts = ctx.get(dut.i.ready)
        ctx.set(dut.o.ready, rng.random() < take)
        assert ctx.get(dut.o.valid) == valid and ctx.get(dut.i.ready) == accepts, "no register"
        assert valid == (sent > got), f"{sent - got} inside"
        assert accepts == (sent - got < depth)
        if valid:
            assert ctx.get(dut.o.payload) == got & 0xFF
            got += ctx.get(dut.o.ready)
        if waiting and accepts:
            sent, waiting = sent + 1, False
        await ctx.tick()
    ctx.set(dut.i.valid, 0)
    ctx.set(dut.o.ready, 0)
    return got - first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("offer", "take"), [(1, 1), (0.5, 1), (1, 0.5), (0.6, 0.6), (0.2, 0.9)])
def test_nothing_lost(kind, offer, take, seed):
    dut, (depth, interval) = kind(8), KINDS[kind]

    async def process(ctx):
        rng = random.Random(seed)
        taken = await play(ctx, dut, rng, 300, offer=offer, take=take, depth=depth)
        if offer == take == 1:
            assert taken == (300 - 1) // interval + (interval == 2)
        assert taken > 30

    simulate(dut, process)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_after_reset(kind, seed):
    """However full it was."""
    dut, clear, (depth, _) = kind(8), Signal(), KINDS[kind]

    async def process(ctx):
        rng = random.Random(seed)
        for number in range(12):
            await play(
                ctx, dut, rng, number, offer=1, take=number % 3 / 4, depth=depth, first=16 * number
            )
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)
            assert ctx.get(dut.i.ready) and not ctx.get(dut.o.valid)

    simulate(dut, process, clear)
