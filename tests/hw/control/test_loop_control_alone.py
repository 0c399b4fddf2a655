"""LoopControl alone, with numbers that no program reaches in a simulation.

Covers: hw/control/loop_control.py.
"""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.control.loop_control import MOVED, LoopControl
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from verif.blocks.control.loop_bench import load


def alone(process):
    """Simulate the block alone in a program of 1 MiB at the begin of the window."""
    dut = LoopControl()

    async def testbench(ctx):
        ctx.set(dut.program_size, 1 << 20)

        async def arrives(command):
            """The command is at the head; behind its first cycle."""
            ctx.set(dut.command, int.from_bytes(command, "little"))
            ctx.set(dut.arrives, 1)
            await ctx.tick()
            ctx.set(dut.arrives, 0)

        async def again(level):
            """A REPEAT that jumps."""
            await arrives(encode(Opcode.REPEAT, level=level, count=9, first=0))
            ctx.set(dut.offered, 1)
            while not ctx.get(dut.done):
                await ctx.tick()
            assert ctx.get(dut.jump)
            await ctx.tick()
            ctx.set(dut.offered, 0)

        await process(ctx, dut, arrives, again)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_large_counters_and_strides(seed):
    """Of the block alone, with numbers that no program reaches in a simulation."""
    rng = random.Random(seed)

    async def process(ctx, dut, arrives, again):
        async def execute(command):
            await arrives(command)
            ctx.set(dut.offered, command[0] == Opcode.REPEAT)
            for _ in range(200):
                done, jump = ctx.get(dut.done), ctx.get(dut.jump)
                if done or not (ctx.get(dut.wait) or ctx.get(dut.offered)):
                    break
                await ctx.tick()
            if done:
                await ctx.tick()
            ctx.set(dut.offered, 0)
            return jump

        for level in range(4):
            assert await execute(encode(Opcode.REPEAT, level=level, count=2, first=0))
        top = (1 << 32) - 1
        for value in (
            1,
            2,
            top - 1,
            top,
            *(rng.getrandbits(rng.randrange(1, 33)) for _ in range(9)),
        ):
            values = [value or 1, *(rng.getrandbits(32) or 1 for _ in range(3))]
            rng.shuffle(values)
            for level, counter in enumerate(values):
                ctx.set(dut.counters.data[level], counter)
            strides = [rng.choice((0, 8, -8, -(1 << 31), rng.getrandbits(31))) for _ in range(4)]
            start = rng.getrandbits(32)
            fields = {f"loop{level}_stride": stride for level, stride in enumerate(strides)}
            await execute(load(start, **fields))
            total = start + sum(a * b for a, b in zip(values, strides, strict=True))
            assert ctx.get(dut.add) == any(strides)
            if any(strides):
                assert ctx.get(dut.address) == total % (1 << 32), (values, strides)
            for level, count in (
                (level, values[level] + more) for level in range(4) for more in range(3)
            ):
                if 0 < count <= top:
                    jump = await execute(encode(Opcode.REPEAT, level=level, count=count, first=0))
                    assert jump == (values[level] + 1 < count), (values[level], count)
                    if jump:
                        assert ctx.get(dut.counters.data[level]) == values[level] + 1
                    if not jump:
                        assert await execute(encode(Opcode.REPEAT, level=level, count=2, first=0))
                    ctx.set(dut.counters.data[level], values[level])
            assert ctx.get(dut.open)
        # A program in the upper half of a window of 4 GiB.
        ctx.set(dut.program_address, 1 << 31)
        ctx.set(dut.counters.data[0], 0)
        first = (1 << 31) + 5 * COMMAND_BYTES
        assert await execute(encode(Opcode.REPEAT, level=0, count=2, first=first))
        assert ctx.get(dut.target) == first and not ctx.get(dut.bad_target)

    alone(process)


def test_how_long_an_address_is_added_up():
    """As the class says: a cycle, and as many more as the counters have bits. What an addition has
    left does not lengthen the next one."""

    async def process(ctx, dut, arrives, again):
        for _ in range(5):  # 101 in binary
            await again(0)
        for _ in range(2):  # 10
            await again(1)
        for strides, bits in (((8, 0), 3), ((8, 64), 5), ((0, 64), 2), ((0, 0), 0), ((8, 0), 3)):
            await arrives(load(64, loop0_stride=strides[0], loop1_stride=strides[1]))
            assert not ctx.get(dut.add)
            waits = 0
            while ctx.get(dut.wait):
                waits += 1
                await ctx.tick()
            assert waits == (1 + bits if bits else 0), strides
            assert ctx.get(dut.add) == bool(bits)
            assert ctx.get(dut.address) == 64 + 5 * strides[0] + 2 * strides[1]

    alone(process)


@pytest.mark.parametrize("opcode", [code for code in Opcode if code not in MOVED])
def test_other_commands_do_not_wait(opcode):
    """Whatever lies where a LOAD has its strides."""

    async def process(ctx, dut, arrives, again):
        for level in range(4):
            await again(level)
        await arrives(load(64, loop0_stride=8))
        while ctx.get(dut.wait):
            await ctx.tick()
        await arrives(bytes([opcode]) + b"\xff" * (COMMAND_BYTES - 1))
        assert not ctx.get(dut.wait) and not ctx.get(dut.add)

    alone(process)


@pytest.mark.parametrize("cycles", range(7))
def test_reset_while_an_address_is_added_up(cycles):
    """Nothing waits, nothing is added and no loop is open in the first cycle behind it."""
    dut, reset = LoopControl(), Signal()

    async def testbench(ctx):
        ctx.set(dut.program_size, 1 << 20)
        ctx.set(
            dut.command, int.from_bytes(encode(Opcode.REPEAT, level=0, count=2, first=0), "little")
        )
        ctx.set(dut.offered, 1)
        while not ctx.get(dut.done):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.offered, 0)
        ctx.set(dut.counters.data[0], 7)
        ctx.set(dut.command, int.from_bytes(load(64, loop0_stride=8), "little"))
        ctx.set(dut.arrives, 1)
        await ctx.tick()
        ctx.set(dut.arrives, 0)
        await ctx.tick().repeat(cycles) if cycles else None
        assert ctx.get(dut.wait) == (cycles < 4) and ctx.get(dut.open)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert not ctx.get(dut.wait) and not ctx.get(dut.add) and not ctx.get(dut.open)

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
