"""What the accelerator's inputs and memories do, cycle by cycle, recorded from the RTL.

A workload runs on the emitted Verilog in Verilator; inputs of the top, what memories deliver, and,
to compare with, outputs of the top and what memories are told are kept for every clock edge. That
is all that a gate-level simulation needs to repeat the run exactly.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from synth.common.errors import ToolError
from verif.sim.waves import variables

__all__ = ["WORKLOADS", "Recording", "read_vcd", "record"]

#: Tiles of the main array that the channels in and out of a convolution fill, pixels along an edge,
#: images. None: four channels each.
_SIZES = {"conv": (2, 10, 4), "tiny": (None, 4, 1)}
WORKLOADS = tuple(_SIZES)
_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  \\?adagp_\S+ +\S+ +\(\n.*?^  \);\n", re.MULTILINE | re.DOTALL)
_CONTROL = 0x040


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Values before every rising clock edge, from the first one on.

    Members
    -------
    values : path below the accelerator ("port", "core0.buffer.bank0.read_data") -> bits, uint8
        (edges, bits), least significant bit first
    first, last : edges of the command to start and of the interrupt
    reset : the first edge after the reset
    counters : of the run, from the registers
    workload : what ran
    """

    values: dict[str, np.ndarray]
    first: int
    last: int
    reset: int
    counters: dict
    workload: str

    @property
    def edges(self) -> int:
        return len(next(iter(self.values.values())))


def record(config, workload: str = "conv", *, seed: int = 1, progress=lambda text: None):
    """Run a workload on the RTL and return its :class:`Recording`.

    With two cores the batch is split among them, so that both arrays are at work. The results are
    compared with the golden model, bit for bit. Raises :class:`ToolError` when what simulation
    needs is not installed or the run fails.
    """
    try:
        import torch
        from torch import nn

        from verif.networks import execute
        from verif.networks.workload import prepare
        from verif.sim import runner
        from verif.system.accelerator import BASE, Run, Simulator, run
    except ImportError as error:
        raise ToolError(
            f"Activity comes from simulation, which needs the extra `verify`: {error}"
        ) from None
    inputs, outputs, size, batch = _size(config, workload)
    torch.manual_seed(seed)
    images = np.random.default_rng(seed).standard_normal((batch, size, size, inputs))
    model = nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU())
    placement = "split" if config.has_predictor_core and batch > 1 else "main"
    prepared = prepare(workload, model, config, images, placement=placement)
    progress("building the RTL simulation")
    try:
        design, bytes_ = _build(config, BASE + len(prepared.image))
        simulator = Simulator(
            config=config, design=design, memory_bytes=bytes_, emission_seconds=0, verilog_bytes=0
        )
        progress("simulating the RTL")
        outcomes, result = run(
            simulator,
            [Run(image=prepared.image, program_size=len(prepared.program.commands))],
            seed=seed,
            waves=True,
            timeout_cycles=20_000 + 40 * prepared.program.estimated_cycles,
        )
    except (runner.BuildFailed, runner.SimulationFailed) as error:
        raise ToolError(f"The RTL simulation failed: {str(error).splitlines()[0]}") from None
    comparison = execute.compare(prepared, outcomes[0], base=BASE, image=prepared.image)
    if not comparison.passed:
        raise ToolError(f"The RTL simulation is wrong: {comparison.report().splitlines()[0]}")
    progress("reading the waveform")
    recording = _recording(result.waveform)
    description = (
        f"3x3 convolution {inputs} to {outputs} channels with ReLU, {size} x {size} pixels, "
        f"batch {batch}, normal inputs"
    ) + (", the batch split among both cores" if placement == "split" else "")
    result.waveform.unlink()
    return replace(recording, counters=outcomes[0].record.counters, workload=description)


def _size(config, workload):
    """Channels in and out, pixels along an edge, images."""
    tiles, size, batch = _SIZES[workload]
    inputs, outputs = (4, 4) if tiles is None else (tiles * config.rows, tiles * config.columns)
    return inputs, outputs, size, batch


def _build(config, memory_bytes):
    from hw.bus.axi_mux import axi_id_width
    from rtl_gen.generate import top_name
    from synth.common.emitted_verilog import emitted_verilog
    from verif.sim import runner
    from verif.sim.axi_ram import AXI_RAM
    from verif.system.simulator import MINIMUM_MEMORY_BYTES, SIMULATED_TOP

    name, size = top_name(config), MINIMUM_MEMORY_BYTES
    while size < memory_bytes:
        size *= 2
    design = runner.build(
        {f"{name}.v": _traced(emitted_verilog(config))},
        toplevel="adagp_sim",
        files=[AXI_RAM, SIMULATED_TOP],
        parameters={
            "DATA_WIDTH": config.axi_data_width,
            "ADDRESS_WIDTH": config.axi_address_width,
            "ID_WIDTH": axi_id_width(1 + len(config.cores)),
            "SIZE_BYTES": size,
        },
        defines={"ADAGP_TOP": name} | ({"ADAGP_TWO_CORES": 1} if config.has_predictor_core else {}),
        waves=True,
    )
    return design, size


