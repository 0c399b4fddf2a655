"""The counter bank alone: carries beyond 32 bits, reads at any time, clearing.

Covers: hw/registers/counter_list.py.
"""

import itertools

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.registers.counter_bank import VISIT_CYCLES, CounterBank
from hw.registers.model import Counter

MAX_READ_CYCLES = 3 * VISIT_CYCLES

COUNTERS = (
    Counter(name="CYCLES", unit="cycles", doc="", event=None),
    Counter(name="FEW", unit="events", doc="", event="few"),
    Counter(name="MANY", unit="events", doc="", event="many", width=3, step=1 << 28),
)


def run(counters, bench, *, clear=None):
    dut = CounterBank(counters)
    simulator = Simulator(dut if clear is None else ResetInserter(clear)(dut))
    simulator.add_clock(1e-8)

    async def process(ctx):
        await bench(ctx, dut)

    simulator.add_testbench(process)
    simulator.run()


async def read(ctx, dut, index):
    ctx.set(dut.read_index, index)
    ctx.set(dut.read_valid, 1)
    for _ in range(MAX_READ_CYCLES):
        done, value = ctx.get(dut.read_done), ctx.get(dut.read_value)
        await ctx.tick()
        if done:
            ctx.set(dut.read_valid, 0)
            return value
    raise AssertionError(f"no answer after {MAX_READ_CYCLES} cycles")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_counts_beyond_32_bits(count, rng):
    async def bench(ctx, dut):
        expected = [0] * count
        ctx.set(dut.enable, 1)
        for _ in range(400):
            few, many = int(rng.integers(2)), int(rng.integers(8))
            if count > 1:
                ctx.set(dut.events.few, few)
            if count > 2:
                ctx.set(dut.events.many, many)
            for index, value in enumerate((1, few, many << 28)[:count]):
                expected[index] += value
            await ctx.tick()
        ctx.set(dut.enable, 0)
        await ctx.tick()
        for index in range(count):
            assert await read(ctx, dut, index) == expected[index], COUNTERS[index].name
        assert count < 3 or expected[2] > 1 << 36

    run(COUNTERS[:count], bench)


@pytest.mark.parametrize("delay", range(3 * VISIT_CYCLES))
def test_clear_at_any_phase(delay):
    async def bench(ctx, dut):
        ctx.set(dut.enable, 1)
        ctx.set(dut.events.many, 7)
        for _ in range(40 + delay):
            await ctx.tick()
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(4):
            await ctx.tick()
        ctx.set(dut.enable, 0)
        await ctx.tick()
        for _ in range(2):
            assert await read(ctx, dut, 0) == 5
            assert await read(ctx, dut, 1) == 0
            assert await read(ctx, dut, 2) == 35 << 28

    run(COUNTERS, bench)


def test_read_while_counting_moves_with_time():
    async def bench(ctx, dut):
        ctx.set(dut.enable, 1)
        values = [await read(ctx, dut, 0) for _ in range(50)]
        steps = [b - a for a, b in itertools.pairwise(values)]
        assert min(steps) >= 2 * VISIT_CYCLES - 1
        assert max(steps) <= MAX_READ_CYCLES

    run(COUNTERS, bench)


@pytest.mark.parametrize(("count", "width"), [(1, 3), (2, 3), (5, 1), (6, 3)])
def test_nothing_is_lost_under_load(count, width):
    """As many events as there can be, and a read in every second visit; the highest bit, too."""
    most = (1 << width) - 1
    counters = [
        Counter(name=f"C{n}", unit="events", doc="", event=f"e{n}", width=width, step=1 << shift)
        for n, shift in enumerate([*range(count - 1), 60])
    ]
    # An odd multiple of 8 events sets the highest bit.
    cycles = 16 * (3 * count + 8) + (4 if width == 3 else 8)

    async def bench(ctx, dut):
        ctx.set(dut.enable, 1)
        for n in range(count):
            ctx.set(getattr(dut.events, f"e{n}"), most)
        ctx.set(dut.read_valid, 1)
        for _ in range(cycles):
            await ctx.tick()
        ctx.set(dut.read_valid, 0)
        ctx.set(dut.enable, 0)
        await ctx.tick().repeat(VISIT_CYCLES)
        for n, counter in enumerate(counters):
            want = most * cycles * counter.step % (1 << 64)
            assert await read(ctx, dut, n) == want, counter.name
        assert most * cycles << 60 & 1 << 63

    run(counters, bench)


def test_reset_at_any_phase():
    """Nothing is left of the counts, of a read under way and of the events of the last cycle."""
    clear = Signal()

    async def bench(ctx, dut):
        for delay in range(6 * VISIT_CYCLES):
            ctx.set(dut.enable, 1)
            ctx.set(dut.events.many, 7)
            ctx.set(dut.read_index, 2)
            ctx.set(dut.read_valid, delay % 2)
            await ctx.tick().repeat(20 + delay)
            ctx.set(dut.read_valid, 0)
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)
            ctx.set(dut.enable, 0)
            for _ in range(3 * VISIT_CYCLES):
                assert not ctx.get(dut.read_done), "an answer without a question"
                await ctx.tick()
            ctx.set(dut.enable, 1)
            await ctx.tick().repeat(5)
            ctx.set(dut.enable, 0)
            await ctx.tick()
            values = [await read(ctx, dut, index) for index in range(3)]
            assert values == [5, 0, 35 << 28], f"after a reset in cycle {20 + delay}"

    run(COUNTERS, bench, clear=clear)
