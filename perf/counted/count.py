"""A cell is counted: its network compiled, its command streams run on the model of the machine."""

import functools
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from cli.source_state import source_state
from compiler.adagp.program import AdaGPProgram
from compiler.adagp.tensors import PredictorShape
from compiler.errors import CompileError
from compiler.networks.command import compiled
from hw.config import AdaGPConfig
from perf.machine.events.work import Works
from perf.machine.layers import batches_of, time_batch

from .cells import Cell

__all__ = ["MODELS", "BatchCount", "Count", "count", "model_state"]

#: From cycle to cycle, every block's state; from event to event, whole commands.
MODELS = ("cycles", "events")


@functools.cache
def model_state() -> str:
    """The state of the project as far as counts depend on it, or "" if it is not known; that of the
    first call, since a process goes on with what it has loaded."""
    return source_state("hw", "compiler", "algorithms/networks", "perf/machine")


@dataclass(frozen=True, kw_only=True)
class BatchCount:
    """A batch, as :class:`perf.machine.Result` has it.

    Members
    -------
    cycles : from start to interrupt
    counters : as the hardware counts them: engines at work, stalls by cause, bytes, commands
    layers : layer -> phase -> cycles, as :class:`perf.machine.layers.BatchCycles` has them
    """

    cycles: int
    counters: dict[str, int]
    layers: dict[str, dict[str, int]]


@dataclass(frozen=True, kw_only=True)
class Count:
    """What has been counted for a cell.

    Members
    -------
    cell : which
    batches : by name: "bp" and, with predictions, "gp"; empty where there is no program
    reason : why there is none
    stream_bytes, memory_bytes : of the commands of a run, of DRAM with everything
    seconds : of the compiler, of the model; of processor time
    model : of :data:`MODELS`, the one that has counted; that of events has no counters of why
        the array waits
    configuration : digest of the machine's configuration
    state : of the project, see :func:`model_state`
    """

    cell: Cell
    batches: dict[str, BatchCount] = field(default_factory=dict)
    reason: str | None = None
    stream_bytes: int = 0
    memory_bytes: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    model: str = MODELS[0]
    configuration: str = ""
    state: str = ""

    @property
    def bp(self) -> BatchCount:
        """The batch with backpropagation: of Phase BP where there are predictions."""
        return self.batches["bp"]

    @property
    def gp(self) -> BatchCount:
        """The batch of Phase GP; KeyError where there are no predictions."""
        return self.batches["gp"]

    def to_json(self) -> str:
        """One line."""
        values = asdict(self)
        return json.dumps(values.pop("cell") | values, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> "Count":
        """What :meth:`to_json` wrote; raises ValueError, TypeError or KeyError."""
        values: dict[str, Any] = json.loads(line)
        own = {part.name: values.pop(part.name) for part in fields(Cell) if part.name in values}
        own["settings"] = tuple(own.get("settings", ()))
        batches = {name: BatchCount(**found) for name, found in values.pop("batches").items()}
        values["seconds"] = tuple(values["seconds"])
        return cls(cell=Cell(**own), batches=batches, **values)


@functools.cache
def _works(config: AdaGPConfig, latency: int, plain: bool) -> Works:
    """For all networks that this process counts on a machine: many of their commands are alike."""
    return Works(config, latency, compiled=not plain)


def count(
    cell: Cell, latencies: Sequence[int], *, model: str = MODELS[0], plain: bool = False
) -> list[Count]:
    """Count ``cell`` with each of some latencies of the memory; the program is the same.

    ``model``: of :data:`MODELS`. ``plain``: the models in plain Python, for networks that are
    smaller than compiling it takes. A network that has no program on this machine has a ``reason``;
    so have those that take more memory than there is.
    """
    cells = [replace(cell, latency=latency) for latency in latencies]
    config, state = cell.config, model_state()
    begin = time.process_time()
    try:
        predictor = PredictorShape(channels=cell.channels, map_size=cell.map_size)
        program = compiled(cell.options, config, predictor)
    except (CompileError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        spent = (round(time.process_time() - begin, 1), 0.0)
        return [
            Count(
                cell=each,
                reason=reason,
                seconds=spent,
                model=model,
                configuration=config.hash,
                state=state,
            )
            for each in cells
        ]
    compiling = time.process_time() - begin
    run = program.loop if isinstance(program, AdaGPProgram) else program
    found = []
    for each in cells:
        begin = time.process_time()
        batches = {}
        works = _works(config, each.latency, plain) if model == "events" else None
        for name, batch in batches_of(program).items():
            timed = time_batch(
                batch, latency=each.latency, exact=False, compiled=not plain, works=works
            )
            batches[name] = BatchCount(
                cycles=timed.result.cycles, counters=timed.result.counters, layers=timed.layers
            )
        modelled = time.process_time() - begin
        found.append(
            Count(
                cell=each, batches=batches, stream_bytes=len(run.commands),
                memory_bytes=program.memory_size,
                seconds=(round(compiling, 1), round(modelled, 1)), model=model,
                configuration=config.hash, state=state,
            )
        )  # fmt: skip
    return found
