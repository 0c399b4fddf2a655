"""Runs programs on the simulated accelerator, as the file ``job.json`` says."""

import json
from pathlib import Path

import cocotb
import numpy as np

from hw.config import AdaGPConfig

from .harness import Harness


async def load(harness, contents):
    """Write files into the memory window: pairs of offset and name."""
    for offset, name in contents:
        await harness.load(Path(name).read_bytes(), offset)


@cocotb.test()
async def run_programs(dut):
    """Run every program of the job without a reset in between; leave memory and registers.

    Before run i its ``contents``, files and their offsets, are written into the memory window;
    ``memory<i>.bin`` is the window afterwards, ``written<i>.npy`` what
    :meth:`verif.system.harness.Harness.dump` tells of the last write of every beat, and
    ``records.json`` holds a :class:`verif.system.record.RunRecord` for each run.

    Before each batch of a run, ``batches[k]`` is written in the same way. Behind it,
    ``batch<i>.<k>.<n>.bin`` is part n of the window, of ``parts``; ``batches<i>.json`` holds a
    :class:`verif.system.record.BatchRecord` for each.
    """
    job = json.loads(Path("job.json").read_text())
    harness = Harness(dut, AdaGPConfig(**job["config"]), base=job["base"])
    harness.stalls(job["stall_share"], latency=job["latency"], seed=job["seed"])
    await harness.reset()
    records = []
    for index, run in enumerate(job["runs"]):
        await load(harness, run["contents"])
        for name, value in run["registers"].items():
            await harness.driver.write(name, value)
        batches = []

        async def between(done, batch, index=index, run=run, batches=batches):
            if batch is not None:
                batches.append(batch.as_dict())
                for number, (offset, size) in enumerate(run["parts"]):
                    data = await harness.dump_part(offset, size)
                    Path(f"batch{index}.{done - 1}.{number}.bin").write_bytes(data)
            if done < len(run["batches"]):
                await load(harness, run["batches"][done])

        record = await harness.run(
            size=run["size"],
            program=run["program"],
            program_size=run["program_size"],
            timeout_cycles=job["timeout_cycles"],
            batches=len(run["batches"]),
            between=between,
        )
        Path(f"batches{index}.json").write_text(json.dumps(batches, indent=1))
        data, written = await harness.dump(run["size"])
        Path(f"memory{index}.bin").write_bytes(data)
        np.save(f"written{index}.npy", written)
        records.append(record.as_dict())
        Path("records.json").write_text(json.dumps(records, indent=1))
