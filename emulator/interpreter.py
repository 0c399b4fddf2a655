"""Functional model of the command stream: queues and semaphores, in any order they allow.

The interpreter has no notion of time. At every step it picks at random, from a seed, one of the
things that hardware could do next: put a command into its queue, start the head of a queue, finish
a running command. Each seed also prefers some queues to others, so that over a few seeds every
queue is once far ahead and once far behind. What a command touches is watched from its start to
its end: another command that writes it meanwhile, or reads what is being written, is a race, and
an error even if the values come out right.

A BATCH comes when everything before it has finished, and sends the stream elsewhere. A REPEAT sends
it back as soon as it is the next command. A ROWS that picks does so, too; others wait like BATCH.

Weight tiles go from WEIGHTS to MATMUL one by one: a WEIGHTS ends when it has brought its last one,
of which at most one or two (depending on the seed) may wait to be taken; a MATMUL ends when it has
taken its last one.
"""

from dataclasses import dataclass

import numpy as np

from golden.prediction.schedule import Phase
from hw.isa.encoding import Opcode, queue_opcodes
from hw.isa.loops import LoopCounters
from hw.isa.rows import RowAction

from .machine import Access, FunctionalError, Machine
from .matmul import tile_count
from .program import CommandStream

__all__ = ["FunctionalError", "InterpreterResult", "interpret"]

#: Largest value of a semaphore.
SEMAPHORE_MAX = 15
_PREFERENCES = (0.02, 0.2, 1.0, 5.0, 50.0)


@dataclass(frozen=True)
class InterpreterResult:
    """``flags`` raised, ``semaphores`` left above zero (number -> tokens), ``commands`` executed,
    ``overlap``: most commands that ran at the same time, ``rejected``: for each core the tiles that
    the guard rejected, ``phases``: of the batches done."""

    flags: int
    semaphores: dict
    commands: int
    overlap: int
    rejected: tuple
    phases: tuple


@dataclass
class _Running:
    index: int
    opcode: Opcode
    fields: dict
    access: Access
    #: Weight tiles that it has to bring or to take before it can end.
    tiles: int = 0


class _Watch:
    """Counts readers and writers of every element of every memory."""

    def __init__(self, machine):
        self.counts = {
            name: (np.zeros(memory.entries, np.int16), np.zeros(memory.entries, np.int16))
            for name, memory in machine.memories.items()
        }

    def begin(self, access):
        for name, index in access.reads:
            if self.counts[name][1][index].any():
                return f"it reads {name} while another command writes there"
        for name, index in access.writes:
            if self.counts[name][0][index].any():
                return f"it writes {name} while another command reads there"
            if self.counts[name][1][index].any():
                return f"it writes {name} while another command writes there"
        self._add(access, 1)
        return None

    def end(self, access):
        self._add(access, -1)

    def _add(self, access, step):
        for kind, part in ((0, access.reads), (1, access.writes)):
            for name, index in part:
                np.add.at(self.counts[name][kind], index, step)


def interpret(
    config,
    commands,
    memory,
    *,
    seed=0,
    unwritten=(),
    coefficients=(0,) * 8,
    sample_seed=0,
    guard=False,
    program=0,
    loop=None,
    boundary=None,
):
    """Execute ``commands`` on ``memory``.

    Parameters
    ----------
    config : AdaGPConfig
    commands : bytes
        the command stream, up to HALT
    memory : bytearray
        the memory window, changed in place
    seed : int
        of the order
    unwritten : iterable of (offset, size)
        parts of ``memory`` that must be written before they are read
    coefficients : sequence of 8 numbers of 32 bits
        registers COEFFICIENT0 to 7, float32
    sample_seed : int
        register SAMPLE_SEED
    guard : bool
        register GUARD
    program : int
        offset of the commands in the memory window, from which BATCH and REPEAT count
    loop : :class:`~emulator.batch_loop.BatchLoop` or None
        registers for BATCH
    boundary : callable or None
        ``boundary(done, memory)`` is called between batches, ``done`` of which are done, first
        before batch 0 and last after the last one; it may change and keep what is in memory, and
        return the coefficients of the next batch, or None for those that there are

    Returns
    -------
    InterpreterResult

    Raises
    ------
    FunctionalError
        for an undefined command, an address out of range or unaligned, something read that was
        never written, a race, a semaphore above 15, a deadlock, a missing HALT, a BATCH without
        a loop, with ``first`` behind another BATCH or inside a REPEAT's loop, or one of the two to
        a place outside the program.
    """
    machine = Machine(
        config, memory, unwritten,
        coefficients=coefficients, sample_seed=sample_seed, guard=guard,
    )  # fmt: skip
    between = boundary and (lambda done: boundary(done, memory))
    return _Interpreter(machine, commands, seed, program, loop, between).run()


