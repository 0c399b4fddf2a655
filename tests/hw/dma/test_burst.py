"""BurstPlanner against the definition of its bursts, alone: boundaries, windows, pace, errors.

tests/hw/dma/test_dma.py has it inside the engines.
"""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.config import make_config
from hw.dma.burst import BurstPlanner
from hw.isa.error_codes import ErrorCode

#: (granule, beat) in bytes, bits of an address, beats of a burst.
CONFIGS = {
    (1, 8, 32, 5): make_config(
        variant="baseline", preset="tiny", operand_format="int8", rows=5, columns=5,
        axi_data_width=64, axi_address_width=32, axi_burst_beats=5,
    ),
    (8, 32, 64, 16): make_config(variant="max", axi_address_width=64),
    (8, 8, 40, 256): make_config(
        variant="baseline", preset="tiny", axi_address_width=40, axi_burst_beats=256
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("shape", CONFIGS, ids=str)
FIELDS = ("address", "length", "offset", "end", "first", "last", "final")


def plan(shape, base, size, command):
    """The bursts of a command, and (code, address) of its error or None."""
    granule, beat, width, burst_beats = shape
    top = 1 << width
    start, length = base + command["dram_address"], command["run_bytes"]
    sizes = (command[name] for name in ("run_bytes", "run_stride", "row_bytes"))
    if any(value % granule for value in (start, base, *sizes)):
        return [], (ErrorCode.UNALIGNED_ADDRESS, start % top)
    if not (length and command["run_count"] and command["row_bytes"]):
        return [], (ErrorCode.ILLEGAL_FIELD, start % top)
    block = beat << burst_beats.bit_length() - 1
    bursts = []
    for run in range(command["run_count"]):
        place = start + run * command["run_stride"]
        end = place + length
        if end > (base + size) // granule * granule or end > top:
            return bursts, (ErrorCode.MEMORY_WINDOW, place % top)
        at = place
        while at < end:
            stop = min((at // block + 1) * block, end)
            last = stop == end
            bursts.append(
                (
                    at // beat * beat, (stop - 1) // beat - at // beat, at % beat // granule,
                    (stop - 1) % beat // granule, at == place, last,
                    last and run == command["run_count"] - 1,
                )
            )  # fmt: skip
            at = stop
    return bursts, None


def command_of(**fields):
    names = ("dram_address", "run_bytes", "run_count", "run_stride", "row_bytes")
    return {"buffer_address": 0, **dict.fromkeys(names, 0), "run_count": 1, **fields}


class Bench:
    """A planner, somebody who sends commands and somebody who takes bursts.

    ``offered``, ``taken``: chances per cycle that a command is offered and that a burst is taken;
    ``late``: bursts are not taken before they are there.
    """

    def __init__(self, shape, seed, *, offered=1.0, taken=1.0, late=False):
        self.shape, self.rng = shape, random.Random(f"{seed} {shape}")
        self.dut, self.clear = BurstPlanner(CONFIGS[shape]), Signal()
        self.chances, self.late = (offered, taken), late

    def simulate(self, process):
        async def testbench(ctx):
            self.ctx = ctx
            await process(self)

        simulator = Simulator(ResetInserter(self.clear)(self.dut))
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()

    async def begin(self, base, size):
        """A reset, and a window."""
        ctx, dut = self.ctx, self.dut
        ctx.set(self.clear, 1)
        await ctx.tick()
        ctx.set(self.clear, 0)
        ctx.set(dut.memory_base, base)
        ctx.set(dut.memory_size, size)
        ctx.set(dut.i.valid, 0)
        self.sent, self.got, self.held = 0, [], None
        self.accepted_at, self.cycle = [], 0
        self.burst_at = []
        assert not ctx.get(dut.busy) and not ctx.get(dut.error.valid)
        await ctx.tick()  # the end of the window is known

    async def step(self, commands):
        ctx, dut = self.ctx, self.dut
        offered, taken = (self.rng.random() < chance for chance in self.chances)
        offers = self.sent < len(commands) and (ctx.get(dut.i.valid) or offered)
        ctx.set(dut.i.valid, offers)
        ctx.set(dut.i.payload, commands[self.sent] if offers else command_of(run_count=0))
        here = ctx.get(dut.o.valid)
        takes = taken and not (self.late and not here)
        ctx.set(dut.o.ready, takes)
        burst = tuple(ctx.get(getattr(dut.o.payload, name)) for name in FIELDS) if here else None
        assert self.held in (None, burst), "a burst on offer has changed"
        self.held = None if takes else burst
        if here and takes:
            self.got.append(burst)
            self.burst_at.append(self.cycle)
        if offers and ctx.get(dut.i.ready):
            self.sent += 1
            self.accepted_at.append(self.cycle)
        await ctx.tick()
        self.cycle += 1

    async def run(self, base, size, commands, *, limit=3000):
        """Commands from a reset on, of which only the last may be refused."""
        await self.begin(base, size)
        expected, error = [], None
        for command in commands:
            assert error is None
            bursts, error = plan(self.shape, base, size, command)
            expected += bursts
        ctx, dut = self.ctx, self.dut
        for _ in range(limit):
            over = len(self.got) == len(expected) and self.sent == len(commands)
            if error is None:
                assert not ctx.get(dut.error.valid), f"{commands}: an error"
                # Up to the last burst, and not in the cycle behind it.
                assert over or ctx.get(dut.busy) or not self.sent or not self._under_way(commands)
                if over:
                    assert not ctx.get(dut.busy)
                    break
            elif over and ctx.get(dut.error.valid):
                break
            await self.step(commands)
        else:
            raise AssertionError(f"{commands}: {len(self.got)} of {len(expected)} bursts")
        for _ in range(4):
            await self.step(commands)
        assert self.got == expected, f"{commands} at {base:#x}"
        assert ctx.get(dut.error.valid) == (error is not None)
        if error is not None:
            assert (ctx.get(dut.error.code), ctx.get(dut.error.address)) == error, commands

    def _under_way(self, commands):
        """Whether a command that was accepted lacks bursts."""
        ended = sum(burst[-1] for burst in self.got)
        return ended < self.sent

    def random_command(self, base, size):
        granule, rng = self.shape[0], self.rng
        length = granule * rng.choice([1, rng.randint(1, 40), rng.randint(1, 120)])
        stride = granule * rng.choice([0, rng.randint(0, 50), length // granule])
        count = rng.randint(1, 6)
        room = size - (count - 1) * stride - length
        start = rng.randint(0, max(room, 0) // granule) * granule
        if rng.random() < 0.3:  # to the very end
            start = max(room, 0) // granule * granule
        return command_of(
            dram_address=start, run_bytes=length, run_count=count, run_stride=stride,
            row_bytes=granule * rng.randint(1, 9),
        )  # fmt: skip


PACES = [
    {}, {"taken": 0.4}, {"offered": 0.2, "taken": 0.7}, {"taken": 0.5, "late": True}
]  # fmt: skip


@EACH
@pytest.mark.parametrize("pace", PACES, ids=["fast", "slow", "gaps", "late"])
def test_random_commands(shape, pace, seed):
    """Also some whose last run leaves the window, as the last ones."""
    bench = Bench(shape, seed, **pace)
    granule, _, width, _ = shape

    async def process(bench):
        rng = bench.rng
        for _ in range(3):
            size = rng.choice([6000, 9000 + rng.randrange(granule), 1 << 20])
            size = max(size, 2000 * granule)
            base = granule * rng.randrange(((1 << width) - size) // granule)
            commands = [bench.random_command(base, size) for _ in range(4)]
            if rng.random() < 0.5:
                away = {"run_count": 60, "run_stride": size // 30 // granule * granule}
                commands.append(bench.random_command(base, size) | away)
            while any(plan(shape, base, size, command)[1] for command in commands[:-1]):
                commands.pop(0)
            await bench.run(base, size, commands)

    bench.simulate(process)


@EACH
def test_latency_and_throughput(shape, seed):
    """The first burst 4 cycles behind the command, then one per cycle, across runs and commands."""
    granule, beat, *_ = shape
    bench = Bench(shape, seed)

    async def process(bench):
        long = command_of(run_bytes=2 * 4096, row_bytes=granule)
        short = command_of(
            dram_address=beat, run_bytes=granule, run_count=30, run_stride=beat, row_bytes=granule
        )
        for command in (long, short):
            await bench.run(0, 1 << 20, [command])
            assert bench.burst_at[0] - bench.accepted_at[0] == 4
            first, *_, last = bench.burst_at
            assert last - first == len(bench.got) - 1, command
        await bench.run(0, 1 << 20, [short, short, short])
        # A command is accepted when the last run of the one before has entered.
        assert [b - a for a, b in zip(bench.accepted_at, bench.accepted_at[1:], strict=False)] == [
            31, 31,
        ]  # fmt: skip

    bench.simulate(process)


@EACH
def test_refused_commands(shape, seed):
    """Each field alone, and what may be least."""
    granule, _, width, _ = shape
    top, bench = 1 << width, Bench(shape, seed)
    usual = command_of(
        dram_address=64, run_bytes=granule, run_stride=granule, row_bytes=granule, run_count=1
    )

    async def process(bench):
        for base in (0x3000, top - 0x4000):
            await bench.run(base, 1 << 20, [usual])
            for name in ("run_bytes", "run_count", "row_bytes"):
                await bench.run(base, 1 << 20, [usual, usual | {name: 0}])
            for name in ("dram_address", "run_bytes", "run_stride", "row_bytes"):
                for bit in range(granule.bit_length() - 1):
                    value = usual[name] + (1 << bit)
                    await bench.run(base, 1 << 20, [usual, usual | {name: value}])
            if granule > 1:
                await bench.run(base + granule // 2, 1 << 20, [usual])

    bench.simulate(process)


@EACH
def test_ends_of_window_and_address_space(shape, seed):
    """The last granule may be used, the one behind it not, wherever the window ends."""
    granule, _, width, _ = shape
    top, bench = 1 << width, Bench(shape, seed)
    end32 = (1 << 32) - granule

    async def process(bench):
        run = {"run_bytes": 4 * granule, "row_bytes": granule}
        late = {"run_count": 2, "run_stride": 4 * granule}
        for base, size in (
            (0x1000, 0x2000), (0x1000, 0x2000 + granule - 1), (top - 0x1000, 0x1000),
            (top - 0x1000, 1 << 32), (0, 1 << 32), (top - (1 << 31), 1 << 32),
        ):  # fmt: skip
            end = min(size // granule * granule, top - base, 1 << 32)
            for start, fields in (
                (end - 4 * granule, {}), (end - 3 * granule, {}), (end - granule, {}),
                (end - 8 * granule, late), (end - 7 * granule, late), (end - 4 * granule, late),
            ):  # fmt: skip
                await bench.run(base, size, [command_of(dram_address=start, **run, **fields)])
        # Bits at the top: of strides, extents, and of sums behind the end of the address space.
        half = {"run_count": 2, "run_stride": 1 << 31, "row_bytes": granule}
        await bench.run(0, 1 << 32, [command_of(run_bytes=granule, **half)])
        long = command_of(run_bytes=(1 << 31) + granule, row_bytes=granule)
        await bench.run(0, 1 << 20, [long])
        for base in (top - granule, top - 0x1000):
            for bytes_ in (2 * granule, 4 * granule, 0x2000, end32):
                command = command_of(dram_address=end32, run_bytes=bytes_, row_bytes=granule)
                await bench.run(base // 64 * 64, 1 << 32, [command])

    bench.simulate(process)


def test_many_runs(seed):
    """As many as a command can say: they are not over at once."""
    shape = (8, 8, 40, 256)
    bench = Bench(shape, seed)

    async def process(bench):
        for count in (0x8000 + 2, 0xFFFF):
            await bench.begin(0, 1 << 20)
            command = command_of(run_bytes=8, row_bytes=8, run_count=count)
            for _ in range(30):
                await bench.step([command])
            assert bench.sent == 1 and len(bench.got) == 26
            assert not any(burst[-1] for burst in bench.got) and bench.ctx.get(bench.dut.busy)

    bench.simulate(process)


@EACH
def test_halt(shape, seed):
    """A burst on offer stays, no other comes, no command is accepted."""
    granule, beat, *_ = shape
    bench = Bench(shape, seed, taken=0.5)
    command = command_of(run_bytes=granule, run_count=6, run_stride=2 * beat, row_bytes=granule)

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        for moment in range(1, 20, 3):
            await bench.begin(0x1000, 1 << 16)
            for _ in range(moment):
                await bench.step([command] * 2)
            ctx.set(dut.halt, 1)
            sent, most = bench.sent, len(bench.got) + ctx.get(dut.o.valid)
            for _ in range(12):
                await bench.step([command] * 2)
            assert (bench.sent, len(bench.got)) == (sent, most), moment
            assert not ctx.get(dut.o.valid)
            # It goes on where it was.
            ctx.set(dut.halt, 0)
            for _ in range(50):
                await bench.step([command] * 2)
            assert bench.got == 2 * plan(shape, 0x1000, 1 << 16, command)[0]

    bench.simulate(process)


def test_reset_at_any_time(seed):
    """Nothing is left of a command, a run, a burst or an error."""
    shape = (8, 32, 64, 16)
    bench = Bench(shape, seed, taken=0.4)

    async def process(bench):
        bad = command_of(dram_address=1 << 20, run_bytes=8, row_bytes=8)
        for moment in range(16):
            for last in (bad, command_of(run_bytes=8), bench.random_command(0, 1 << 16)):
                await bench.begin(0, 1 << 16)
                commands = [bench.random_command(0, 4096), last]
                for _ in range(moment):
                    await bench.step(commands)
                ctx, dut = bench.ctx, bench.dut
                await bench.begin(0x4000, 1 << 16)
                for _ in range(4):
                    assert not ctx.get(dut.busy) and not ctx.get(dut.error.valid)
                    await bench.step([])
                await bench.run(0x4000, 1 << 16, [bench.random_command(0x4000, 1 << 16)])

    bench.simulate(process)
