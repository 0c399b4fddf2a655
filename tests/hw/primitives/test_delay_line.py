"""DelayLine: what comes out is what went in, the promised number of cycles before."""

import pytest
from amaranth.sim import Simulator

from hw.primitives.delay_line import DelayLine


@pytest.mark.parametrize("cycles", [3, 4, 7, 13, 17])
def test_delay(cycles, rng):
    dut = DelayLine(9, cycles)
    values = [int(v) for v in rng.integers(0, 512, 60)]

    async def testbench(ctx):
        seen = []
        for value in values:
            ctx.set(dut.i, value)
            seen.append(ctx.get(dut.o))
            await ctx.tick()
        assert seen[cycles:] == values[:-cycles]

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_too_short():
    with pytest.raises(ValueError, match="at least 3"):
        DelayLine(8, 2)
