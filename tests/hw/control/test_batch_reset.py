"""Resets in a run of batches, and BatchControl alone with large numbers.

Covers: hw/control/batch_control.py.
"""

import random

import pytest
from amaranth.sim import Simulator

from emulator.batch_loop import BatchLoop
from hw.control.batch_control import BatchControl
from hw.isa.batch import PhaseCode
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from tests.hw.control import test_batch_control
from tests.hw.control.test_batch_control import SCHEDULE, Machine, program_of


def test_reset_at_any_time():
    """Behind it nothing is fetched, counted or said, and the next run is right."""

    async def process(machine):
        ctx, dut = machine.ctx, machine.dut
        loop = BatchLoop(schedule=SCHEDULE, batches=2, epoch_batches=2)
        stream, bodies = program_of(random.Random(9), least=1)
        assert await machine.run(stream, loop) == []
        jump = machine.jump_at[1]
        for moment in (2, 4, *(jump + n for n in (-8, -4, -2, -1, 0, 1))):
            with pytest.raises(AssertionError, match="the run does not end"):
                await machine.run(stream, loop, limit=moment)
            ctx.set(dut.start, 0)
            ctx.set(machine.reset, 1)
            await ctx.tick()
            ctx.set(machine.reset, 0)
            for _ in range(8):
                assert not ctx.get(dut.fetch.busy), f"a request behind a reset in cycle {moment}"
                assert not ctx.get(dut.batches.waiting) and not ctx.get(dut.batches.batch)
                await ctx.tick()
            assert await machine.run(stream, loop) == []
            machine.check(loop, bodies)

    Machine().simulate(process)


def test_a_program_in_the_upper_half_of_the_window(monkeypatch):
    """Targets that need their highest bit."""
    monkeypatch.setattr(test_batch_control, "PROGRAM", 0x8000_0340)

    async def process(machine):
        machine.ctx.set(machine.dut.fetch.memory_size, 1 << 32)
        loop = BatchLoop(schedule=SCHEDULE, batches=5, epoch_batches=2)
        stream, bodies = program_of(random.Random(10), least=1)
        assert await machine.run(stream, loop) == []
        machine.check(loop, bodies)

    Machine().simulate(process)


class Alone:
    """A BatchControl whose registers, sequencer and fetch are played by the test.

    The program has three commands at ``PROGRAM``; ``targets`` are those of the BATCH.
    """

    PROGRAM = 0x4000

    def __init__(self, **registers):
        self.dut = BatchControl()
        self.registers = {
            "program_address": self.PROGRAM, "program_size": 3 * COMMAND_BYTES,
            "batches": 0xFFFF_FFFF, "batches_ready": 0xFFFF_FFFF, "epoch_batches": 100,
        } | registers  # fmt: skip

    def simulate(self, process):
        async def testbench(ctx):
            self.ctx = ctx
            for name, value in self.registers.items():
                ctx.set(getattr(self.dut, name), value)
            ctx.set(self.dut.begin, 1)
            await ctx.tick()
            ctx.set(self.dut.begin, 0)
            # The phase of the first batch is looked up.
            await ctx.tick().repeat(40)
            await process(self)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()

    async def offer(self, *, targets=(0, 0, 0, 0), first=0):
        """A BATCH comes to the head, where noise was; returns the cycles up to ``batch``, or None
        if it is refused."""
        ctx, dut = self.ctx, self.dut
        names = ("bp_even", "bp_odd", "gp_even", "gp_odd")
        places = {name: self.PROGRAM + at for name, at in zip(names, targets, strict=True)}
        ctx.set(dut.offered, 0)
        ctx.set(dut.command, (1 << 512) - 1)
        for _ in range(4):
            assert not ctx.get(dut.hold)
            await ctx.tick()
        bits = int.from_bytes(encode(Opcode.BATCH, **places, first=first), "little")
        ctx.set(dut.command, bits)
        ctx.set(dut.offered, 1)
        ctx.set(dut.drained, 1)
        for cycle in range(20):
            assert not ctx.get(dut.in_gp) or ctx.get(dut.batch)
            if ctx.get(dut.bad_target) or ctx.get(dut.bad_first):
                return None
            if ctx.get(dut.batch):
                return cycle
            await ctx.tick()
        raise AssertionError("nothing in 20 cycles")


def test_cycles_of_the_checks():
    """Behind empty queues a batch is counted 7 cycles after its BATCH came, whatever was at the
    head before; 3 cycles later the next begins."""

    async def process(alone):
        ctx, dut = alone.ctx, alone.dut
        assert await alone.offer() == 7
        for jump in (0, 0, 0, 1):
            assert ctx.get(dut.jump) == jump
            await ctx.tick()
        ctx.set(dut.offered, 0)
        assert ctx.get(dut.begin_jump) and ctx.get(dut.target) == alone.PROGRAM
        assert await alone.offer() == 7  # the second time as well

    Alone().simulate(process)


@pytest.mark.parametrize("place", range(4))
def test_each_target_is_looked_at(place):
    async def process(alone):
        ctx, dut = alone.ctx, alone.dut
        targets = [2 * COMMAND_BYTES] * 4
        assert await alone.offer(targets=targets) == 7
        while not ctx.get(dut.jump):
            await ctx.tick()
        await ctx.tick()
        targets[place] = 3 * COMMAND_BYTES
        assert await alone.offer(targets=targets) is None

    Alone().simulate(process)


@pytest.mark.parametrize("phase", PhaseCode)
def test_large_numbers(phase):
    """Of batches, of the epoch and of the batch in it; and in which phase a batch is counted."""
    before = {"epoch": 0xFFF0, "epoch_batch": 0x9000_0000, "batches_done": 0x7FFF_FFFF}

    async def process(alone):
        ctx, dut = alone.ctx, alone.dut
        assert await alone.offer() == 7
        assert ctx.get(dut.in_gp) == (phase == PhaseCode.GP)
        assert ctx.get(dut.batches_done_update.valid)
        assert ctx.get(dut.batches_done_update.value) == 0x8000_0000
        assert ctx.get(dut.epoch_update.valid) and ctx.get(dut.epoch_batch_update.valid)
        assert ctx.get(dut.epoch_update.value) == 0xFFF0
        assert ctx.get(dut.epoch_batch_update.value) == 0x9000_0001
        # The host has given inputs to so many batches, and to no more.
        ctx.set(dut.batches_done, 0x8000_0000)
        ctx.set(dut.batches_ready, 0x8000_0000)
        await ctx.tick().repeat(3)
        for _ in range(5):
            assert ctx.get(dut.waiting) and not ctx.get(dut.jump)
            await ctx.tick()
        ctx.set(dut.batches, 0x8000_0000)
        await ctx.tick()
        assert ctx.get(dut.complete)

    Alone(phase=phase, epoch_batches=0xFFFF_FFFF, **before).simulate(process)
