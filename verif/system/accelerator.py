"""Programs on the whole accelerator in Verilator: run them, get the memory back."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from emulator.batch_loop import BatchLoop
from hw.config import AdaGPConfig
from hw.isa.batch import PhaseCode
from hw.isa.error_codes import ErrorCode
from hw.registers import host
from hw.registers.map import Unit, register_map
from verif.sim import runner

from .device import RtlDevice
from .record import BASE, BatchRecord, RunRecord
from .simulator import Simulator, build

__all__ = ["BatchOutcome", "Observer", "Outcome", "Run", "Simulator", "build", "observing", "run"]

#: Between two lines of a report.
_REPORT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One program: ``image`` is the whole memory window, with the program at offset ``program``, or
    None for what the run before has left. Then ``changes``, (offset, bytes) each, are written to
    the memory, and ``registers``.

    A program with BATCH needs ``loop``, whose registers are written as well, and ``batches``: for
    each batch the changes before it. ``batch_registers``: for each batch registers that are written
    while it waits, if there are any. ``parts``, (offset, size) each, are kept of the memory behind
    each batch; None: the whole window. Offsets are multiples of a beat."""

    image: bytes | None
    program_size: int
    program: int = 0
    changes: tuple = ()
    registers: dict = field(default_factory=dict)
    loop: BatchLoop | None = None
    batches: tuple = ()
    batch_registers: tuple = ()
    parts: tuple | None = None

    @classmethod
    def of(cls, case: Any) -> "Run":
        """A generated program: ``case`` has its commands, ``program``, and the whole memory window
        with these at offset 0, ``image``."""
        return cls(image=case.image, program_size=len(case.program))


#: Is told about finished runs: configuration, keyword arguments of :func:`run`, runs, outcomes.
Observer = Callable[[AdaGPConfig, dict[str, int], list[Run], list["Outcome"]], None]
_OBSERVER: ContextVar[tuple[Observer, int] | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observing(observer: Observer, *, latency: int) -> Iterator[None]:
    """Tell ``observer`` about every call of :func:`run` inside, in which memory has ``latency``
    whatever the caller asks for."""
    token = _OBSERVER.set((observer, latency))
    try:
        yield
    finally:
        _OBSERVER.reset(token)


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
    report: Callable[[str], None] | None = None,
) -> tuple[list[Outcome], runner.Result]:
    """Run programs one after the other, without a reset in between, through the calls of a
    :class:`~verif.system.device.RtlDevice`.

    Parameters
    ----------
    stall_share, latency : pauses of the memory, see :meth:`verif.system.harness.Harness.stalls`
    timeout_cycles : of each run, and of each batch
    base : start of the memory window
    report : called with a line of text every minute

    Raises
    ------
    SimulationFailed
        no interrupt came, or the simulation broke off. A run that the accelerator ends with an
        error is an outcome, not an exception.
    """
    largest = base + max(len(run.image) for run in runs if run.image is not None)
    if largest > simulator.memory_bytes:
        raise ValueError(f"{largest} bytes do not fit into {simulator.memory_bytes} of memory")
    for item in runs:
        if len(item.batches) != (item.loop.batches if item.loop else 0):
            raise ValueError(f"changes for {len(item.batches)} batches, but loop is {item.loop}")
    outcomes, size = [], 0
    if (observed := _OBSERVER.get()) is not None:
        latency = observed[1]
    device = RtlDevice(
        simulator.config, simulator.memory_bytes, simulator=simulator, seed=seed,
        stall_share=stall_share, latency=latency, waves=waves, directory=directory, kept=True,
    )  # fmt: skip
    if report is not None:
        device.progress = _Reporter(report)
    with contextlib.closing(device):
        for item in runs:
            size = size if item.image is None else len(item.image)
            try:
                outcomes.append(_OneRun(device, item, base, size, timeout_cycles).outcome())
            except TimeoutError as error:
                device.close()
                raise runner.SimulationFailed(str(error), device.result) from error
    if observed is not None:
        observed[0](simulator.config, {"latency": latency, "base": base}, runs, outcomes)
    return outcomes, device.result


class _Reporter:
    """Says how many cycles have been simulated, now and then."""

    def __init__(self, report):
        self._report, self._begin = report, time.perf_counter()
        self._said = self._begin

    def __call__(self, cycles):
        now = time.perf_counter()
        if now - self._said >= _REPORT_SECONDS:
            self._said = now
            self._report(f"simulation: {cycles:,} cycles, {now - self._begin:.0f} s")


