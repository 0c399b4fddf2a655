"""Division, square root and exponential against golden, bit for bit, flags included.

Covers: hw/arithmetic/digit_recurrence.py, hw/arithmetic/float_exponential.py,
hw/arithmetic/float_special.py.
"""

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from golden.arithmetic import divide_sqrt_exp as gs
from hw.arithmetic.digit_recurrence import DigitRecurrence
from hw.arithmetic.float_exponential import ExponentialRecurrence, exponential_constants
from hw.arithmetic.float_round import FloatPacker
from hw.arithmetic.float_special import FloatSpecial, SpecialOperation

DIVIDE, ROOT, EXPONENTIAL = SpecialOperation
SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFF800001, 0x007FFFFF, 0x80800000, 0x7F7FFFFF, 0x3F7FFFFF,
    ],
    dtype=np.uint32,
)  # fmt: skip
#: Overflow and underflow of the exponential and their neighbours; cut, tiny and huge operands.
LIMITS = np.array(
    [
        0x42B17217, 0x42B17218, 0x42FFFFFF, 0x43000000, 0x62FDCBA1, 0xC2AEAC4F, 0xC2AEAC50,
        0xC2FFFFFF, 0xC3000000, 0xFF7FFFFF, 0x33800000, 0xB3000001, 0x2E800000, 0x2E000000,
        0x2D7FFFFF, 0xAE800000, 0xAE000000, 0x22000000, 0xA2000000, 0x3F317218, 0xBF317218,
        0x3EB17218, 0x42800000, 0xC2800000, 0x40000000, 0x41B12897,
    ],
    dtype=np.uint32,
)  # fmt: skip


def golden(operation, a, b):
    if operation is DIVIDE:
        return gs.divide(a, b)
    return gs.square_root(a) if operation is ROOT else gs.exponential(a)


