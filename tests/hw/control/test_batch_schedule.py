"""The phase of every batch, against golden's schedule.

Covers: hw/isa/batch.py.
"""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from emulator.batch_loop import PHASES, BatchLoop
from golden.prediction.schedule import Phase, ScheduleConfig, Stage
from hw.control.batch_schedule import BatchSchedule
from hw.isa.batch import EPOCH_BATCH_WIDTH, STAGES


class Walk:
    """A schedule with the registers beside it, played by Python."""

    def __init__(self, registers):
        self.registers = registers
        self.dut = BatchSchedule()

    def simulate(self, process, clear=None):
        simulator = Simulator(self.dut if clear is None else ResetInserter(clear)(self.dut))
        simulator.add_clock(1e-6)

        async def testbench(ctx):
            self.ctx = ctx
            for name, value in self.registers.items():
                if name != "BATCHES":
                    ctx.set(self._port(name), value)
            await process(self)

        simulator.add_testbench(testbench)
        simulator.run()

    def _port(self, name):
        port = getattr(self.dut, name.lower())
        return port.as_value() if name.startswith("STAGE") else port

    async def go(self, name, limit=60):
        """A pulse on ``name`` and what it takes; returns the cycles until the phase is known."""
        ctx, dut = self.ctx, self.dut
        assert ctx.get(dut.ready)
        position = ctx.get(dut.next_epoch), ctx.get(dut.next_epoch_batch)
        ctx.set(getattr(dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(dut, name), 0)
        if name == "advance":
            ctx.set(dut.epoch, position[0])
            ctx.set(dut.epoch_batch, position[1])
        cycles = 1
        while not ctx.get(dut.ready):
            await ctx.tick()
            cycles += 1
            assert cycles < limit, f"{name} does not end"
        # A batch takes longer than that.
        await ctx.tick()
        return cycles

    def phase(self):
        return PHASES[self.ctx.get(self.dut.phase)]


def random_schedule(rng):
    stages = [
        Stage(gp=rng.choice([0, 1, 2, 4, 7]), bp=rng.randint(1, 3), epochs=rng.randint(1, 3))
        for _ in range(rng.randint(0, STAGES))
    ]
    if stages and rng.random() < 0.5:
        stages[-1] = Stage(gp=stages[-1].gp, bp=stages[-1].bp, epochs=None)
    return ScheduleConfig(warm_up=rng.choice([0, 0, 1, 3]), ladder=tuple(stages))


@pytest.mark.parametrize("number", range(12))
def test_random_schedules(number, seed):
    """From the beginning, then from random positions, in the middle of rounds too."""
    rng = random.Random(f"{seed} {number}")
    schedule = random_schedule(rng)
    epoch_batches = rng.choice([1, 2, 5, 8, 13, 30])
    whole = BatchLoop(schedule=schedule, batches=20 * epoch_batches, epoch_batches=epoch_batches)

    async def process(walk):
        for begin in (0, *(rng.randrange(whole.batches) for _ in range(6))):
            loop = whole.after(begin)
            walk.ctx.set(walk.dut.epoch, loop.epoch)
            walk.ctx.set(walk.dut.epoch_batch, loop.epoch_batch)
            assert await walk.go("locate") <= 7 + EPOCH_BATCH_WIDTH
            for batch, expected in enumerate(loop.phases()[: 4 * epoch_batches + 40]):
                place = loop.after(batch)
                position = walk.ctx.get(walk.dut.epoch), walk.ctx.get(walk.dut.epoch_batch)
                assert position == (place.epoch, place.epoch_batch), f"batch {begin + batch}"
                assert walk.phase() is expected, f"{schedule}, batch {begin + batch}"
                ends = place.epoch_batch == epoch_batches - 1
                assert await walk.go("advance") <= (8 if ends else 1)

    Walk(whole.registers()).simulate(process)


def test_the_paper():
    """Ten epochs of warm-up, four of 4:1, 3:1, 2:1, then 1:1, of 391 batches."""
    whole = BatchLoop(schedule=ScheduleConfig(), batches=26 * 391, epoch_batches=391)
    expected = whole.phases()

    async def process(walk):
        seen = []
        for epoch in (0, 9, 10, 13, 14, 17, 18, 21, 22, 25):
            for batch in (0, 1, 2, 3, 4, 5, 199, 389, 390):
                walk.ctx.set(walk.dut.epoch, epoch)
                walk.ctx.set(walk.dut.epoch_batch, batch)
                await walk.go("locate")
                seen.append(walk.phase())
                assert seen[-1] is expected[391 * epoch + batch], (epoch, batch)
        assert set(seen) == set(Phase)

    Walk(whole.registers()).simulate(process)


def test_positions_at_their_limits():
    """The largest batch and epoch; a batch behind its epoch's end; what the host may write and
    golden refuses: stages and epochs without a batch."""

    async def process(walk):
        ctx, dut = walk.ctx, walk.dut
        for epoch, batch, following in (
            (0xFFFF, 0xFFFFFFFF, (0xFFFF, 0)),
            (0xFFFF, 0xFFFFFFFE, (0xFFFF, 0)),
            (0xFFFF, 3, (0xFFFF, 4)),
            (7, 9, (8, 0)),
            (7, 300, (8, 0)),
            (7, 0xFFFFFFFF, (8, 0)),
        ):
            ctx.set(dut.epoch, epoch)
            ctx.set(dut.epoch_batch, batch)
            await walk.go("locate")
            assert walk.phase() is (Phase.BP if batch % 255 == 254 else Phase.GP)
            await walk.go("advance")
            assert (ctx.get(dut.epoch), ctx.get(dut.epoch_batch)) == following
        ctx.set(dut.epoch_batches, 0)
        await ctx.tick()
        for _ in range(3):
            epoch = ctx.get(dut.epoch)
            await walk.go("advance")
            assert (ctx.get(dut.epoch), ctx.get(dut.epoch_batch)) == (epoch + 1, 0)
        ctx.set(dut.epoch_batches, 10)
        for gp, bp, expected in ((0, 0, Phase.BP), (3, 0, Phase.GP), (0, 200, Phase.BP)):
            ctx.set(dut.stage0, {"gp": gp, "bp": bp, "epochs": 0})
            await walk.go("locate")
            for _ in range(20):
                assert walk.phase() is expected
                await walk.go("advance")

    schedule = ScheduleConfig(warm_up=0, ladder=(Stage(gp=254, bp=1, epochs=None),))
    loop = BatchLoop(schedule=schedule, batches=0, epoch_batches=10)
    Walk(loop.registers()).simulate(process)


def test_large_numbers(rng):
    """Positions that need every bit, in rounds as long as they can be, by plain arithmetic."""
    warm_up, batches = 0x9000, 0xFFFF_FFFF
    stages = ((255, 255, 0x100), (255, 2, 0x3000), (1, 255, 0x2000), (200, 120, 0))

    def expected(epoch, batch):
        if epoch < warm_up:
            return Phase.WARM_UP
        epoch -= warm_up
        for gp, bp, epochs in stages:
            if not epochs or epoch < epochs:
                return Phase.GP if batch % (gp + bp) < gp else Phase.BP
            epoch -= epochs
        raise AssertionError(epoch)

    async def process(walk):
        ctx, dut = walk.ctx, walk.dut
        ctx.set(dut.warm_up, warm_up)
        ctx.set(dut.epoch_batches, batches)
        for number, (gp, bp, epochs) in enumerate(stages):
            ctx.set(getattr(dut, f"stage{number}"), {"gp": gp, "bp": bp, "epochs": epochs})
        begins = (0x100, 0x8FFF, 0x9000, 0x9100, 0xC100, 0xE100)
        places = [(epoch, batch) for epoch in begins for batch in (254, 508, 0x8000_0000 - 1)]
        places += [
            (int(epoch), int(batch))
            for epoch, batch in zip(
                rng.integers(0x8F00, 1 << 16, 20), rng.integers(1 << 30, batches - 1, 20)
            )
        ]
        for epoch, batch in places:
            ctx.set(dut.epoch, epoch)
            ctx.set(dut.epoch_batch, batch)
            await walk.go("locate")
            assert walk.phase() is expected(epoch, batch), (hex(epoch), hex(batch))
            for following in (batch + 1, batch + 2):
                await walk.go("advance")
                assert (ctx.get(dut.epoch), ctx.get(dut.epoch_batch)) == (epoch, following)
                assert walk.phase() is expected(epoch, following), (hex(epoch), hex(following))

    Walk({}).simulate(process)


def test_idle_after_a_reset():
    """Also while a position is located."""
    clear = Signal()
    loop = BatchLoop(schedule=ScheduleConfig(), batches=10, epoch_batches=10)

    async def process(walk):
        ctx, dut = walk.ctx, walk.dut
        ctx.set(dut.epoch, 12)
        ctx.set(dut.epoch_batch, 4)
        for moment in range(1, 40, 3):
            ctx.set(dut.locate, 1)
            await ctx.tick()
            ctx.set(dut.locate, 0)
            await ctx.tick().repeat(moment)
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)
            assert ctx.get(dut.ready), f"not ready after a reset in cycle {moment}"
            await walk.go("locate")
            assert walk.phase() is Phase.BP

    Walk(loop.registers()).simulate(process, clear)