class _OneRun:
    """A run of a program, and what is kept of it."""

    def __init__(self, device, item, base, size, timeout_cycles):
        self._device, self._item, self._base, self._size = device, item, base, size
        self._timeout = timeout_cycles
        self._map = register_map(device.config)
        self._before: dict[str, int] = {}
        self._batches: list[BatchOutcome] = []

    def outcome(self) -> Outcome:
        device, item = self._device, self._item
        changes = [] if item.image is None else [(0, item.image)]
        self._put([*changes, *item.changes])
        registers = item.registers | (item.loop.registers() if item.loop else {})
        for name, value in registers.items():
            device.write(name, value)
        for core in device.config.cores:
            device.write(f"CORE{core.index}_FLAGS", self._all(f"CORE{core.index}_FLAGS"))
        if item.batches:
            self._put(item.batches[0])
            device.write("BATCHES_READY", 1)
        values = host.start_values(
            self._map, base=self._base, size=self._size, program=item.program,
            program_size=item.program_size,
        )  # fmt: skip
        for name, value in values.items():
            device.write(name, value)
        begin = time.perf_counter()
        record = self._record(self._run(), time.perf_counter() - begin)
        written, stalled = device.last_writes(self._base, self._size).T
        return Outcome(
            record=record, memory=device.get(self._base, self._size), written=written,
            stalled=stalled, batches=self._batches,
        )  # fmt: skip

    def _put(self, changes):
        for offset, data in changes:
            self._device.put(self._base + offset, data)

    def _all(self, register):
        return sum(field.mask for field in self._map[register].fields)

    def _run(self):
        """Registers and causes of the interrupt at the end of the run."""
        item, causes = self._item, {}
        while True:
            values = self._device.wait(self._timeout)
            found = host.field_values(self._map, "INTERRUPT_STATUS", values["INTERRUPT_STATUS"])
            causes = {name: causes.get(name, 0) | value for name, value in found.items()}
            ended = not host.field_values(self._map, "STATUS", values["STATUS"])["BUSY"]
            if found.get("BATCH"):
                self._end_batch(values)
            if ended:
                break
            done = len(self._batches)
            if done < len(item.batches):
                self._put(item.batches[done])
                for name, value in (
                    item.batch_registers[done].items() if item.batch_registers else ()
                ):
                    self._device.write(name, value)
                self._device.write("BATCHES_READY", done + 1)
        if item.batches and not (causes["ERROR"] or causes["STOPPED"]):
            done = values["BATCHES_DONE"]
            if not len(self._batches) == done == len(item.batches):
                raise AssertionError(f"{done} batches are done, not {len(item.batches)}")
        return values, causes

    def _end_batch(self, values):
        """Keep what a batch has left."""
        device, item = self._device, self._item
        counters = host.without_waiting(host.counters(self._map, values))
        added = {name: value - self._before.get(name, 0) for name, value in counters.items()}
        self._before = counters
        record = BatchRecord(
            phase=PhaseCode(values["PHASE"]).name, epoch=values["EPOCH"],
            epoch_batch=values["EPOCH_BATCH"], cycles=added["CYCLES"], counters=added,
        )  # fmt: skip
        parts = [(0, self._size)] if item.parts is None else item.parts
        contents = {offset: device.get(self._base + offset, size) for offset, size in parts}
        self._batches.append(BatchOutcome(record=record, parts=contents))

    def _record(self, ended, seconds):
        values, causes = ended
        seen = self._device.observed()
        return RunRecord(
            done=bool(causes["DONE"]), error=bool(causes["ERROR"]),
            stopped=bool(causes["STOPPED"]), code=ErrorCode(values["ERROR_CODE"]).name,
            unit=Unit(values["ERROR_UNIT"]).name,
            address=values["ERROR_ADDRESS_LO"] | values["ERROR_ADDRESS_HI"] << 32,
            counters=host.counters(self._map, values),
            flags=[
                host.field_values(self._map, name, values[name])
                for name in (f"CORE{core.index}_FLAGS" for core in self._device.config.cores)
            ],
            start_cycle=seen["start_cycle"], cycles=seen["end_cycle"] - seen["start_cycle"],
            seconds=seconds, protocol_errors=seen["protocol_errors"],
            both_cores=seen["both_cores"],
        )  # fmt: skip
