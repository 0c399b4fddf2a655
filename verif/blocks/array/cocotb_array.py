"""Streams tiles through the emitted PE array and compares every result with golden.

The job (environment variable ``ARRAY_JOB``, JSON): ``format``, ``rows``, ``columns``, ``tiles``,
``vectors`` (at most so many per tile).
"""

import json
import os

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from golden.arithmetic import dot_product as nx
from hw.array.pe_array import ArrayTiming
from hw.formats import FORMATS

from ..ports import Ports
from . import array_bench as bench


def schedule(job, timing, rng):
    """Tiles and, for every cycle, the inputs to set."""
    fmt = nx.format_by_name(job["format"])
    columns, width = job["columns"], fmt.width
    tiles, cycles = [], {}
    cycle, previous_start = 2, 0
    for index in range(job["tiles"]):
        tile = bench.random_tile(
            rng,
            fmt,
            rows=job["rows"],
            columns=columns,
            vectors=int(rng.integers(1, job["vectors"])),
            spread=int(rng.choice([1, 4, 12, 300])),
            specials=float(rng.choice([0, 0, 0.01])),
            enable=int(rng.integers(0, 1 << columns)),
        )
        tiles.append(tile)
        # One column per cycle, from the cycle in which the previous tile starts.
        load = max(previous_start, cycle - columns)
        for column in range(columns):
            cycles.setdefault(load + column, {}).update(
                w_valid=1,
                w_column=column,
                w_bank=index % 2,
                w_data=bench.pack(tile.w[:, column], width),
            )
        cycle = max(cycle, load + columns)
        previous_start = cycle
        for m in range(len(tile.x)):
            cycles.setdefault(cycle, {}).update(
                x_valid=1,
                weight_bank=index % 2,
                lane_enable=tile.enable,
                x=bench.pack(tile.x[m], width),
            )
            cycles.setdefault(cycle + timing.psum_offset, {}).update(
                psum=bench.pack(tile.psum[m], 32)
            )
            cycle += 1 if rng.random() < 0.9 else int(rng.integers(2, 5))
    return tiles, cycles, cycle + timing.latency + 2


@cocotb.test()
async def stream(dut):
    dut = Ports(dut)
    job = json.loads(os.environ["ARRAY_JOB"])
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    timing = ArrayTiming(fmt=FORMATS[job["format"]], rows=job["rows"])
    tiles, cycles, length = schedule(job, timing, rng)
    for name in ("x_valid", "w_valid", "x", "psum", "w_data", "w_column", "w_bank", "weight_bank"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 2, "step").start(start_high=True))
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = 0
    words, flags, presented, taken = [], [], [], []
    for cycle in range(length):
        inputs = cycles.get(cycle, {})
        for name, value in {"x_valid": 0, "w_valid": 0, **inputs}.items():
            getattr(dut, name).value = value
        if "x_valid" in inputs:
            presented.append(cycle)
        if int(dut.o_valid.value):
            taken.append(cycle)
            words.append(bench.unpack(int(dut.o.value), 32, job["columns"]))
            flags.append(int(dut.o_flags.value))
        await FallingEdge(dut.clk)
    assert [after - before for before, after in zip(presented, taken, strict=True)] == [
        timing.latency
    ] * len(presented)
    words, flags = np.array(words, dtype=np.uint32), np.array(flags)
    results, start = [], 0
    for tile in tiles:
        part = slice(start, start + len(tile.x))
        results.append((words[part], flags[part]))
        start = part.stop
    bench.compare(job["format"], tiles, results, f"seed {cocotb.RANDOM_SEED}")
    cocotb.log.info("%d vectors equal", start)
