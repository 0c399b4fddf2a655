"""The model's interface: cycles and counters of a program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.codegen.binary.command_bytes import Decoded, decode_commands
from emulator.batch_loop import BatchLoop
from golden.prediction.schedule import Phase
from hw.config import AdaGPConfig
from hw.isa.batch import EPOCH_BATCH_WIDTH, STAGES
from hw.isa.encoding import Opcode
from hw.isa.loops import LOOP_LEVELS
from hw.isa.packing import Placed, has_packed, unpack

from .kernels.simulate import SNAPSHOTS, simulate
from .plain import plain_kernel, plain_records
from .records import Machine, command_records, program_lines

__all__ = ["BASE", "Result", "Waits", "run"]

#: Cycles from the start until the schedule begins to look for the first batch's phase.
_LOCATED = 3
#: Where the memory window begins unless a caller says otherwise.
BASE = 0x3000


class Waits(ValueError):
    """A program that does not go on."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run takes.

    Members
    -------
    cycles : from start to interrupt
    counters : as the hardware counts them; those that depend on data (VECTOR_REJECTED) and on the
        host (BATCH_WAIT) are 0
    ends : for each command the cycle in which its last execution had given its tokens, 0 if it was
        never executed or has no queue
    batch_ends : for each batch the cycle in which it was counted
    simulated : cycles in which every block was looked at; the others belong to periods of loops, or
        only the array worked
    """

    cycles: int
    counters: dict[str, int]
    ends: list[int]
    batch_ends: list[int] = field(default_factory=list)
    simulated: int = 0

    @property
    def read_bytes(self) -> int:
        return self.counters["READ_BYTES"]

    @property
    def write_bytes(self) -> int:
        return self.counters["WRITE_BYTES"]


def run(
    commands: bytes | Sequence[tuple[Opcode, Mapping[str, int]]],
    config: AdaGPConfig,
    *,
    offset: int = 0,
    latency: int = 0,
    base: int = BASE,
    loop: BatchLoop | None = None,
    lists: Iterable[Sequence[bool]] = (),
    continues: bool = True,
    exact: bool = True,
    compiled: bool = True,
    patience: int = 1 << 20,
) -> Result:
    """Execute a program on the model.

    Parameters
    ----------
    commands : encoded or decoded, with HALT or BATCH at its end
    offset : of the first one in the memory window
    latency : cycles that memory adds to every burst, as the harness's memory does
    base : where the window begins; only its place in a block of a burst matters
    loop : the batches of a program with BATCH; inputs are there whenever a batch begins
    lists : for each ROWS that begins a list, of every row whether it is kept; a program comes to
        each once
    continues : loops that have settled are continued by their period; it changes no number
    exact : only where the state of the whole machine repeats. Otherwise also a loop whose last
        iterations took 8192 cycles or more each, the same but for 0.4 %, in their average
    compiled : otherwise in plain Python, which begins at once and is slow
    patience : after so many cycles in which nothing happens the program counts as waiting

    Raises
    ------
    Waits
        a program in which nothing happens any more
    """
    placed = None
    if isinstance(commands, bytes | bytearray):
        commands, placed = decoded(bytes(commands), offset)
    machine = Machine(config)
    records = command_records(commands, config, offset, base, lists, placed)
    machine.shared["f_lines"] = program_lines(records)
    state, counters = len(machine.memory), len(machine.counters)
    batches = _batches(loop)
    ends, batch_ends = np.zeros(len(records), np.int64), np.zeros(len(batches) + 1, np.int64)
    if loop is not None:
        machine.shared["schedule"] = _LOCATED + _schedule_cycles(loop, loop.epoch, new=True)
    records_of = plain_records if not compiled else lambda records: records
    cycles, simulated = (simulate if compiled else plain_kernel("simulate", "simulate"))(
        *map(
            records_of,
            (machine.shared, machine.cores, machine.loads, machine.stores, machine.sizes, records),
        ),
        batches, records_of(machine.counts), records_of(machine.core_counts), ends, batch_ends,
        latency, machine.memory, machine.counters, machine.times, machine.loop_place,
        machine.own_state, machine.own_counts,
        np.zeros((LOOP_LEVELS, SNAPSHOTS, state), np.int64),
        np.zeros((LOOP_LEVELS, SNAPSHOTS, counters), np.int64),
        np.zeros((LOOP_LEVELS, SNAPSHOTS, 3), np.int64),
        np.zeros(LOOP_LEVELS, np.int64), continues, exact, patience,
    )  # fmt: skip
    if cycles < 0:
        raise Waits(f"the program waits for ever: nothing happens after {simulated} cycles")
    return Result(
        cycles=int(cycles),
        counters=_counters(machine, config, int(cycles)),
        ends=ends.tolist(),
        batch_ends=batch_ends[: len(batches)].tolist(),
        simulated=int(simulated),
    )


def decoded(
    code: bytes, offset: int
) -> tuple[list[tuple[Opcode, dict[str, int]]], list[Placed] | None]:
    """The commands of a program that lies at ``offset``, and, if some are packed, their places."""
    if not has_packed(code):
        return decode_commands(code), None
    placed = unpack(code, offset)
    return list(Decoded(code, offset, placed=placed)), placed


def _batches(loop):
    """For each batch whether it is of Phase GP, and the cycles behind it until the next one's phase
    is known."""
    if loop is None:
        return np.zeros((0, 2), np.int64)
    rows = []
    for number, phase in enumerate(loop.phases()):
        epoch, place = divmod(loop.epoch_batch + number, loop.epoch_batches)
        ends = place == loop.epoch_batches - 1
        cycles = 1 + _schedule_cycles(loop, loop.epoch + epoch + 1, new=False) if ends else 0
        rows.append((phase is Phase.GP, cycles))
    return np.array(rows, np.int64)


def _schedule_cycles(loop, epoch, *, new):
    """Cycles in which the schedule looks for the phase of a batch
    (hw/control/batch_schedule.py): one to begin, one for warm-up and for each stage up to that of
    the epoch, and those for the place in its round."""
    left = epoch - loop.schedule.warm_up
    if left < 0:
        return 2
    for number, stage in enumerate(loop.schedule.ladder[:STAGES]):
        if stage.epochs is None or left < stage.epochs:
            return 3 + number + (EPOCH_BATCH_WIDTH if new else 1)
        left -= stage.epochs
    if len(loop.schedule.ladder) < STAGES:
        return 3 + len(loop.schedule.ladder) + (EPOCH_BATCH_WIDTH if new else 1)
    return 2 + STAGES


def _counters(machine, config, cycles):
    """By the hardware's names."""
    found = {name: int(machine.counts[0][name]) for name in machine.counts.dtype.names}
    found |= {"CYCLES": cycles, "READ_BYTES": found["READ_BEATS"] * config.beat_bytes}
    for core, record in enumerate(machine.core_counts):
        for name in record.dtype.names:
            found[f"CORE{core}_{name}"] = int(record[name])
    return found
