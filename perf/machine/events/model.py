"""The model's interface: cycles and counters of a program, from event to event."""

import numpy as np

from hw.config import AdaGPConfig
from hw.isa.encoding import SEMAPHORE_MASK_WIDTH, Opcode, queue_opcodes
from hw.isa.loops import LOOP_LEVELS
from hw.isa.packing import LINE_BYTES, WORD_BYTES
from perf.machine.kernels.event_state import CORE, QUEUE, RUN
from perf.machine.kernels.events import simulate_events
from perf.machine.kernels.queues import QUEUES
from perf.machine.model import BASE, Result, Waits, decoded
from perf.machine.plain import plain_kernel
from perf.machine.records import command_records, program_lines

from .work import Works

__all__ = ["COUNTERS", "Unknown", "run_events"]

#: Of a core, those that this model counts, and where.
COUNTERS = {
    "VECTORS": "vectors", "TILES": "tiles", "POST_BUSY": "busy_post", "VECTOR_BUSY": "busy_vector",
    "LOSS_BUSY": "busy_loss", "LOAD_BUSY": "busy_load", "STORE_BUSY": "busy_store",
    "POST_STALL": "stall_post", "VECTOR_STALL": "stall_vector",
}  # fmt: skip
#: Cycles from the start until a sequencer looks at the first command, beyond the memory's latency;
#: and from the last tokens to the interrupt.
_START, _END = 27, 8


class Unknown(ValueError):
    """A command that the model of events does not know."""


def run_events(commands: bytes, config: AdaGPConfig, *, works: Works, offset: int = 0) -> Result:
    """Execute a program of one batch.

    Parameters
    ----------
    commands : encoded, with HALT at their end
    works : what commands take alone, of this configuration; it also knows the memory's latency
    offset : of the first command in the memory window

    Returns the result as :func:`perf.machine.model.run` does, but without what the array waits for:
    of a core's counters there are only :data:`COUNTERS`. ``simulated`` is 0.

    Raises
    ------
    Waits
        a program in which nothing happens any more
    Unknown
        a program with ROWS or BATCH
    """
    stream, placed = decoded(bytes(commands), offset)
    for opcode, _ in stream:
        if opcode in (Opcode.ROWS, Opcode.BATCH):
            raise Unknown(f"the model of events knows no {opcode.name}")
    records = command_records(stream, config, offset, BASE, placed=placed)
    kinds, which = works.of(stream)
    queues = np.zeros(len(config.cores) * QUEUES, QUEUE)
    queues["head"] = queues["running"] = -1
    cores, run = np.zeros(len(config.cores), CORE), np.zeros(1, RUN)
    run["time"] = _START + works.latency
    turns = max(sum(len(queue_opcodes(core)) for core in config.cores), 2)
    sizes = np.array(
        [
            config.command_queue_depth, turns, works.latency, config.granule_bytes,
            LINE_BYTES // WORD_BYTES,
        ]
    )  # fmt: skip
    ends = np.zeros(len(records), np.int64)
    tokens, loop = np.zeros(SEMAPHORE_MASK_WIDTH, np.int64), np.zeros(LOOP_LEVELS, np.int64)
    state = [records, kinds, which, sizes, queues, cores, run]
    execute = simulate_events
    if not works.compiled:
        execute = plain_kernel("events", "simulate_events")
        state = [array.view(np.recarray) if array.dtype.names else array for array in state]
    cycles = execute(*state, tokens, loop, ends)
    if cycles < 0:
        raise Waits(f"the program waits for ever at command {run['place'][0]}")
    return Result(
        cycles=cycles + _END,
        counters=_counters(config, records, run[0], cores, cycles + _END),
        ends=ends.tolist(),
    )


def _counters(config, records, run, cores, cycles):
    """By the hardware's names."""
    beats = LINE_BYTES // config.beat_bytes
    lines = program_lines(records) + int(run["again"]) // (LINE_BYTES // WORD_BYTES)
    read = lines * beats + int(cores["read_beats"].sum())
    found = {
        "COMMANDS": int(run["executed"]), "CYCLES": cycles,
        "READ_BEATS": read, "READ_BYTES": read * config.beat_bytes,
        "WRITE_BEATS": int(cores["write_beats"].sum()),
        "WRITE_BYTES": int(cores["write_bytes"].sum()),
    }  # fmt: skip
    for number, core in enumerate(cores):
        for name, own in COUNTERS.items():
            found[f"CORE{number}_{name}"] = int(core[own])
    return found
