"""Benchmark of the whole accelerator: utilisation, stalls, traffic, simulation speed."""

import json
import os
import platform
import time

import numpy as np
import torch
from rich import box
from rich.table import Table
from torch import nn

from cli.atomic_files import write_whole
from hw.config import make_config
from verif.networks.execute import execute
from verif.networks.workload import prepare
from verif.sim import environment

from . import emulator_bench, layer_bench

__all__ = ["LAYERS", "main", "measure", "metrics"]

#: Name -> (description, layer, shape of the input).
LAYERS = {
    "conv": (
        "3x3 convolution 64-64, 16x16, batch 4, padding 1",
        lambda: nn.Conv2d(64, 64, 3, padding=1),
        (4, 64, 16, 16),
    ),
    "matmul": (
        "512x512x512 matrix multiply",
        lambda: nn.Linear(512, 512, bias=False),
        (512, 512),
    ),
}


def measure(name: str, config, *, seed: int = 1) -> dict:
    """Run one layer; all figures of :func:`metrics`, and what is wrong as ``report``."""
    description, layer, shape = LAYERS[name]
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    images = rng.standard_normal(shape if len(shape) == 2 else (shape[0], *shape[2:], shape[1]))
    begin = time.perf_counter()
    workload = prepare(name, nn.Sequential(layer()), config, images, placement="main")
    prepared = time.perf_counter() - begin
    execution = execute(workload, repeat=1, seed=seed)
    simulator = execution.simulator
    return {
        "case": name,
        "description": description,
        "bit_exact": execution.passed,
        "report": execution.report(),
        **metrics(
            execution.counters,
            macs=workload.macs,
            pes=config.cores[0].pes,
        ),
        "estimated_cycles": workload.program.estimated_cycles,
        "counters": execution.counters,
        "emission_seconds": simulator.emission_seconds,
        "verilog_bytes": simulator.verilog_bytes,
        "build_seconds": None if simulator.design.cached else simulator.design.seconds,
        "golden_seconds": prepared,
        "simulation_cycles_per_second": execution.speed,
    }


def metrics(counters: dict, *, macs: int, pes: int) -> dict:
    """Utilisation of core 0 from its counters.

    ``utilisation`` is useful MACs over PEs times cycles from start to interrupt. It is the product
    of ``tiling``, useful MACs over PEs times vectors: the share that is left when channels do not
    fill rows and columns, and ``of_tiling``, vectors over cycles: the share of cycles in which a
    vector enters the array.
    """
    cycles, vectors = counters["CYCLES"], counters["CORE0_VECTORS"]
    return {
        "macs": macs,
        "pes": pes,
        "cycles": cycles,
        "vectors": vectors,
        "utilisation": macs / (pes * cycles),
        "tiling": macs / (pes * vectors),
        "of_tiling": vectors / cycles,
    }


def _table(results, config) -> Table:
    table = Table(box=box.SIMPLE, title=f"core 0 of {config.variant}, {config.operand_format}")
    table.add_column("")
    for result in results:
        table.add_column(result["case"], justify="right")

    def row(label, text):
        table.add_row(label, *(text(result) for result in results))

    row("layer", lambda r: r["description"])
    row("bit-exact", lambda r: "yes" if r["bit_exact"] else "[red]no[/]")
    row("useful MACs", lambda r: str(r["macs"]))
    row("PEs", lambda r: str(r["pes"]))
    row("cycles, start to interrupt", lambda r: str(r["cycles"]))
    row("utilisation", lambda r: f"{100 * r['utilisation']:.2f} %")
    row("tiling allows", lambda r: f"{100 * r['tiling']:.2f} %")
    row("tiling loss", lambda r: f"{100 * (1 - r['tiling']):.2f} %")
    row("utilisation / what tiling allows", lambda r: f"{100 * r['of_tiling']:.2f} %")
    for name in results[0]["counters"]:
        row(name, lambda r: str(r["counters"][name]))  # noqa: B023 (called at once)
    row("emission", lambda r: f"{r['emission_seconds']:.1f} s")
    row(
        "Verilator build",
        lambda r: "cached" if r["build_seconds"] is None else f"{r['build_seconds']:.1f} s",
    )
    row("simulation", lambda r: f"{r['simulation_cycles_per_second']:.0f} cycles/s")
    return table


def main(options, settings: dict, console) -> int:
    """The ``bench`` command; returns the exit status."""
    config = make_config(variant=options.variant, preset=options.preset, **settings)
    if options.case == "layers":
        return layer_bench.main(options, config, console)
    if options.case == "emulator":
        return emulator_bench.main(options, config, console)
    names = list(LAYERS) if options.case == "all" else [options.case]
    results = []
    for name in names:
        with console.status(f"{name}: building and simulating ..."):
            results.append(measure(name, config, seed=options.seed))
        if results[-1]["report"]:
            console.print(results[-1]["report"], markup=False, highlight=False)
    console.print(_table(results, config))
    if options.json:
        document = {
            "config": config.as_dict(),
            "seed": options.seed,
            "tools": environment.tool_versions(),
            "machine": {"processor": platform.machine(), "cpus": os.cpu_count()},
            "results": results,
        }
        write_whole(options.json, json.dumps(document, indent=2) + "\n")
    return 0 if all(result["bit_exact"] for result in results) else 1
