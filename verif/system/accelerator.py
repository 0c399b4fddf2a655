"""The whole accelerator in Verilator: emit, build, run programs, get the memory back."""

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from rtl_gen.generate import accelerator_verilog, top_name
from verif.sim import runner
from verif.sim.axi_ram import AXI_RAM
from verif.sim.instrument import current
from verif.sim.technology import MODELS

from .batch_loop import BatchLoop
from .record import BASE, PROGRESS_FILE, BatchRecord, RunRecord

__all__ = ["BatchOutcome", "Outcome", "Run", "Simulator", "build", "run"]

#: Least size of the simulated memory: programs that fit share one build.
MINIMUM_MEMORY_BYTES = 1 << 20
#: Between two lines of a report.
_REPORT_SECONDS = 60.0

_SIMULATED_TOP = Path(__file__).parents[1] / "sim" / "rtl" / "adagp_sim.v"


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A compiled accelerator with ``memory_bytes`` of memory.

    Members
    -------
    emission_seconds : time to make the Verilog
    verilog_bytes : its size
    """

    config: AdaGPConfig
    design: runner.Build
    memory_bytes: int
    emission_seconds: float
    verilog_bytes: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One program: ``image`` is the whole memory window, with the program at offset ``program``, or
    None for what the run before has left. Then ``changes``, (offset, bytes) each, are written to
    the memory, and ``registers``.

    A program with BATCH needs ``loop``, whose registers are written as well, and ``batches``: for
    each batch the changes before it. ``parts``, (offset, size) each, are kept of the memory behind
    each batch; None: the whole window. Offsets are multiples of a beat."""

    image: bytes | None
    program_size: int
    program: int = 0
    changes: tuple = ()
    registers: dict = field(default_factory=dict)
    loop: BatchLoop | None = None
    batches: tuple = ()
    parts: tuple | None = None


