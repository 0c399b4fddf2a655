"""A lane and the engine of POST against golden.commands.post, bit for bit.

Covers: verif/blocks/engines/cocotb_post.py, verif/blocks/engines/post_bench.py,
verif/blocks/engines/engine_bench.py, verif/blocks/ports.py.
"""

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arithmetic.formats import FORMATS as GOLDEN_FORMATS
from golden.commands import post as gp
from hw.engines.post.engine import PostEngine
from hw.engines.post.lane import PostLane
from hw.formats import FORMATS
from tests.hw.conftest import engine_cases, run_engine


# Rows, columns, lanes, groups per cycle: more groups in a vector than in a word and the other way
# round, one group per word, one lane, an odd number of groups in a word and in a vector.
@engine_cases(
    ((12, 15, 3), "bf16"),
    ((5, 3, 1), "fp16"),
    ((12, 15, 3), "int8"),
    long=[((12, 15, 3, 1), "bf16"), ((4, 4, 4), "bf16"), ((8, 10, 2), "fp8_e4m3")],
)
def test_engine(size, operand_format, seed):
    run_engine(
        PostEngine, "post", size=size, operand_format=operand_format, seed=seed, POST_COMMANDS=50
    )


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("pool", ["max", "sum"])
@pytest.mark.parametrize("name", ["bf16", "fp16", "int8"])
def test_lane(name, pool, wide, rng):
    """Latency is as promised for every window size, results and flags are those of
    golden.commands.post."""
    fmt = FORMATS[name]
    lane = PostLane(fmt)
    is_sum = pool == "sum"
    scale = 0x3E800000 if fmt.is_float else 181 | 7 << 16
    seen, due, expected_flags, flags = [], {}, [0], [0]

    async def testbench(ctx):
        cycle = 0

        async def step():
            nonlocal cycle
            flags[0] |= ctx.get(lane.flags)
            if ctx.get(lane.o_valid):
                seen.append((cycle, ctx.get(lane.o)))
            await ctx.tick()
            cycle += 1

        ctx.set(lane.sum, is_sum)
        ctx.set(lane.wide, wide)
        ctx.set(lane.scale, scale)
        for _ in range(60):
            size = int(rng.integers(1, 6))
            active = rng.random() < 0.8
            relu = False
            window = rng.normal(size=size).astype(np.float32).view(np.uint32)
            if not fmt.is_float:
                window = rng.integers(-4000, 4000, size).astype(np.int32).view(np.uint32)
            for index, value in enumerate(window):
                ctx.set(lane.valid, 1)
                ctx.set(lane.i, int(value))
                ctx.set(lane.first, index == 0)
                ctx.set(lane.last, index == size - 1)
                ctx.set(lane.active, bool(active))
                arrival = cycle
                await step()
                ctx.set(lane.valid, 0)
                for _ in range((lane.SUM_INTERVAL if is_sum else 1) - 1 + int(rng.integers(2))):
                    await step()
            result, raised = gp.post(
                GOLDEN_FORMATS[name],
                window.reshape(1, -1, 1),
                relu=relu,
                pool=pool,
                scale=scale,
                wide=wide,
            )
            at = arrival + lane.latency(sum=is_sum and size > 1, wide=wide)
            due[at] = int(result.item()) if active else 0
            expected_flags[0] |= int(raised.item()) if active else 0
        for _ in range(lane.latency(sum=True) + 2):
            await step()

    simulator = Simulator(lane)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    mask = 0xFFFFFFFF if wide else (1 << fmt.width) - 1
    assert [(cycle, value & mask) for cycle, value in seen] == sorted(due.items())
    assert flags == expected_flags
