"""A reset of the command fetch in any cycle.

Covers: hw/control/fetch.py, hw/control/command_reader.py.
"""

import pytest

from hw.bus.signatures import RESP_DECERR
from hw.isa.error_codes import ErrorCode
from tests.hw.control.test_fetch import BASE, Bench, config_of


async def reset(bench, *, start=0):
    """One cycle of reset; what is owed to the fetch then never comes, and it must be idle."""
    bench.ctx.set(bench.dut.clear, 1)
    bench.ctx.set(bench.fetch.start, start)
    await bench.step()
    bench.ctx.set(bench.dut.clear, 0)
    bench.ctx.set(bench.fetch.start, 0)
    bench.owed, bench.requested, bench.errors, bench.stopped = [], [], [], True
    for _ in range(6):
        assert not bench.ctx.get(bench.fetch.busy)
        await bench.step()
    assert bench.requested == bench.errors == []


@pytest.mark.parametrize(
    "chances",
    [{}, {"take": 0.0}, {"accept": 0.3, "beat": 0.6, "take": 0.5, "latency": 3}],
    ids=["fast", "full", "slow"],
)
def test_reset_at_any_time(chances, seed):
    """Nothing is left of the program before: no request, no beat, no error, no place taken."""
    bench = Bench(config_of(64), seed, **chances)
    slow = bench.chances

    async def process(bench):
        for moment in range(0, 40, 3):
            bench.chances = slow
            await bench.start(address=64 * moment, size=64 * 9)
            for _ in range(moment):
                await bench.step()
            await reset(bench, start=moment % 2)
            bench.chances = 1.0, 1.0, 1.0
            await bench.start(address=0x4000 + 64 * moment, size=64 * 6)
            await bench.until(lambda: len(bench.taken) == 6)
            await bench.until(lambda: bench.errors)
            place = BASE + 0x4000 + 64 * (moment + 6)
            assert bench.errors == [(ErrorCode.PROGRAM_END, place)], moment

    bench.simulate(process)


def test_reset_around_an_error(seed):
    """A read that failed is forgotten, and so is an error that is about to be reported."""
    bench = Bench(config_of(64), seed, answers={BASE: (0, RESP_DECERR)})

    async def process(bench):
        for moment in range(24):
            await bench.start(address=0, size=64 * 4)
            for _ in range(moment):
                await bench.step()
            await reset(bench)
            await bench.start(address=0x40, size=64 * 4)
            await bench.until(lambda: len(bench.taken) == 4)
            assert bench.errors == []
            await bench.drain()

    bench.simulate(process)


def test_reset_around_a_wrong_start(seed):
    """Also an error of the program's place is not reported behind a reset."""
    bench = Bench(config_of(64), seed)

    async def process(bench):
        for moment in range(8):
            await bench.start(address=32, size=64)
            for _ in range(moment):
                await bench.step()
            await reset(bench, start=1)

    bench.simulate(process)
