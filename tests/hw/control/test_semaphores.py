"""Semaphores against a plain Python model.

Covers: hw/control/command_queue.py.
"""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.control.command_queue import Semaphores
from hw.isa.error_codes import ErrorCode


def simulate(dut, *testbenches):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    simulator.run()


class SemaphoreModel:
    """Counters from 0 to 15; per cycle one take (atomic), the ports in turn and what they offered
    a cycle before, and one give, the lowest port first, which counts a cycle later."""

    def __init__(self, count):
        self.counters = [0] * count
        self.turn = 0
        self.offer = None  # port and mask of the take that is decided in this cycle
        self.given = 0
        self.met = self.saved = 0  # a counter taken and given at once; the same at 15

    def cycle(self, takes, gives):
        """``takes`` and ``gives``: a mask or None per port. Returns the ports that were served
        and the number of the counter that overflows, each or None."""
        above = sum((value > 0) << n for n, value in enumerate(self.counters))
        take, mask = self.offer or (None, 0)
        if take is not None and mask & ~above:
            take, mask = None, 0
        overflow = None
        for number in reversed(range(len(self.counters))):
            taken, given = mask >> number & 1, self.given >> number & 1
            self.met += taken and given
            self.saved += taken and given and self.counters[number] == 15
            self.counters[number] += given - taken
            if self.counters[number] > 15:
                overflow = number
                self.counters[number] = 0
        give = next((n for n, offered in enumerate(gives) if offered is not None), None)
        self.given = 0 if give is None else gives[give]
        offers = [*takes, None]
        self.offer = None if offers[self.turn] is None else (self.turn, offers[self.turn])
        self.turn = (self.turn + 1) % max(len(takes), 2)
        return take, give, overflow


class HighestFirst(SemaphoreModel):
    def cycle(self, takes, gives):
        take, give, overflow = super().cycle(takes[::-1], gives[::-1])
        turned = [None if port is None else len(takes) - 1 - port for port in (take, give)]
        return *turned, overflow


class NotAtomic(SemaphoreModel):
    def cycle(self, takes, gives):
        lowest = [mask if mask is None else mask & -mask for mask in takes]
        return super().cycle(lowest, gives)


def compare_semaphores(model, *, count, queues, cycles, seed, gives_chance, resets=0.0):
    """Random traffic, with chance ``resets`` of a reset in a cycle; returns how often each thing
    happened."""
    dut, clear = Semaphores(count=count, queues=queues), Signal()
    rng = random.Random(f"{seed} {count} {queues} {gives_chance}")
    seen = dict.fromkeys(("take", "give", "wait", "overflow"), 0)

    async def testbench(ctx):
        nonlocal model
        takes, gives = [None] * queues, [None] * queues
        overflow = None
        for cycle in range(cycles):
            for port in range(queues):
                # Offers stay until they are taken, as in a stream.
                if takes[port] is None and rng.random() < 0.5:
                    takes[port] = rng.getrandbits(count) & rng.getrandbits(count)
                if gives[port] is None and rng.random() < gives_chance:
                    gives[port] = rng.getrandbits(count) & rng.getrandbits(count)
            for ports, masks in ((dut.take, takes), (dut.give, gives)):
                for port, mask in enumerate(masks):
                    ctx.set(ports[port].valid, mask is not None)
                    ctx.set(ports[port].payload, mask or 0)
            if rng.random() < resets:
                # Offers come in this cycle, too, and are withdrawn.
                ctx.set(clear, 1)
                await ctx.tick()
                ctx.set(clear, 0)
                model, overflow = type(model)(count), None
                takes, gives = [None] * queues, [None] * queues
                continue
            served = [
                next((n for n in range(queues) if masks[n] is not None and ctx.get(ports[n].ready)),
                     None)
                for ports, masks in ((dut.take, takes), (dut.give, gives))
            ]  # fmt: skip
            several = [
                [n for n in range(queues) if masks[n] is not None and ctx.get(ports[n].ready)]
                for ports, masks in ((dut.take, takes), (dut.give, gives))
            ]
            assert all(len(ports) <= 1 for ports in several), f"cycle {cycle}: {several}"
            error = ctx.get(dut.error.address) if ctx.get(dut.error.valid) else None
            assert error == overflow, f"cycle {cycle}: overflow of {error}, expected {overflow}"
            if error is not None:
                assert ctx.get(dut.error.code) == ErrorCode.SEMAPHORE_OVERFLOW
            full = [model.given >> n & 1 and model.counters[n] == 15 for n in range(count)]
            assert ctx.get(dut.fails) == (any(full) or overflow is not None), f"cycle {cycle}"
            before = list(model.counters)
            take, give, overflow = model.cycle(takes, gives)
            assert served == [take, give], (
                f"cycle {cycle}: take and give of ports {served}, expected {[take, give]}, "
                f"counters {before}"
            )
            seen["take"] += take is not None
            seen["give"] += give is not None
            seen["wait"] += take is None and any(mask is not None for mask in takes)
            seen["overflow"] += overflow is not None
            if take is not None:
                takes[take] = None
            if give is not None:
                gives[give] = None
            await ctx.tick()

    simulate(ResetInserter(clear)(dut), testbench)
    return seen | {"both": model.met, "saved": model.saved}


