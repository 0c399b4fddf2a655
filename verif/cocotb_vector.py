"""Random commands through :class:`hw.vector.VectorEngine`, compared bit by bit with golden."""

import os
import random

import cocotb

from verif.vector_bench import configuration, random_command, start


@cocotb.test()
async def random_commands(_):
    """Commands of all kinds, with stalls of several densities on all ports."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    for number in range(int(os.environ.get("VECTOR_COMMANDS", "60"))):
        bench.busy_read, bench.busy_write = rng.choice(
            ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0, 0.9), (0.8, 0))
        )
        bench.machine.guard = rng.random() < 0.5
        bench.dut.guard.value = int(bench.machine.guard)
        await bench.execute(random_command(rng, bench.machine))
        assert len(bench.done) == number + 1, "more than one done"
