"""hw/primitives/pipeline.py: delays with and without reset."""

import pytest
from amaranth.hdl import Module, ResetSignal, Signal, signed
from amaranth.lib import data
from amaranth.sim import Simulator

from hw.primitives.pipeline import delay, register


def simulate(cycles, reset, stimulus):
    """What ``delay`` gives in every cycle for (value, reset) in every cycle."""
    m, value, rst, o = Module(), Signal(8), Signal(), Signal(8)
    m.d.comb += [ResetSignal("sync").eq(rst), o.eq(delay(m, value, cycles, name="v", reset=reset))]
    simulator, seen = Simulator(m), []

    async def testbench(ctx):
        for number, clear in stimulus:
            ctx.set(value, number)
            ctx.set(rst, clear)
            seen.append(ctx.get(o))
            await ctx.tick()

    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return seen


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("cycles", [0, 1, 2, 5])
def test_value_comes_cycles_later(cycles, reset, rng):
    values = [int(n) for n in rng.integers(1, 256, 40)]
    seen = simulate(cycles, reset, [(value, 0) for value in values])
    assert seen == [0] * cycles + values[: 40 - cycles]


@pytest.mark.parametrize("cycles", [1, 3])
def test_reset_clears_only_what_has_one(cycles, rng):
    values = [int(n) for n in rng.integers(1, 256, 30)]
    stimulus = [(value, int(cycle == 20)) for cycle, value in enumerate(values)]
    kept, cleared = (simulate(cycles, reset, stimulus) for reset in (False, True))
    assert kept == [0] * cycles + values[: 30 - cycles]
    expected = list(kept)
    expected[21 : 21 + cycles] = [0] * cycles
    assert cleared == expected


def test_reset_must_be_said():
    with pytest.raises(TypeError, match="reset"):
        delay(Module(), Signal(), 1, name="v")


@pytest.mark.parametrize("shape", [3, signed(5), data.StructLayout({"a": 2, "b": 4})])
def test_shape_stays(shape):
    value = Signal(shape)
    for later in (
        delay(Module(), value, 2, name="v", reset=True),
        delay(Module(), value, 2, name="v", reset=False),
        register(Module(), value, name="v"),
    ):
        assert later.shape() == value.shape()