def requests(rng, count):
    """Specials for every operation, then ``count`` random operands for each; shuffled."""
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    x = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    y = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    distance = rng.choice([-128, -127, -126, -1, 0, 1, 127, 128], count)
    exponent = np.clip(((x >> 23) & 0xFF).astype(np.int64) - distance, 0, 255).astype(np.uint32)
    y = np.where(rng.random(count) < 0.6, (y & 0x807FFFFF) | exponent << 23, y)
    y = np.where(rng.random(count) < 0.2, (y & 0xFF800000) | (x & 0x7FFFFF), y)
    items = [(DIVIDE, *pair) for pair in zip([*a, *x], [*b, *y], strict=True)]
    squares = (rng.integers(1, 4096, count // 4).astype(np.float32) ** 2).view(np.uint32)
    roots = [*SPECIAL, *(x & 0x7FFFFFFF), *squares]
    items += [(ROOT, bits, rng.integers(1 << 32)) for bits in roots]
    near = rng.uniform(-95, 95, count) * 2.0 ** -rng.choice([0, 0, 0, 7, 20, 36], count)
    powers = [*SPECIAL, *LIMITS, *near.astype(np.float32).view(np.uint32), *hard(rng, 40 * count)]
    items += [(EXPONENTIAL, bits, rng.integers(1 << 32)) for bits in powers]
    items = [(operation, int(a), int(b)) for operation, a, b in items]
    rng.shuffle(items)
    return items


def hard(rng, count):
    """Of ``count`` random operands, those whose exponential is a little above a tie.

    The fixed-point result is below the exact one by up to 0.036 units in the last place, so it is
    on either side of the tie, and its last digits decide.
    """
    x = rng.uniform(-80, 80, count).astype(np.float32)
    above = np.frexp(np.exp(x.astype(np.float64)))[0] * 2.0**24 % 1 - 0.5
    return x.view(np.uint32)[(above > 0) & (above < 0.036)]


class Bench:
    """Offers requests one after the other, takes results, and counts cycles.

    Each cycle a waiting request is offered with the chance ``offer`` and a result is taken with
    the chance ``take``. ``results`` holds (bits, flags, cycles from acceptance to validity).
    """

    def __init__(self, rng, *, offer=1.0, take=1.0):
        self.rng, self.offer, self.take = rng, offer, take
        self.unit = FloatSpecial()
        self.results = []
        self.accepted = []
        self.cycles = 0

    def run(self, items):
        async def testbench(ctx):
            assert ctx.get(self.unit.i.ready) and not ctx.get(self.unit.o.valid), "idle after reset"
            for item in items:
                await self._request(ctx, item)
                await self._response(ctx)

        simulator = Simulator(self.unit)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()
        return self

    async def _request(self, ctx, item):
        i = self.unit.i
        assert not ctx.get(self.unit.o.valid), "a result is offered once"
        while self.rng.random() >= self.offer:
            await self._tick(ctx)
        ctx.set(i.payload, dict(zip(("operation", "a", "b"), item, strict=True)))
        ctx.set(i.valid, 1)
        assert ctx.get(i.ready), "a unit without work is ready"
        self.accepted.append(self.cycles)
        await self._tick(ctx)
        # Nothing of the request may be needed any longer.
        ctx.set(i.payload, {"operation": EXPONENTIAL, "a": 0x3F99999A, "b": 0xC0490FDB})

    async def _response(self, ctx):
        i, o = self.unit.i, self.unit.o
        while not ctx.get(o.valid):
            assert not ctx.get(i.ready), "one operation at a time"
            await self._tick(ctx)
        latency = self.cycles - self.accepted[-1]
        first = ctx.get(o.payload.as_value())
        while self.rng.random() >= self.take:
            await self._tick(ctx)
            assert ctx.get(o.valid) and ctx.get(o.payload.as_value()) == first, (
                "stands while stalled"
            )
        ctx.set(o.ready, 1)
        ctx.set(i.valid, 0)
        await self._tick(ctx)
        ctx.set(o.ready, 0)
        self.results.append((first & 0xFFFFFFFF, first >> 32, latency))

    async def _tick(self, ctx):
        await ctx.tick()
        self.cycles += 1


def check(items, results):
    assert len(results) == len(items)
    for index, ((operation, a, b), (bits, flags, latency)) in enumerate(
        zip(items, results, strict=True)
    ):
        expected, expected_flags = (int(v) for v in golden(operation, np.uint32(a), np.uint32(b)))
        if (bits, flags) != (expected, expected_flags):
            values = np.array([a, b, bits, expected], dtype=np.uint32).view(np.float32)
            pytest.fail(
                f"request {index}: {operation.name} {a:#010x} ({values[0]}), {b:#010x} "
                f"({values[1]}) gives {bits:#010x} ({values[2]}) flags {flags:#x}, expected "
                f"{expected:#010x} ({values[3]}) flags {expected_flags:#x}"
            )
        assert latency == FloatSpecial.LATENCY[operation], f"request {index}: {operation.name}"


@pytest.mark.parametrize(("offer", "take"), [(1.0, 1.0), (0.2, 0.3)])
def test_all_operations(offer, take, rng):
    items = requests(rng, 80 if take == 1.0 else 20)
    check(items, Bench(rng, offer=offer, take=take).run(items).results)


@pytest.mark.parametrize("operation", SpecialOperation)
def test_interval(operation, rng):
    """Without stalls a result is accepted in its first cycle and the next request one later."""
    bench = Bench(rng).run([(operation, 0x40490FDB, 0x3FC90FDB)] * 4)
    assert (np.diff(bench.accepted) == FloatSpecial.LATENCY[operation] + 1).all()


def test_latencies():
    """What the documentation says."""
    assert FloatSpecial.LATENCY == {DIVIDE: 29, ROOT: 29, EXPONENTIAL: 66}
    assert DigitRecurrence.LATENCY + FloatPacker.LATENCY == 29
    assert ExponentialRecurrence.LATENCY + FloatPacker.LATENCY == 66


def test_constants():
    top, integers, fractions = gs.logarithm_table()
    assert exponential_constants() == (top, [*integers, *fractions])


def test_reset_during_an_operation():
    """A reset makes the unit idle at once, and nothing of the operation comes out later."""
    unit, reset = FloatSpecial(), Signal()

    async def testbench(ctx):
        for operation in SpecialOperation:
            for after in (0, 1, 15, FloatSpecial.LATENCY[operation]):
                ctx.set(unit.i.payload, {"operation": operation, "a": 0x40490FDB, "b": 0x3F8CCCCD})
                ctx.set(unit.i.valid, 1)
                assert ctx.get(unit.i.ready)
                await ctx.tick()
                ctx.set(unit.i.valid, 0)
                for _ in range(after):
                    await ctx.tick()
                ctx.set(reset, 1)
                await ctx.tick()
                ctx.set(reset, 0)
                for _ in range(70):
                    assert ctx.get(unit.i.ready) and not ctx.get(unit.o.valid)
                    await ctx.tick()

    simulator = Simulator(ResetInserter(reset)(unit))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_the_check_can_fail(rng):
    """One wrong bit, one wrong flag or one cycle more is reported."""
    items = [(DIVIDE, 0x40400000, 0x40000000), (ROOT, 0x40000000, 0), (EXPONENTIAL, 0x3F800000, 0)]
    results = Bench(rng).run(items).results
    check(items, results)
    bits, flags, latency = results[2]
    with pytest.raises(pytest.fail.Exception, match="request 2: EXPONENTIAL 0x3f800000"):
        check(items, [*results[:2], (bits ^ 1, flags, latency)])
    with pytest.raises(pytest.fail.Exception, match="flags 0x0, expected 0x402df854"):
        check(items, [*results[:2], (bits, 0, latency)])
    with pytest.raises(AssertionError, match="request 2: EXPONENTIAL"):
        check(items, [*results[:2], (bits, flags, latency + 1)])
