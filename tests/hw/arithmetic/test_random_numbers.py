"""hw.arithmetic.random_numbers against golden.arithmetic.sampling.

Covers: hw/engines/vector/sampling.py.
"""

import numpy as np
from amaranth.sim import Simulator

from golden.arithmetic.sampling import sample
from hw.arithmetic.random_numbers import RandomNumbers

LANES = 3


def simulate(requests, *, idle):
    """(numbers, cycles from start until valid) of each (seed, stream, pixel, channel)."""
    unit, found = RandomNumbers(LANES), []

    async def testbench(ctx):
        assert not ctx.get(unit.valid), "valid after reset"
        for (seed, stream, pixel, channel), wait in zip(requests, idle, strict=True):
            ctx.set(unit.key.seed, seed)
            ctx.set(unit.key.stream, stream)
            ctx.set(unit.pixel, pixel)
            ctx.set(unit.channel, channel)
            ctx.set(unit.start, 1)
            await ctx.tick()
            ctx.set(unit.start, 0)
            # What the place is counts at the start only.
            ctx.set(unit.pixel, ~pixel & 0xFFFFFF)
            ctx.set(unit.channel, ~channel & 0xFFFF)
            cycles = 0
            while not ctx.get(unit.valid):
                await ctx.tick()
                cycles += 1
                assert cycles < 100, "it does not end"
            await ctx.tick().repeat(wait)
            found.append(([ctx.get(number) for number in unit.number], cycles))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return found


def test_numbers_and_latency(rng):
    limits = np.array([1 << 32, 1 << 16, 1 << 24, 1 << 16])
    requests = [tuple(int(n) for n in rng.integers(0, limits)) for _ in range(150)]
    requests += [(0, 0, 0, 0), (2**32 - 1, 0xFFFF, 0xFFFFFF, 0xFFFF), (1, 0, 0, 0xFFFE)]
    idle = [int(n) for n in rng.choice([1, 1, 2, 5], len(requests))]
    for request, (numbers, cycles) in zip(requests, simulate(requests, idle=idle), strict=True):
        *place, channel = request
        expected = sample(*place, channel + np.arange(LANES))
        assert numbers == list(expected), f"{request}: {numbers}, golden {expected}"
        assert cycles == RandomNumbers.LATENCY


def test_a_new_start_drops_the_old_one():
    unit = RandomNumbers(1)

    async def testbench(ctx):
        for pixel, cycles in ((5, 3), (6, RandomNumbers.LATENCY)):
            ctx.set(unit.pixel, pixel)
            ctx.set(unit.start, 1)
            await ctx.tick()
            ctx.set(unit.start, 0)
            await ctx.tick().repeat(cycles)
        assert ctx.get(unit.valid)
        assert ctx.get(unit.number[0]) == int(sample(0, 0, 6, 0))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