@dataclass(frozen=True, kw_only=True)
class BatchOutcome:
    """One finished batch of a run.

    Members
    -------
    record : what the registers say
    parts : offset -> bytes of the memory window behind the batch, as the run asks for
    """

    record: BatchRecord
    parts: dict

    @property
    def memory(self) -> bytes:
        """What lies at the beginning of the window: all of it, unless the run names parts."""
        return self.parts[0]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One finished run.

    Members
    -------
    record : what the registers say
    memory : the memory window afterwards
    written : for each beat of it the simulation cycle of the last write, 0 if there was none
    stalled : for each beat how many cycles the main array had waited then for weights or the buffer
    batches : list of :class:`BatchOutcome`, of the batches that are done
    """

    record: RunRecord
    memory: bytes
    written: np.ndarray
    stalled: np.ndarray
    batches: list


@functools.cache
def _emit(config, sources):
    """Name, Verilog text and the seconds that making it took."""
    begin = time.perf_counter()
    text, _ports = accelerator_verilog(config, sources=sources)
    return top_name(config), text, time.perf_counter() - begin


def build(
    config: AdaGPConfig, *, memory_bytes: int = 0, waves: bool = False, text: str | None = None
) -> Simulator:
    """Emit what ``python -m rtl_gen`` writes and compile it with ``memory_bytes`` or more;
    ``text``: other Verilog of the same ports in its place, to see that something fails."""
    size = max(MINIMUM_MEMORY_BYTES, 1 << (memory_bytes - 1).bit_length())
    tool = current()
    name, seconds = top_name(config), 0.0
    if text is None:
        name, text, seconds = _emit(config, tool is not None)
    watching = tool.watch(config, text) if tool is not None else {}
    two = config.has_predictor_core
    design = runner.build(
        {f"{name}.v": text, **watching},
        toplevel="adagp_sim",
        files=[AXI_RAM, _SIMULATED_TOP, *MODELS[config.technology]],
        parameters={
            "DATA_WIDTH": config.axi_data_width,
            "ADDRESS_WIDTH": config.axi_address_width,
            "ID_WIDTH": axi_id_width(1 + len(config.cores)),
            "SIZE_BYTES": size,
        },
        defines={"ADAGP_TOP": name} | ({"ADAGP_TWO_CORES": 1} if two else {}),
        waves=waves,
    )
    return Simulator(
        config=config,
        design=design,
        memory_bytes=size,
        emission_seconds=seconds,
        verilog_bytes=len(text),
    )


def run(
    simulator: Simulator,
    runs: list[Run],
    *,
    seed: int = runner.DEFAULT_SEED,
    stall_share: float = 0.0,
    latency: int = 0,
    waves: bool = False,
    timeout_cycles: int = 50_000_000,
    base: int = BASE,
    directory: str | Path | None = None,
    timeout_seconds: float = 3600.0,
    report: Callable[[str], None] | None = None,
) -> tuple[list[Outcome], runner.Result]:
    """Run programs one after the other, without a reset in between.

    Parameters
    ----------
    stall_share, latency : pauses of the memory, see :meth:`verif.system.harness.Harness.stalls`
    timeout_cycles : of each run
    timeout_seconds : of the simulator
    report : called with a line of text every minute; needs ``directory``
    base : start of the memory window

    Raises
    ------
    SimulationFailed
        no interrupt came, or the simulation broke off. A run that the accelerator ends with an
        error is an outcome, not an exception.
    """
    largest = base + max(len(run.image) for run in runs if run.image is not None)
    if largest > simulator.memory_bytes:
        raise ValueError(f"{largest} bytes do not fit into {simulator.memory_bytes} of memory")
    images, entries, size = {}, [], 0

    def files(changes):
        contents = []
        for offset, data in changes:
            name = next((n for n, known in images.items() if known is data), None)
            if name is None:
                name = f"image{len(images)}.bin"
                images[name] = data
            contents.append((offset, name))
        return contents

    for item in runs:
        changes = list(item.changes)
        if item.image is not None:
            changes.insert(0, (0, item.image))
            size = len(item.image)
        if len(item.batches) != (item.loop.batches if item.loop else 0):
            raise ValueError(f"changes for {len(item.batches)} batches, but loop is {item.loop}")
        parts = [(0, size)] if item.parts is None else list(item.parts)
        entries.append(
            {
                "contents": files(changes),
                "size": size,
                "program": item.program,
                "program_size": item.program_size,
                "registers": item.registers | (item.loop.registers() if item.loop else {}),
                "batches": [files(batch) for batch in item.batches],
                "parts": parts,
            }
        )
    job = {
        "config": simulator.config.as_dict(),
        "base": base,
        "stall_share": stall_share,
        "latency": latency,
        "seed": seed,
        "timeout_cycles": timeout_cycles,
        "runs": entries,
    }
    with _reported(report, directory):
        result = runner.run(
            simulator.design,
            "verif.system.cocotb_accelerator",
            testcase="run_programs",
            seed=seed,
            files={"job.json": json.dumps(job), **images},
            waves=waves,
            directory=directory,
            timeout_seconds=timeout_seconds,
        )
    records = json.loads((result.directory / "records.json").read_text())
    outcomes = []
    for index, record in enumerate(records):
        written, stalled = np.load(result.directory / f"written{index}.npy").T
        outcomes.append(
            Outcome(
                record=RunRecord(**record),
                memory=(result.directory / f"memory{index}.bin").read_bytes(),
                written=written,
                stalled=stalled,
                batches=_batches(result.directory, index, entries[index]["parts"]),
            )
        )
    return outcomes, result


@contextlib.contextmanager
def _reported(report, directory) -> Iterator[None]:
    """While a simulation runs in ``directory``, ``report`` is told how many cycles are done."""
    if report is None:
        yield
        return
    if directory is None:
        raise ValueError("report needs a directory")
    file, end, begin = Path(directory) / PROGRESS_FILE, threading.Event(), time.perf_counter()
    file.unlink(missing_ok=True)

    def watch():
        said = ""
        while not end.wait(_REPORT_SECONDS):
            cycles = file.read_text() if file.exists() else ""
            if cycles.isdigit() and cycles != said:
                seconds = time.perf_counter() - begin
                report(f"simulation: {int(cycles):,} cycles, {seconds:.0f} s")
                said = cycles

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _batches(directory, index, parts):
    """What run ``index`` has left of its batches."""
    records = json.loads((directory / f"batches{index}.json").read_text())
    return [
        BatchOutcome(
            record=BatchRecord(**record),
            parts={
                offset: (directory / f"batch{index}.{number}.{part}.bin").read_bytes()
                for part, (offset, _) in enumerate(parts)
            },
        )
        for number, record in enumerate(records)
    ]
