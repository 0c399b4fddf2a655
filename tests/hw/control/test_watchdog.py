"""The watchdog counts what it says, and names who is to blame."""

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.control.watchdog import Watchdog
from hw.registers.map import Unit

UNITS = (Unit.CORE0_POST, Unit.CORE1_MATMUL, Unit.FETCH)


def simulate(process, **options):
    dut = Watchdog(UNITS, **options)
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def testbench(ctx):
        await process(ctx, dut)

    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 40])
def test_expires_behind_so_many_cycles(limit, rng):
    """A model of the sentence: in the last ``limit`` cycles there was neither progress nor a
    restart, but in the one before there was."""

    async def process(ctx, dut):
        ctx.set(dut.limit, limit)
        events, pulses = [], 0
        for _ in range(1500):
            progress = rng.random() < 0.05
            restart = rng.random() < 0.01
            ctx.set(dut.progress, progress)
            ctx.set(dut.restart, restart)
            cycle = len(events)
            # Progress is seen a cycle later than a restart.
            quiet = (
                bool(limit)
                and cycle > limit + 2
                and not any(events[n][0] for n in range(cycle - limit - 1, cycle - 1))
                and not any(events[n][1] for n in range(cycle - limit, cycle))
            )
            edge = quiet and (events[cycle - limit - 2][0] or events[cycle - limit - 1][1])
            if cycle > limit + 2:
                assert ctx.get(dut.expired) == edge, f"cycle {cycle}"
                pulses += edge
            events.append((progress, restart))
            await ctx.tick()
        assert pulses > 2 or not limit

    simulate(process)


@pytest.mark.parametrize("limit", [0, 1, 14, 15])
def test_the_count_does_not_wrap(limit):
    """It expires once at most without progress, however long that lasts."""

    async def process(ctx, dut):
        ctx.set(dut.limit, limit)
        pulses = 0
        for _ in range(200):
            pulses += ctx.get(dut.expired)
            await ctx.tick()
        assert pulses == (limit > 0)

    simulate(process, width=4)


def test_the_first_suspect_is_named():
    async def process(ctx, dut):
        for suspects in range(1 << len(UNITS)):
            ctx.set(dut.suspects, suspects)
            await ctx.tick()
            first = (suspects & -suspects).bit_length() - 1
            expected = UNITS[first] if suspects else Unit.SEQUENCER
            assert ctx.get(dut.unit) == expected, f"{suspects:03b}"

    simulate(process)


def test_a_reset_in_any_cycle():
    """It counts as from a restart, whatever it has counted, seen and said before."""
    dut, clear = Watchdog(UNITS), Signal()
    limit = 6

    async def testbench(ctx):
        ctx.set(dut.limit, limit)
        ctx.set(dut.suspects, 1)
        for moment in range(1, 3 * limit):
            for progress in range(2):
                ctx.set(dut.progress, 1)
                await ctx.tick()
                ctx.set(dut.progress, 0)
                await ctx.tick().repeat(moment)
                # In the cycle of the reset, and no longer.
                ctx.set(clear, 1)
                ctx.set(dut.progress, progress)
                await ctx.tick()
                ctx.set(clear, 0)
                ctx.set(dut.progress, 0)
                assert ctx.get(dut.unit) == Unit.SEQUENCER
                for cycle in range(1, 3 * limit):
                    expired = ctx.get(dut.expired)
                    assert expired == (cycle == limit + 1), f"reset after {moment}, then {cycle}"
                    await ctx.tick()

    simulator = Simulator(ResetInserter(clear)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
