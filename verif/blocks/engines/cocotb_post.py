"""Random commands through ``PostEngine``, compared write by write with the emulator."""

import os
import random

import cocotb
import numpy as np

from hw.engines.post.lane import PostLane
from hw.isa.encoding import POST_LOOPS, Opcode, Pool, engine_layout
from hw.isa.error_codes import ErrorCode

from .engine_bench import configuration
from .post_bench import check, expected, random_command, start, write_cycles

#: Cycles of a command beyond its steps: acceptance, pipeline, last write.
OVERHEAD_CYCLES = 30


@cocotb.test()
async def random_commands(_):
    """Commands of all kinds, with stalls of several densities on both sides."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    for number in range(int(os.environ.get("POST_COMMANDS", "60"))):
        bench.busy_read, bench.busy_write = rng.choice(
            ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0, 0.9))
        )
        values = random_command(rng, config, core)
        await bench.issue(values)
        await bench.finish(50_000)
        wanted = expected(bench, values)
        check(core, [values], bench.take(), wanted)
        assert len(bench.done) == number + 1, "more than one done"
        assert not bench.errors, f"error {bench.errors}"


@cocotb.test()
async def back_to_back(_):
    """The next command waits at the port; each done belongs to the writes before it, and nothing
    of one command comes out in the next, wide and narrow ones in turns."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    pending = []
    for number in range(10):
        values = random_command(rng, config, core, limit=40, wide=number % 2 == 0)
        if values["wide"]:
            values["group_count"] = 1  # the shortest way from the last read to the last write
        await bench.issue(values)
        pending.append((values, expected(bench, values)))
    await bench.finish(5000)
    writes, flags = bench.take()
    wanted = [write for _, (part, _) in pending for write in part]
    wanted_flags = int(np.bitwise_or.reduce([part[1] for _, part in pending]))
    commands = [values for values, _ in pending]
    check(core, commands, (writes, flags), (wanted, wanted_flags))
    assert len(bench.done) == len(pending)


@cocotb.test()
async def throughput(_):
    """Without stalls a command takes its steps plus a constant."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    interval = PostLane(config.format).SUM_INTERVAL
    for _ in range(12):
        values = random_command(rng, config, core)
        values["wo_count"], values["wo_stride"] = 40, 0
        accepted = await bench.issue(values)
        done = await bench.finish(100_000)
        bench.take()
        steps = {f"{loop}_count": values[f"{loop}_count"] for loop in POST_LOOPS}
        steps["group_count"] = -(-values["group_count"] // core.post_groups)
        reads = int(np.prod(list(steps.values())))
        pace = interval if values["pool"] == Pool.SUM else 1
        writes, _ = write_cycles(core, values)
        limit = max(reads * pace, writes) + OVERHEAD_CYCLES
        assert done - accepted <= limit, f"{done - accepted} cycles, limit {limit}; {values}"
        assert done - accepted >= max((reads - 1) * pace, writes), "faster than possible"
    assert bench.stalls == 0, "stall event without a stall"


@cocotb.test()
async def stall_event(_):
    """A port that does not accept shows on ``stall``, cycle by cycle."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    values = random_command(rng, config, core)
    bench.busy_read = 1
    await bench.issue(values)
    await bench.watch_stalls(50, least=40)


@cocotb.test()
async def stop(_):
    """Stopped at any moment, the engine is idle at once, writes nothing, and works again."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_write=0.2)
    for moment in range(0, 60, 2):
        values = random_command(rng, config, core)
        values["n_count"], values["n_stride"] = 100, 0
        await bench.issue(values)
        await bench.stop(moment, cycles=40, quiet=["accumulator__valid"])
        bench.take()
        values = random_command(rng, config, core, limit=30)
        await bench.issue(values)
        await bench.finish(5000)
        check(core, [values], bench.take(), expected(bench, values))


@cocotb.test()
async def errors(_):
    """Each illegal field is reported once, without reads, writes or done; the next one works."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    cases = [(f"{loop}_count", 0) for loop in POST_LOOPS]
    cases += [("out_group", core.groups_per_word), ("out_group", 255)]
    if not config.format.is_float:
        cases += [("scale", 48 << 16), ("scale", 63 << 16)]
    for name, value in cases:
        good = random_command(rng, config, core, limit=30)
        good["wide"] = good["wide"] and name != "scale"
        # Built by hand: the encoder refuses illegal fields.
        word, place = bench.pack(good), engine_layout(Opcode.POST)[name]
        mask = (1 << place.width) - 1
        word = word & ~(mask << place.offset) | value << place.offset
        reads = bench.reads
        bench.dut.command__payload.value = word
        bench.dut.command__valid.value = 1
        await bench.step()
        bench.dut.command__valid.value = 0
        for _ in range(30):
            await bench.step()
        assert bench.errors == [(ErrorCode.ILLEGAL_FIELD, 0)], f"{name}={value}: {bench.errors}"
        assert not bench.done and bench.reads == reads, f"{name}={value} was executed"
        bench.errors.clear()
        await bench.issue(good)
        await bench.finish(2000)
        bench.done.clear()
        check(core, [good], bench.take(), expected(bench, good))