def _traced(verilog: str) -> str:
    """Verilog in which only the memories leave waves."""

    on, off = "/* verilator tracing_on */\n", "/* verilator tracing_off */\n"

    def mark(match):
        text = match[0]
        if text.startswith("module adagp_ram_"):
            return on + text + off
        # Without waves of an instance there are none of what is in it.
        return _INSTANCE.sub(lambda instance: on + instance[0] + off, text)

    return off + _MODULE.sub(mark, verilog) + on


def read_vcd(path: Path, wanted, *, clock: str) -> dict[str, np.ndarray]:
    """Bits of signals just before every rising edge of ``clock``.

    Parameters
    ----------
    wanted : function from a signal's full path to the name it is kept under, or None
    clock : full path

    Returns
    -------
    dict
        name -> uint8 (edges, bits), least significant bit first; unknown bits are 0
    """
    signals, clock_id = {}, None
    with open(path) as file:
        for variable in variables(file):
            if variable.path == clock:
                clock_id = variable.key
            name = wanted(variable.path)
            if name is not None:
                signals.setdefault(variable.key, (variable.width, []))[1].append(name)
        if clock_id is None:
            raise ToolError(f"{path} holds no signal {clock}")
        current = dict.fromkeys(signals, "0")
        rows = {key: [] for key in signals}
        level, pending, rose = "0", {}, False

        def end_of_time():
            # Values from before this moment are what a register sees at its edge.
            if rose:
                for key, row in rows.items():
                    row.append(current[key])
            current.update(pending)
            pending.clear()

        for line in file:
            first = line[0]
            if first == "#":
                end_of_time()
                rose = False
            elif first in "01xzXZ":
                key = line[1:].strip()
                if key == clock_id:
                    rose = first == "1" and level == "0"
                    level = first
                if key in rows:
                    pending[key] = first
            elif first == "b":
                value, key = line[1:].split()
                if key in rows:
                    pending[key] = value
        end_of_time()
    found = {}
    for key, (width, names) in signals.items():
        bits = _bits(rows[key], width)
        for name in names:
            found[name] = bits
    return found


def _bits(texts, width):
    """Binary numbers to bits; equal neighbours are converted once."""
    bits = np.zeros((len(texts), width), np.uint8)
    known = {}
    for index, text in enumerate(texts):
        row = known.get(text)
        if row is None:
            digits = np.frombuffer(text.encode()[::-1], np.uint8)
            row = known[text] = (digits == ord("1")).astype(np.uint8)
        bits[index, : len(row)] = row
    return bits


def _recording(path: Path) -> Recording:
    def wanted(full):
        match = re.search(r"\badagp_sim\.(.*)$", full)
        if match is None:
            return None
        name = match[1]
        if name.startswith("accelerator."):
            name = name.removeprefix("accelerator.")
            port = name.rpartition(".")[2]
            return name if port.startswith(("read_", "write_")) else None
        return name if re.fullmatch(r"(s_axil|m_axi|ram)_\w+|clk|rst|irq", name) else None

    values = read_vcd(path, wanted, clock=_clock(path))
    for name in [name for name in values if name.startswith("ram_")]:
        # The simulated memory drives these inputs, not the ports of the testbench.
        values[f"m_axi_{name.removeprefix('ram_')}"] = values.pop(name)
    start = (
        values["s_axil_awvalid"][:, 0]
        & values["s_axil_awready"][:, 0]
        & (_numbers(values["s_axil_awaddr"]) == _CONTROL)
    )
    starts = np.flatnonzero(start)
    ends = np.flatnonzero(values["irq"][starts[-1] :, 0]) if len(starts) else starts
    if not len(ends):
        raise ToolError(f"{path} holds no complete run")
    return Recording(
        values=values,
        first=int(starts[-1]),
        last=int(starts[-1] + ends[0]),
        reset=int(np.flatnonzero(values["rst"][:, 0])[-1]) + 1,
        counters={},
        workload="",
    )


def _clock(path):
    with open(path) as file:
        for variable in variables(file):
            if f".{variable.path}".endswith(".adagp_sim.clk"):
                return variable.path
    raise ToolError(f"{path} holds no clock")


def _numbers(bits):
    return (bits.astype(np.int64) << np.arange(bits.shape[1])).sum(axis=1)
