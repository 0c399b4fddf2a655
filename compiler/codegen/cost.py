"""How long a command stream takes: a timing estimate of the queues of every core.

Good for choosing between plans. It knows queues, semaphores, the dispatcher, burst and word
rates, and nothing of conflicts between blocks. The hardware's own counters are the truth.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hw.config import AdaGPConfig, CoreConfig
from hw.control.command_queue import CHUNK_WIDTH
from hw.isa.encoding import (
    COMMAND_BYTES,
    COMMAND_WIDTH,
    MATMUL_LOOPS,
    POST_LOOPS,
    QUEUE_OPCODES,
    Opcode,
    with_defaults,
)
from hw.isa.execution import dispatched
from hw.isa.loss import Loss
from hw.isa.vector import VECTOR_LOOPS, VECTOR_STREAMS, Operation, Source

__all__ = [
    "STREAM_SOURCE", "STREAM_STRIDES", "SUM_CYCLES", "Command", "Fields", "Timeline", "bits",
    "duration", "estimate", "executed", "executed_count", "executions", "k_tiles",
    "matmul_shape", "matmul_vectors", "post_cycles", "tile_cycles", "transfer_words",
    "vector_moves", "vector_words",
]  # fmt: skip

#: Fields of a command by name, without the header.
Fields = dict[str, int]

#: Cycles from a request to its first beat, and for a command to take effect.
MEMORY_LATENCY_CYCLES = 40
MATMUL_LATENCY_CYCLES = 24
#: Cycles of a POST beyond its reads or writes: the next one begins behind its last write.
POST_CYCLES = 19
#: Least cycles between two K tiles: for a tile's weights beyond one per column, and for the sums.
WEIGHT_CYCLES = 5
#: Cycles from the first word of a WEIGHTS to its first column, beyond one per word.
WEIGHTS_LATENCY_CYCLES = 8
SUM_CYCLES = 20
#: Cycles that VECTOR needs beyond one per group, a reduction for every word beyond those, a
#: division or an exponential for every channel.
VECTOR_CYCLES, REDUCTION_CYCLES, DIVISION_CYCLES, EXPONENTIAL_CYCLES = 36, 33, 31, 68
#: LOSS (docs/loss.md): cycles of a slot; numbers of a row of cross-entropy at least, and rows that
#: it is late by; slots at the end, and those of the value row.
LOSS_SLOT_CYCLES, LOSS_LEAST_NUMBERS, LOSS_LATE_ROWS = 8, 10, 3
LOSS_END_SLOTS, LOSS_VALUE_SLOTS = 18, 14
#: Cycles of a group of a VECTOR that samples.
SAMPLE_CYCLES = 8
#: Cycles a queue needs between two commands.
COMMAND_CYCLES = 4
START_CYCLES = 100


@dataclass(slots=True)
class Command:
    """A command before it is encoded; ``wait`` and ``signal`` are masks, ``fields`` the rest, those
    with defaults included."""

    opcode: Opcode
    core: int = 0
    wait: int = 0
    signal: int = 0
    fields: Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fields = with_defaults(self.opcode, self.fields)

    def again(self, fields: Fields) -> "Command":
        """A command of the same kind without semaphores, with ``fields`` that are complete."""
        other = object.__new__(Command)
        other.opcode, other.core, other.wait, other.signal = self.opcode, self.core, 0, 0
        other.fields = fields
        return other

    @classmethod
    def decoded(cls, opcode: Opcode, fields: Fields) -> "Command":
        """The command of these fields, which are complete, with those of the header among them."""
        command = object.__new__(cls)
        command.opcode, command.fields = opcode, fields
        command.core, command.wait = fields["core"], fields["wait"]
        command.signal = fields["signal"]
        return command


def _counts(loops: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{loop}_count" for loop in loops)


_TILES, _VECTORS = _counts(MATMUL_LOOPS[3:]), _counts(MATMUL_LOOPS[:3])
_OUTPUTS, _WINDOW = _counts(POST_LOOPS[3:]), _counts(POST_LOOPS[:2])
_WORDS = _counts(VECTOR_LOOPS)
#: Fields of a VECTOR's streams: what says where one that is read comes from, and its strides from
#: an image, a row, a column to the next. There are millions of commands, so names are made once.
STREAM_SOURCE = {stream: f"{stream}_source" for stream in VECTOR_STREAMS}
STREAM_STRIDES = {
    stream: tuple(f"{stream}_{loop}_stride" for loop in reversed(VECTOR_LOOPS[:-1]))
    for stream in VECTOR_STREAMS
}


def _product(fields: Mapping[str, int], counts: Iterable[str]) -> int:
    result = 1
    for name in counts:
        result *= fields[name]
    return result


def k_tiles(fields: Mapping[str, int]) -> int:
    """K tiles of a MATMUL or WEIGHTS."""
    return _product(fields, _TILES)


def matmul_shape(fields: Fields) -> tuple[int, int]:
    """(K tiles, output vectors) of a MATMUL."""
    return k_tiles(fields), _product(fields, _VECTORS)


def matmul_vectors(fields: Fields, core: CoreConfig) -> int:
    """Vectors that a MATMUL sends into the array."""
    tiles, vectors = matmul_shape(fields)
    if fields["transpose"]:
        return -(-vectors // core.rows) * (tiles * core.rows + fields["ones"])
    return tiles * vectors


def post_cycles(fields: Fields, core: CoreConfig) -> int:
    """Cycles that a POST of maxima needs at least: for its reads, or for its groups of words."""
    outputs, window = _product(fields, _OUTPUTS), _product(fields, _WINDOW)
    wide = core.chunks_per_wide if fields["wide"] else 1
    reads, writes = _post_steps(fields["group_count"], wide, fields["out_group"], core)
    return outputs * max(reads * window, writes)


@cache
def _post_steps(groups: int, wide: int, slot: int, core: CoreConfig) -> tuple[int, int]:
    """Cycles in which POST reads, and writes, an output of so many groups, each of which is
    ``wide`` groups of a word, the first of them ``slot`` of its word. It writes ``post_groups`` at
    a time, fewer where a word or what has been read together ends."""
    width, reads, writes = core.post_groups, 0, 0
    for first in range(0, groups, width):
        left = wide * min(width, groups - first)
        reads += 1
        while left:
            now = min(width, left, core.groups_per_word - slot)
            left, slot = left - now, (slot + now) % core.groups_per_word
            writes += 1
    return reads, writes


def tile_cycles(fields: Fields, core: CoreConfig) -> int:
    """Cycles in which a WEIGHTS brings a K tile: ``transpose``, and ``block_count`` and ``skip``
    with it."""
    words = core.columns
    if fields["transpose"]:
        words = core.rows * fields["block_count"]
        words += max(0, core.columns + fields["skip"] - words)
    return max(words, core.columns + WEIGHT_CYCLES)


def duration(command: Command, config: AdaGPConfig) -> tuple[int, int]:
    """(cycles the queue is busy, further cycles until the signal) where nothing makes it wait."""
    core, fields = config.cores[command.core], command.fields
    if command.opcode is Opcode.WEIGHTS:
        return k_tiles(fields) * tile_cycles(fields, core), 0
    if command.opcode is Opcode.MATMUL:
        tiles, vectors = matmul_shape(fields)
        if fields["transpose"]:
            tiles, vectors = -(-vectors // core.rows), tiles * core.rows
        cycles = max(vectors, core.columns + WEIGHT_CYCLES, SUM_CYCLES)
        return tiles * cycles + COMMAND_CYCLES, MATMUL_LATENCY_CYCLES
    return _duration(command, config, core)


def _vector_cycles(fields: Fields, core: CoreConfig) -> int:
    """Cycles of a VECTOR."""
    words, groups = _product(fields, _WORDS), core.groups_per_word
    if fields["operation"] != Operation.CHAIN:
        exponential = fields["operation"] == Operation.EXPONENTIAL
        cycles = EXPONENTIAL_CYCLES if exponential else DIVISION_CYCLES
        return words * core.rows * cycles + VECTOR_CYCLES
    word = core.chunks_per_wide
    reads = [vector_words(fields, stream, core) * vector_moves(fields, stream) for stream in "xyz"]
    # Streams share a channel of the buffer where a word has several groups.
    cycles = max(groups * (SAMPLE_CYCLES if fields["sample"] else 1),
                 word if fields["wide"] and not fields["reduce"] else 1,
                 sum(reads) if groups > 1 else max(reads))  # fmt: skip
    cycles = words * cycles + VECTOR_CYCLES
    if fields["reduce"]:
        cycles += fields["cb_count"] * (REDUCTION_CYCLES + 7 * groups)
    return cycles


def vector_words(fields: Fields, stream: str, core: CoreConfig) -> int:
    """Words that a stream of a VECTOR reads for a word of operands; 0 of one that reads none."""
    source = fields[STREAM_SOURCE[stream]]
    if source > Source.WIDE:
        return 0
    return core.chunks_per_wide if source == Source.WIDE else 1


def vector_moves(fields: Fields, stream: str) -> bool:
    """Whether a stream of a VECTOR reads its words for every pixel, not once for all."""
    return any(fields[stride] for stride in STREAM_STRIDES[stream])


def _loss_cycles(fields: Fields) -> int:
    """Cycles of a LOSS."""
    rows, length = fields["row_count"], fields["row_length"]
    if fields["loss"] == Loss.CROSS_ENTROPY:
        rows, length = rows + LOSS_LATE_ROWS, max(length, LOSS_LEAST_NUMBERS)
    slots = rows * length + LOSS_END_SLOTS + LOSS_VALUE_SLOTS * fields["last"]
    return slots * LOSS_SLOT_CYCLES


def _duration(command: Command, config: AdaGPConfig, core: CoreConfig) -> tuple[int, int]:
    """(cycles the queue is busy, further cycles until the signal)."""
    fields = command.fields
    if command.opcode is Opcode.VECTOR:
        return _vector_cycles(fields, core) + COMMAND_CYCLES, 0
    if command.opcode is Opcode.LOSS:
        return _loss_cycles(fields) + COMMAND_CYCLES, 0
    if command.opcode is Opcode.POST:
        return post_cycles(fields, core) + POST_CYCLES, 0
    if command.opcode not in QUEUE_OPCODES:
        return 0, 0
    words = transfer_words(fields, core)
    run, count = fields["run_bytes"], fields["run_count"]
    beats = -(-run // config.beat_bytes) * count
    if fields["dram_address"] % config.beat_bytes or fields["run_stride"] % config.beat_bytes:
        beats += count
    return max(words, beats) + COMMAND_CYCLES, MEMORY_LATENCY_CYCLES


def transfer_words(fields: Mapping[str, int], core: CoreConfig) -> int:
    """Words of the buffer that a LOAD or STORE moves."""
    rows = fields["run_bytes"] // fields["row_bytes"] * fields["run_count"]
    return rows * -(-fields["row_bytes"] // core.word_bytes)


#: (core, opcode).
_Queue = tuple[int, Opcode]


class Timeline:
    """Queues and semaphores as commands are pushed in stream order.

    Parameters
    ----------
    config : AdaGPConfig

    Members
    -------
    end : when all commands so far have finished
    finished : when the last one has
    fetched : when the weights of the last MATMUL had been read
    """

    def __init__(self, config: AdaGPConfig) -> None:
        self.config = config
        self._cores = config.cores
        self.end = self.finished = self.fetched = self._dispatched = START_CYCLES
        self._free: dict[_Queue, int] = {}
        self._starts: dict[_Queue, list[int]] = {}
        self._tokens: dict[int, list[int]] = {}
        self._taken: dict[int, int] = {}
        #: For each core the last WEIGHTS: its start, cycles per tile, and its tokens.
        self._weights: dict[int, tuple[int, int, list[tuple[list[int], int]]]] = {}
        self._dispatch_cycles = 2 + COMMAND_WIDTH // CHUNK_WIDTH

    def push(self, command: Command, after: int = 0) -> int:
        """Execute ``command``, not before cycle ``after``; returns the one in which it starts."""
        key = (command.core, command.opcode)
        starts = self._starts.setdefault(key, [])
        depth = self.config.command_queue_depth
        self._dispatched += self._dispatch_cycles
        if len(starts) > depth:
            self._dispatched = max(self._dispatched, starts[-depth - 1])
        start = max(self._dispatched, self._free.get(key, 0), after)
        for semaphore in bits(command.wait):
            index = self._taken.get(semaphore, 0)
            self._taken[semaphore] = index + 1
            start = max(start, self._tokens[semaphore][index])
        core = self._cores[command.core]
        if command.opcode is Opcode.WEIGHTS:
            pace = tile_cycles(command.fields, core)
            busy, latency = k_tiles(command.fields) * pace, 0
        elif command.opcode is Opcode.MATMUL:
            busy, latency = self._multiply(command, start, core), MATMUL_LATENCY_CYCLES
        else:
            busy, latency = _duration(command, self.config, core)
        self._free[key] = start + busy
        self.finished = end = start + busy + latency
        self.end = max(self.end, end)
        given = []
        for semaphore in bits(command.signal):
            tokens = self._tokens.setdefault(semaphore, [])
            given.append((tokens, len(tokens)))
            tokens.append(end)
        if command.opcode is Opcode.WEIGHTS:
            self._weights[command.core] = (start, pace, given)
        starts.append(start)
        return start

    def _multiply(self, command: Command, start: int, core: CoreConfig) -> int:
        """Cycles that a MATMUL is busy with the tiles of the WEIGHTS before it, which it slows
        down."""
        tiles, vectors = matmul_shape(command.fields)
        first, pace, tokens = self._weights[command.core]
        # A K tile cannot be shorter than the next one's way into the array, nor than the way of
        # a sum back to the adder.
        cycles = max(vectors, pace, SUM_CYCLES)
        begin = max(start, first + pace + WEIGHTS_LATENCY_CYCLES)
        key = (command.core, Opcode.WEIGHTS)
        self.fetched = self._free[key] = max(self._free[key], begin + (tiles - 1) * cycles)
        for given, index in tokens:
            given[index] = max(given[index], self.fetched)
        return begin - start + tiles * cycles + COMMAND_CYCLES


def estimate(commands: Sequence[Command], config: AdaGPConfig) -> int:
    """Cycles from start to interrupt of ``commands``, a program at offset 0, in whose order each
    one's tokens are given by earlier ones."""
    timeline = Timeline(config)
    for command in executed(commands):
        timeline.push(command)
    return timeline.end


def executed(commands: Sequence[Command], *, most: int | None = None) -> Iterator[Command]:
    """The commands of a program at offset 0 one by one, those in loops as often as they are, or
    ``most`` times."""
    stream = [(command.opcode, command.fields) for command in commands]
    for place, _ in dispatched(stream, most=most):
        yield commands[place]


def executions(
    length: int, repeats: Iterable[tuple[int, Fields]], offset: int = 0
) -> NDArray[np.int64]:
    """How often each of the ``length`` commands of a program at ``offset`` is executed: those in
    loops more often; of a REPEAT how often its loop begins. ``repeats``: number and fields of each
    REPEAT, in order."""
    times = np.ones(length, np.int64)
    for place, fields in repeats:
        times[(fields["first"] - offset) // COMMAND_BYTES : place] *= fields["count"]
    return times


def executed_count(length: int, repeats: Sequence[tuple[int, Fields]], offset: int = 0) -> int:
    """Commands that such a program executes, those in loops as often as they are; without
    REPEAT."""
    times = executions(length, repeats, offset)
    return int(times.sum() - times[[place for place, _ in repeats]].sum())


def bits(mask: int) -> Iterator[int]:
    """Numbers of the bits set in ``mask``."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
