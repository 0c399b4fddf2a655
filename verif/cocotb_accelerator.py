"""Runs programs on the simulated accelerator, as the file ``job.json`` says."""

import json
from pathlib import Path

import cocotb
import numpy as np

from hw.config import AdaGPConfig
from verif.harness import Harness


@cocotb.test()
async def run_programs(dut):
    """Run every program of the job without a reset in between; leave memory and registers.

    Before run i its ``contents``, files and their offsets, are written into the memory window;
    ``memory<i>.bin`` is the window afterwards, ``written<i>.npy`` the cycle of the last write of
    every beat, and ``records.json`` holds a :class:`verif.harness.RunRecord` for each run.
    """
    job = json.loads(Path("job.json").read_text())
    harness = Harness(dut, AdaGPConfig(**job["config"]), base=job["base"])
    harness.stalls(job["stall_share"], latency=job["latency"], seed=job["seed"])
    await harness.reset()
    records = []
    for index, run in enumerate(job["runs"]):
        for offset, name in run["contents"]:
            await harness.load(Path(name).read_bytes(), offset)
        for name, value in run["registers"].items():
            await harness.driver.write(name, value)
        record = await harness.run(
            size=run["size"],
            program=run["program"],
            program_size=run["program_size"],
            timeout_cycles=job["timeout_cycles"],
        )
        data, written = await harness.dump(run["size"])
        Path(f"memory{index}.bin").write_bytes(data)
        np.save(f"written{index}.npy", written)
        records.append(record.as_dict())
        Path("records.json").write_text(json.dumps(records, indent=1))
