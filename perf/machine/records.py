"""Commands, sizes, state and counters of the machine, as arrays of records."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hw.arithmetic.float_special import FloatSpecial, SpecialOperation
from hw.arithmetic.random_numbers import RandomNumbers
from hw.array.pe_array import ArrayTiming
from hw.bus.signatures import ACCUMULATOR_READ_LATENCY, BUFFER_READ_LATENCY
from hw.config import AdaGPConfig, CoreConfig
from hw.control.command_queue import command_chunks
from hw.control.core import buffer_channels
from hw.engines.post.lane import PostLane
from hw.engines.vector.lane import VectorLane
from hw.isa.encoding import COMMAND_BYTES, COMMANDS, Opcode, queue_opcodes
from hw.isa.loops import LOOP_LEVELS, stride_name
from hw.isa.packing import LINE_BYTES, WORD_BYTES, WORDS, Placed
from hw.isa.rows import RowAction, RowList

from .kernels.state import CORE, CORE_COUNTS, PLANNER, SHARED, SHARED_COUNTS

__all__ = ["COMMAND", "SIZES", "Machine", "command_records", "program_lines", "size_record"]

Records = np.ndarray[Any, Any]

_TARGETS = ("bp_even", "bp_odd", "gp_even", "gp_odd")
_HEADER = ("opcode", "core", "wait", "signal")
#: ``queue``: of its core's. ``target``: of REPEAT and ROWS, the number of a command. ``strided``:
#: bit l says that a command in the loop of this REPEAT moves with the counter of level l;
#: ``order``: after so many steps of its counter all of these have moved by whole blocks of memory.
#: ``begin``: place in the program, in words; ``words``: bit i says that word i of the command lies
#: there; ``packed``: behind a word that says so.
_ADDED = (
    "queue", "chunks", "target", "strided", "order", "outermost", "begin", "words", "packed",
)  # fmt: skip
_NAMES = tuple(dict.fromkeys(
    (*_HEADER, *_ADDED, *(field.name for fields in COMMANDS.values() for field in fields))
))  # fmt: skip
#: One command: the fields of all opcodes by name.
COMMAND = np.dtype([(name, np.int64) for name in _NAMES])

_SIZE_NAMES = (
    "rows", "columns", "bias_words", "bank_shift0", "bank_shift1", "groups", "chunks",
    "post_lanes", "post_groups", "is_float", "depth",
    # MATMUL: from an issue to the read of the sums, to their write; least distance.
    "sums_read", "sums_written", "hazard",
    # POST: from a read to its result: maximum or single element, sum; wide, sum and wide.
    "post_result", "post_sum_result", "post_wide", "post_sum_wide", "sum_interval",
    # VECTOR: from operands to results; a lane of a division, of an exponential; random numbers.
    "vector_wide", "vector_narrow", "partial", "stored", "divide", "exponential", "sampled",
    "channel_x", "channel_y", "channel_z", "channel_loss",
    # DMA.
    "granule", "word_granules", "beat_granules", "beat_bits", "block_granules", "outstanding",
)  # fmt: skip
#: Sizes and latencies of a core.
SIZES = np.dtype([(name, np.int64) for name in _SIZE_NAMES])


def block_bytes(config: AdaGPConfig) -> int:
    """At multiples of which bursts end."""
    return config.beat_bytes << config.axi_burst_beats.bit_length() - 1


@functools.cache
def size_record(config: AdaGPConfig, core: CoreConfig) -> tuple[int, ...]:
    """The values of :data:`SIZES`, all from the hardware's own descriptions."""
    timing = ArrayTiming(fmt=config.format, rows=core.rows)
    read = BUFFER_READ_LATENCY + timing.psum_offset - ACCUMULATOR_READ_LATENCY
    written = BUFFER_READ_LATENCY + timing.latency
    lane = PostLane(config.format)
    lane._MustUse__used = True  # only looked at: without this Amaranth warns that nobody builds it
    ahead = ACCUMULATOR_READ_LATENCY
    channels = buffer_channels(core)[0]
    granule = config.granule_bytes
    shifts = {
        memory: (depths[0] - 1).bit_length() for memory, depths in config.memory_banks.items()
    }
    latency = FloatSpecial.LATENCY
    values = {
        "rows": core.rows, "columns": core.columns, "bias_words": core.bias_words,
        "bank_shift0": shifts[0], "bank_shift1": shifts.get(1, 0), "groups": core.groups_per_word,
        "chunks": core.chunks_per_wide, "post_lanes": core.post_lanes,
        "post_groups": core.post_groups, "is_float": int(config.format.is_float),
        "depth": config.command_queue_depth,
        "sums_read": read, "sums_written": written, "hazard": written + 1 - read,
        "post_result": ahead + lane.latency(), "post_sum_result": ahead + lane.latency(sum=True),
        "post_wide": ahead + lane.latency(wide=True),
        "post_sum_wide": ahead + lane.latency(sum=True, wide=True),
        "sum_interval": lane.SUM_INTERVAL,
        "vector_wide": VectorLane.WIDE, "vector_narrow": 0, "partial": VectorLane.PARTIAL,
        "stored": VectorLane.STORED,
        "divide": latency[SpecialOperation.DIVIDE] + 1,
        "exponential": latency[SpecialOperation.EXPONENTIAL] + 1,
        "sampled": RandomNumbers.LATENCY,
        **{f"channel_{name}": channels.get(f"vector_{name}", 0) for name in "xyz"},
        "channel_loss": channels.get("loss", 0),
        "granule": granule, "word_granules": core.word_bytes // granule,
        "beat_granules": config.beat_bytes // granule,
        "beat_bits": (config.beat_bytes // granule).bit_length() - 1,
        "block_granules": block_bytes(config) // granule,
        "outstanding": config.axi_outstanding_reads,
    }  # fmt: skip
    if core.has_vector:
        values["vector_narrow"] = VectorLane.NARROW
    return tuple(values[name] for name in _SIZE_NAMES)


def command_records(
    commands: Iterable[tuple[Opcode, Mapping[str, int]]], config: AdaGPConfig, offset: int,
    base: int, lists: Iterable[Sequence[bool]] = (), placed: Sequence[Placed] | None = None,
) -> Records:  # fmt: skip
    """Decoded commands that lie at ``offset`` of a memory window that begins at ``base``; ``lists``
    say of each list of ROWS, in the order of the commands that begin one, which rows are kept;
    ``placed`` says where each lies, None: they are all whole."""
    listed = list(commands)
    records = np.zeros(len(listed), COMMAND)
    records["begin"], records["words"] = WORDS * np.arange(len(listed)), (1 << WORDS) - 1
    if placed is not None:
        records["begin"] = [one.begin // WORD_BYTES for one in placed]
        records["packed"] = [one.words is not None for one in placed]
        records["words"] = [(1 << WORDS) - 1 if one.words is None else one.words for one in placed]
    block = block_bytes(config)
    queues = [
        {opcode: place for place, opcode in enumerate(queue_opcodes(core))} for core in config.cores
    ]
    moving: list[tuple[int, list[int]]] = []
    given, rows = iter(lists), RowList()
    for place, (opcode, fields) in enumerate(listed):
        record = records[place]
        record["opcode"] = opcode
        for name, value in fields.items():
            record[name] = value
        if opcode in queues[fields["core"]]:
            record["queue"] = queues[fields["core"]][opcode]
            record["chunks"] = command_chunks(opcode)
        if opcode in (Opcode.LOAD, Opcode.STORE):
            strides = [fields[stride_name(level)] for level in range(LOOP_LEVELS)]
            if any(strides):
                moving.append((place, strides))
            record["dram_address"] = (base + fields["dram_address"]) % block
        elif opcode is Opcode.BATCH:
            for name in _TARGETS:
                record[name] = (fields[name] - offset) // COMMAND_BYTES
        elif opcode is Opcode.ROWS:
            # A program comes to each of them once, so what it does is known.
            if fields["action"] == RowAction.BEGIN:
                rows.begin()
                rows.fill(next(given))
            record["position"] = rows.row(fields["position"])
            record["target"] = (fields["first"] - offset) // COMMAND_BYTES
            record["target"] += len(rows.rows) * (fields["action"] == RowAction.BRANCH)
        elif opcode is Opcode.REPEAT:
            record["target"] = (fields["first"] - offset) // COMMAND_BYTES
            record["strided"], record["order"] = _moves(
                moving, record["target"], fields["level"], block
            )
    return records


def program_lines(records: Records) -> int:
    """Lines of a program that ends behind the last of its commands."""
    last = records[-1]
    end = int(last["begin"] + last["packed"]) + int(last["words"]).bit_count()
    return -(-end * WORD_BYTES // LINE_BYTES)


def _moves(moving, first, level, block):
    """Whether commands from number ``first`` on move with ``level``, and how many of its steps
    make whole blocks."""
    order, strided = 1, 0
    for place, strides in moving:
        if place >= first and strides[level]:
            strided = 1
            order = max(order, block // int(np.gcd(block, strides[level] % block)))
    return strided, order


class Machine:
    """The arrays that the compiled loops work on, in the state after a start's clear.

    Members
    -------
    memory, counters : all state, all counters as numbers; the records are views of them
    times : places in ``memory`` that hold cycles, 0 for none; ``loop_place``: of the loop counters
    own_state, own_counts : for each core where the array's state begins and ends in ``memory``, and
        where its counters begin in ``counters``
    """

    def __init__(self, config: AdaGPConfig) -> None:
        cores = config.cores
        count = len(cores)
        queues = [len(queue_opcodes(core)) for core in cores]
        self.sizes = np.array([size_record(config, core) for core in cores], SIZES)
        parts = [(SHARED, 1), (CORE, count), (PLANNER, count), (PLANNER, count)]
        self.memory, (self.shared, self.cores, self.loads, self.stores) = _together(parts)
        parts = [(SHARED_COUNTS, 1), (CORE_COUNTS, count)]
        self.counters, (self.counts, self.core_counts) = _together(parts)
        offsets = {name: SHARED.fields[name][1] // 8 for name in SHARED.names}
        shapes = {name: SHARED.fields[name][0].shape for name in SHARED.names}
        self.times = np.array(
            [
                offsets[name] + place
                for name in ("m_times", "n_times")
                for place in range(1, shapes[name][0])
            ]
        )
        self.loop_place = offsets["loop"]
        begin = SHARED.itemsize // 8
        places = [CORE.fields[name][1] // 8 for name in CORE.names if name.startswith("m_")]
        size = CORE.itemsize // 8
        self.own_state = np.array(
            [
                (begin + size * core + places[0], begin + size * core + places[-1] + 1)
                for core in range(count)
            ]
        )
        self.own_counts = np.array(
            [(SHARED_COUNTS.itemsize + CORE_COUNTS.itemsize * core) // 8 for core in range(count)]
        )
        self.cores["w_free"] = self.cores["s_room"] = 1
        shared = self.shared[0]
        shared["t_asking"] = -1
        shared["t_first"], shared["t_queues"] = queues[0], sum(queues)
        # The semaphores' turns begin with the first queue two cycles after the start.
        turns = max(sum(queues), 2)
        shared["t_turn"] = -2 % turns
        shared["f_beats"] = LINE_BYTES // config.beat_bytes
        shared["block_bytes"] = block_bytes(config)


def _together(parts):
    """One array of numbers, and arrays of records in it."""
    sizes = [kind.itemsize // 8 * count for kind, count in parts]
    numbers = np.zeros(sum(sizes), np.int64)
    ends = np.cumsum(sizes)
    views = [
        numbers[end - size : end].view(kind) for (kind, _), size, end in zip(parts, sizes, ends)
    ]
    return numbers, views
