"""The ring of beats against a list."""

import random

import pytest
from amaranth.sim import Simulator

from hw.control.command_ring import CommandRing


class Peer:
    """Plays writer and reader at random; ``beats`` is all that was written since the last flush,
    ``place`` the next to leave. What is kept is at most the ring's depth."""

    def __init__(self, dut, rng, *, write, read, jump):
        self.dut, self.rng = dut, rng
        self.chances = write, read, jump
        self.beats, self.place = [], 0
        self.left = 0

    async def step(self, ctx):
        dut, rng = self.dut, self.rng
        write, read, jump = (rng.random() < chance for chance in self.chances)
        inside = len(self.beats) - self.place
        write = write and inside < dut.depth
        oldest = max(0, len(self.beats) + write - dut.depth)
        rewind = jump and rng.random() < 0.8 and self.place >= oldest
        flush = jump and not rewind
        distance = rng.randint(0, self.place - oldest) if rewind else rng.randrange(dut.depth)
        beat = rng.getrandbits(dut.width)
        ctx.set(dut.i.valid, write)
        ctx.set(dut.i.payload, beat)
        ctx.set(dut.o.ready, read and not jump)
        ctx.set(dut.rewind, rewind)
        ctx.set(dut.flush, flush)
        ctx.set(dut.distance, distance)
        assert ctx.get(dut.empty) == (inside == 0)
        valid = ctx.get(dut.o.valid)
        if valid:
            assert inside, "a beat leaves an empty ring"
            assert ctx.get(dut.o.payload) == self.beats[self.place], f"beat {self.place}"
        waited = bool(inside) and not valid
        await ctx.tick()
        if valid and read and not jump:
            self.place += 1
            self.left += 1
        if write:
            self.beats.append(beat)
        if rewind:
            self.place -= distance
        if flush:
            self.beats, self.place = [], 0
        return waited, rewind


@pytest.mark.parametrize("depth", [2, 4, 32])
@pytest.mark.parametrize("chances", [(0.9, 0.5, 0.1), (0.4, 0.9, 0.05), (0.5, 0.5, 0.02)])
def test_random_traffic(depth, chances, seed):
    """It makes nobody wait but in the cycle behind a rewind."""
    write, read, jump = chances
    dut = CommandRing(width=8, depth=depth)
    peer = Peer(dut, random.Random(seed), write=write, read=read, jump=jump)

    async def testbench(ctx):
        rewound = False
        for cycle in range(600):
            waited, now = await peer.step(ctx)
            assert not waited or rewound, f"nothing leaves in cycle {cycle}"
            rewound = now
        assert peer.left > 60

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("depth", [0, 1, 3, 24])
def test_depths(depth):
    with pytest.raises(ValueError, match=f"must hold a power of two of beats, not {depth}$"):
        CommandRing(width=8, depth=depth)