class _Interpreter:
    def __init__(self, machine, commands, seed, program, loop, boundary):
        self.config = config = machine.config
        self.rows = [core.rows for core in config.cores]
        self.commands = CommandStream(machine, commands, program)
        self.loop, self.boundary = loop, boundary
        self.machine = machine
        self.watch = _Watch(self.machine)
        self.random = np.random.default_rng(seed)
        self.preference = {}
        self.sample_seed = machine.sample_seed
        self.semaphores = [0] * config.semaphore_count
        self.queues: dict[tuple[int, Opcode], list] = {
            (core.index, opcode): [] for core in config.cores for opcode in queue_opcodes(core)
        }
        self.running = {}
        #: For each core the tiles that have been brought and not taken, and how many may be.
        self.tiles = [0] * len(self.rows)
        self.tile_limit = 1 + int(self.random.integers(2))
        self.position = 0
        self.executed = 0
        self.halted = False
        self.looping = False  # a BATCH has been executed
        self.counters = LoopCounters()
        self.phases = []
        self.overlap = 0

    def run(self):
        while not (self.halted and not self.running and not any(self.queues.values())):
            choices = list(self._choices())
            if not choices:
                waiting = [f"{q[0][0]} ({k[1].name})" for k, q in self.queues.items() if q]
                waiting += [f"{r.index} ({r.opcode.name}, {r.tiles} weight tiles to go)"
                            for r in self.running.values()]  # fmt: skip
                raise FunctionalError(f"deadlock: waiting commands {', '.join(waiting)}")
            weights = np.array([self._weight(choice) for choice in choices])
            pick = self.random.choice(len(choices), p=weights / weights.sum())
            kind, key = choices[pick]
            getattr(self, f"_{kind}")(key)
        self._no_tiles()
        left = {number: count for number, count in enumerate(self.semaphores) if count}
        return InterpreterResult(
            self.machine.flags,
            left,
            self.executed,
            self.overlap,
            self.machine.rejected,
            tuple(self.phases),
        )

    def _no_tiles(self):
        if any(self.tiles):
            raise FunctionalError("deadlock: weight tiles are left that no MATMUL takes")

    def _weight(self, choice):
        if choice not in self.preference:
            self.preference[choice] = self.random.choice(_PREFERENCES)
        return self.preference[choice]

    def _choices(self):
        """What could happen next, as (kind, queue)."""
        if not self.halted:
            opcode, fields = self.commands[self.position]
            key = (fields["core"], opcode)
            if opcode is Opcode.HALT:
                yield "dispatch", None
            elif opcode is Opcode.BATCH:
                if not self.running and not any(self.queues.values()):
                    yield "batch", None
            elif opcode is Opcode.REPEAT:
                yield "repeat", None
            elif opcode is Opcode.ROWS:
                idle = not self.running and not any(self.queues.values())
                if idle or fields["action"] == RowAction.PICK:
                    yield "rows", None
            elif len(self.queues[key]) < self.config.command_queue_depth:
                yield "dispatch", key
        for key, queue in self.queues.items():
            if key in self.running:
                if self._can_go_on(self.running[key]):
                    yield "finish", key
            elif queue and all(self.semaphores[n] for n in _bits(queue[0][2]["wait"])):
                yield "start", key

    def _can_go_on(self, running):
        """Whether ``running`` can end, or at least bring or take weight tiles."""
        if not running.tiles:
            return True
        waiting = self.tiles[running.fields["core"]]
        return waiting > 0 if running.opcode is Opcode.MATMUL else waiting < self.tile_limit

    def _move_tiles(self, running):
        """Bring or take as many weight tiles as possible; whether that was all."""
        core = running.fields["core"]
        if running.opcode is Opcode.MATMUL:
            count = min(running.tiles, self.tiles[core])
            self.tiles[core] -= count
        else:
            count = min(running.tiles, self.tile_limit - self.tiles[core])
            self.tiles[core] += count
        running.tiles -= count
        return not running.tiles

    def _dispatch(self, key):
        opcode, fields = self.commands[self.position]
        if key is None:
            self.halted = True
        else:
            if opcode in (Opcode.LOAD, Opcode.STORE):
                fields = {**fields, "dram_address": self.counters.address(fields)}
            self.queues[key].append((self.position, opcode, fields))
        self.position += 1
        self.executed += 1

    def _repeat(self, _key):
        """The loop in front of this REPEAT has been dispatched once more."""
        self.position = self.commands.repeat(self.position, self.counters)
        self.executed += 1

    def _rows(self, _key):
        self.position = self.commands.rows(self.position, self.counters, self.machine.rows)
        self.executed += 1

    def _batch(self, _key):
        """Everything before this BATCH has finished."""
        _, fields = self.commands[self.position]
        self._no_tiles()
        if self.loop is None:
            raise FunctionalError(f"command {self.position} (BATCH): the registers say no loop")
        places = self.commands.batch(self.position, self.counters, begun=self.looping)
        self.looping = True
        phases = self.loop.phases()
        if not fields["first"]:
            self.phases.append(phases[len(self.phases)])
        done = len(self.phases)
        self.machine.sample_seed = (self.sample_seed + done) & 0xFFFFFFFF
        if self.boundary and (coefficients := self.boundary(done)) is not None:
            self.machine.coefficients[:] = coefficients
        self.executed += 1
        if done == len(phases):
            self.halted = True
        else:
            kind = "gp" if phases[done] is Phase.GP else "bp"
            self.position = places[f"{kind}_{'odd' if done % 2 else 'even'}"]

    def _start(self, key):
        index, opcode, fields = self.queues[key].pop(0)
        for number in _bits(fields["wait"]):
            self.semaphores[number] -= 1
        try:
            access = self.machine.access(opcode, fields)
        except FunctionalError as error:
            raise FunctionalError(f"command {index} ({opcode.name}): {error}") from error
        race = self.watch.begin(access)
        if race:
            others = ", ".join(f"{r.index} ({r.opcode.name})" for r in self.running.values())
            raise FunctionalError(f"command {index} ({opcode.name}): {race}; running: {others}")
        self.running[key] = running = _Running(index, opcode, fields, access)
        if opcode in (Opcode.WEIGHTS, Opcode.MATMUL):
            running.tiles = tile_count(opcode, fields, self.rows[fields["core"]])
        if opcode is Opcode.WEIGHTS:
            # Nothing that it reads may change until it ends.
            self._execute(running)
        self.overlap = max(self.overlap, len(self.running))

    def _execute(self, command):
        try:
            self.machine.execute(command.opcode, command.fields)
        except FunctionalError as error:
            raise FunctionalError(
                f"command {command.index} ({command.opcode.name}): {error}"
            ) from error

    def _finish(self, key):
        done = self.running[key]
        if done.tiles and not self._move_tiles(done):
            return
        del self.running[key]
        if done.opcode is not Opcode.WEIGHTS:
            self._execute(done)
        self.watch.end(done.access)
        for number in _bits(done.fields["signal"]):
            self.semaphores[number] += 1
            if self.semaphores[number] > SEMAPHORE_MAX:
                raise FunctionalError(
                    f"command {done.index} ({done.opcode.name}): semaphore {number} exceeds "
                    f"{SEMAPHORE_MAX}"
                )


def _bits(mask):
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