@pytest.mark.parametrize(("count", "queues"), [(1, 1), (5, 3), (16, 4), (32, 8)])
@pytest.mark.parametrize("gives_chance", [0.05, 0.3])
def test_semaphores(count, queues, gives_chance, seed):
    seen = compare_semaphores(
        SemaphoreModel(count),
        count=count,
        queues=queues,
        cycles=500 if gives_chance > 0.1 else 1500,
        seed=seed,
        gives_chance=gives_chance,
    )
    assert seen["take"] > 20 and seen["give"] > 20, seen
    assert count == 1 or seen["wait"] > 20, seen
    assert count == 1 or seen["both"] > 0, seen


def test_semaphores_overflow_and_the_lowest_is_named(seed):
    seen = compare_semaphores(
        SemaphoreModel(4), count=4, queues=2, cycles=600, seed=seed, gives_chance=0.9
    )
    assert seen["overflow"] > 5, seen
    assert seen["saved"] > 0, seen


@pytest.mark.parametrize(("count", "queues"), [(1, 1), (5, 3)])
def test_a_reset_in_any_cycle(count, queues, seed):
    """No token, no turn and no answer is left of what was before."""
    seen = compare_semaphores(
        SemaphoreModel(count), count=count, queues=queues, cycles=900, seed=seed,
        gives_chance=0.8, resets=0.05,
    )  # fmt: skip
    assert seen["take"] > 20 and seen["give"] > 20, seen


def test_a_reset_while_a_counter_overflows():
    """In the cycles around the overflow: it is not reported behind the reset."""
    dut, clear = Semaphores(count=3, queues=2), Signal()

    async def testbench(ctx):
        for moment in range(4):
            ctx.set(dut.give[1].payload, 0b100)
            ctx.set(dut.give[1].valid, 1)
            await ctx.tick().repeat(16)
            ctx.set(dut.give[1].valid, 0)
            for _ in range(moment):
                await ctx.tick()
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)
            for _ in range(3):
                assert not ctx.get(dut.error.valid) and not ctx.get(dut.fails), moment
                await ctx.tick()

    simulate(ResetInserter(clear)(dut), testbench)


@pytest.mark.parametrize("wrong", [HighestFirst, NotAtomic])
def test_a_wrong_model_is_found(wrong, seed):
    with pytest.raises(AssertionError, match="take and give of ports"):
        compare_semaphores(
            wrong(8), count=8, queues=4, cycles=500, seed=seed, gives_chance=0.1
        )  # fmt: skip


@pytest.mark.parametrize("count", [4, 32])
def test_every_counter_from_0_to_15(count):
    """15 tokens are kept, the 16th is an error with the counter's number."""
    dut = Semaphores(count=count, queues=1)
    take, give = dut.take[0], dut.give[0]

    async def grants(ctx, mask, cycles):
        """How often ``mask`` is granted in so many cycles."""
        ctx.set(take.payload, mask)
        ctx.set(take.valid, 1)
        granted = 0
        for _ in range(cycles):
            granted += ctx.get(take.ready)
            await ctx.tick()
        ctx.set(take.valid, 0)
        await ctx.tick().repeat(2)
        return granted

    async def gives(ctx, mask, count):
        ctx.set(give.payload, mask)
        ctx.set(give.valid, 1)
        await ctx.tick().repeat(count)
        ctx.set(give.valid, 0)
        await ctx.tick()

    async def testbench(ctx):
        assert not ctx.get(dut.error.valid)
        for number in range(count):
            mask = 1 << number
            assert not await grants(ctx, mask, 4), f"counter {number} is not 0 after reset"
            await gives(ctx, mask, 15)
            assert not ctx.get(dut.error.valid)
            await gives(ctx, mask, 1)  # the 16th
            assert ctx.get(dut.error.valid)
            assert ctx.get(dut.error.code) == ErrorCode.SEMAPHORE_OVERFLOW
            assert ctx.get(dut.error.address) == number
            await ctx.tick()
            assert not ctx.get(dut.error.valid)
        assert not await grants(ctx, 2, 4)  # it has gone from 15 to 0
        await gives(ctx, 2, 15)
        assert await grants(ctx, 2, 40) == 15

    simulate(dut, testbench)
