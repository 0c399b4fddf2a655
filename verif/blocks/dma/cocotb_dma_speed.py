"""Throughput of LOAD and STORE against axi_ram; prints beats, words and cycles."""

import json
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import make_config
from hw.isa.encoding import Opcode, pack_engine_fields
from verif.sim.axi_ram import SimMemory

config = make_config(**json.loads(os.environ["DMA_CONFIG"]))
WORD = config.cores[0].word_bytes
BEAT = config.beat_bytes
LATENCY = 20


async def _measure(dut, memory, name, commands):
    done = getattr(dut, f"{name}_done")
    payload, valid = getattr(dut, f"{name}__payload"), getattr(dut, f"{name}__valid")
    ready = getattr(dut, f"{name}__ready")
    target, before = int(done.value) + len(commands), memory.read_beats + memory.write_beats

    async def feed():
        for command in commands:
            payload.value = pack_engine_fields(Opcode.LOAD, command)
            valid.value = 1
            await RisingEdge(dut.clk)
            while not ready.value:
                await RisingEdge(dut.clk)
        valid.value = 0

    cocotb.start_soon(feed())
    cycles = 0
    while int(done.value) != target:
        await RisingEdge(dut.clk)
        cycles += 1
        assert cycles < 50_000, f"{name} does not end"
    assert not getattr(dut, f"{name}_failed").value
    return cycles, memory.read_beats + memory.write_beats - before


@cocotb.test()
async def throughput(dut):
    """Cycles of long runs, short runs and short commands stay within their bounds."""
    Clock(dut.clk, 10, unit="ns").start()
    memory = SimMemory(dut)
    memory.set_latency(read=LATENCY, write=LATENCY)
    for name in ("load", "store"):
        getattr(dut, f"{name}__valid").value = 0
        getattr(dut, f"{name}__payload").value = 0
    dut.stop.value = dut.stall.value = dut.access_write.value = 0
    dut.memory_base.value, dut.memory_size.value = 0, 1 << 18
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    await memory.load(0, random.Random(int(os.environ["ADAGP_SEED"])).randbytes(1 << 18))

    unit = WORD * BEAT // config.granule_bytes  # whole words and whole beats
    long = (1 << 15) // unit * unit
    block = config.axi_burst_beats * BEAT
    cases = {
        "one long run": [{"run_bytes": long, "run_count": 1}],
        "runs of one burst": [{"run_bytes": -(-block // WORD) * WORD, "run_count": 40}],
        "runs of one word": [{"run_bytes": WORD, "run_count": 400}],
        "commands of one burst": [{"run_bytes": -(-block // WORD) * WORD, "run_count": 1}] * 20,
    }
    for name in ("load", "store"):
        for case, shapes in cases.items():
            commands = [
                {
                    "buffer_address": 0,
                    "dram_address": 0,
                    "run_stride": -(-shape["run_bytes"] // block + 1) * block,
                    "row_bytes": shape["run_bytes"],
                    **shape,
                }
                for shape in shapes
            ]
            for command in commands:
                command["run_stride"] = -(-command["run_bytes"] // BEAT) * BEAT + BEAT
            cycles, beats = await _measure(dut, memory, name, commands)
            runs = sum(command["run_count"] for command in commands)
            words = sum(command["run_count"] * command["run_bytes"] // WORD for command in commands)
            ideal = max(beats, words)
            dut._log.info(
                "%s, %s: %d beats, %d words, %d runs, %d commands in %d cycles: "
                "%.3f beats/cycle, %.3f of the ideal, %.2f extra cycles per run",
                name, case, beats, words, runs, len(commands), cycles,
                beats / cycles, ideal / cycles, (cycles - ideal) / runs,
            )  # fmt: skip
            memory.check()
            # Latency once, two idle cycles per run, three per command.
            bound = ideal + 3 * LATENCY + 2 * runs + 3 * len(commands)
            if case in ("one long run", "runs of one burst"):
                assert cycles <= bound, f"{name}, {case}: {cycles} cycles, at most {bound}"
