"""What each command of a program takes where nothing else is at work: measured on the model that
goes by cycles, once for all commands that are alike."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.codegen.cost import k_tiles, tile_cycles, transfer_words, vector_moves, vector_words
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import MATMUL_LOOPS, QUEUE_OPCODES, WEIGHTS_LOOPS, Opcode, with_defaults
from hw.isa.loops import LOOP_LEVELS, stride_name
from hw.isa.packing import LINE_BYTES
from hw.isa.vector import VECTOR_LOOPS, Source
from perf.machine.model import run
from perf.machine.records import SIZES, block_bytes, size_record

__all__ = ["WORK", "Stream", "Works"]

#: Of a command:
#: ``cycles`` : from the beginning of one to that of the next, where such commands come one behind
#:     the other; of a MATMUL with its WEIGHTS
#: ``head`` : of a LOAD, cycles until the first of its words comes
#: ``tail`` : behind ``cycles``, until its tokens are given
#: ``tiles``, ``pace`` : K tiles of a MATMUL or WEIGHTS, and the cycles that one's weights take
#: ``vectors`` : into the array
#: ``words`` : written to the buffer
#: ``reads``, ``banks`` : words read from the buffer, and the banks, a bit each
#: ``stalls`` : cycles of VECTOR and POST that their counter of stalls counts
#: ``read_beats``, ``write_beats``, ``write_bytes`` : on the bus
_NAMES = (
    "cycles", "head", "tail", "tiles", "pace", "vectors", "words", "read_beats",
    "write_beats", "write_bytes", "reads", "banks", "stalls",
)  # fmt: skip
WORK = np.dtype([(name, np.int64) for name in _NAMES])

#: Decoded commands.
Stream = Sequence[tuple[Opcode, Mapping[str, int]]]
#: The bit of an address that says which memory; most banks of one.
_MEMORY, _MOST_BANKS = BUFFER_ADDRESS_WIDTH - 1, 16
#: Addresses of words that are read, and fields that decide over nothing here.
_READ = {"x_address", "y_address", "z_address", "address", "bias_address", "target_address"}
_OTHER = {
    "core", "wait", "signal", "dram_address", "buffer_address", "accumulator_address", "o_address",
    "out_address", "gradient_address", "value_address", "x_value", "y_value", "z_value",
    *(stride_name(level) for level in range(LOOP_LEVELS)),
}  # fmt: skip
#: Engines that do one command after the other, and nothing of the next one beside it.
_ALONE = (Opcode.POST, Opcode.VECTOR, Opcode.LOSS)
_HALT: tuple[Opcode, Mapping[str, int]] = (Opcode.HALT, {"core": 0, "wait": 0, "signal": 0})


class Works:
    """What commands of a configuration take with a memory; those that are alike are measured once,
    whatever programs they are in.

    Parameters
    ----------
    config : of the machine
    latency : cycles that memory adds to every burst
    compiled : otherwise in plain Python, which begins at once and is slow; so is what is executed
        with it
    """

    def __init__(self, config: AdaGPConfig, latency: int, *, compiled: bool = True) -> None:
        self.config, self.latency, self.compiled = config, latency, compiled
        self._measured: dict[tuple[Any, ...], dict[str, int]] = {}

    def of(self, stream: Stream) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Kinds of work (:data:`WORK`), and for each command of a program, and each granule of a
        block of memory at which its data may begin, the number of its kind, (commands, granules).
        """
        config = self.config
        granules = block_bytes(config) // config.granule_bytes
        which = np.zeros((len(stream), granules), np.int32)
        kinds = [(0,) * len(_NAMES)]
        known: dict[tuple[Any, ...], int] = {}
        weights: dict[int, Mapping[str, int]] = {}
        for place, (opcode, fields) in enumerate(stream):
            if opcode not in QUEUE_OPCODES:
                continue
            core = config.cores[fields["core"]]
            parts = [(opcode, fields)]
            if opcode is Opcode.WEIGHTS:
                weights[fields["core"]] = fields
            elif opcode is Opcode.MATMUL:
                parts.insert(0, (Opcode.WEIGHTS, weights[fields["core"]]))
            likeness = (fields["core"], *_likeness(parts, self._bank))
            banks = self._banks(opcode, fields, core)
            for begin, numbers in _begins(opcode, fields, config):
                key = (begin, banks, likeness)
                if key not in known:
                    known[key] = len(kinds)
                    work = {**self._work(parts, begin, likeness), "banks": banks}
                    kinds.append(tuple(work[name] for name in _NAMES))
                which[place, numbers] = known[key]
        return np.array(kinds, WORK), which

    def _work(self, parts, begin, likeness):
        opcode, fields = parts[-1]
        work = self._measured.get((begin, likeness))
        if work is None:
            if opcode is Opcode.WEIGHTS:
                core = self.config.cores[fields["core"]]
                work = dict.fromkeys(_NAMES, 0)
                work |= {"pace": tile_cycles(fields, core), "tiles": k_tiles(fields)}
            else:
                if begin is not None:
                    parts = [(opcode, {**fields, "dram_address": begin})]
                work = _measured(parts, self.config, self.latency, self.compiled)
            self._measured[begin, likeness] = work
        return work

    @functools.cached_property
    def _shifts(self):
        return {
            memory: (depths[0] - 1).bit_length()
            for memory, depths in self.config.memory_banks.items()
        }

    def _bank(self, address):
        """Of a word, in both memories."""
        memory = address >> _MEMORY
        number = address & (1 << _MEMORY) - 1
        bank = number >> self._shifts.get(memory, 0)
        return memory * _MOST_BANKS + min(bank, _MOST_BANKS - 1)

    def _banks(self, opcode, fields, core):
        """Banks that a command reads, a bit each."""
        if opcode is Opcode.STORE:
            first = fields["buffer_address"]
            ranges = [(first, first + transfer_words(fields, core) - 1)]
        else:
            ranges = [
                (fields[name], fields[name] + _extent(opcode, name, fields))
                for name in _streams(opcode, fields)
            ]
        mask = 0
        for first, last in ranges:
            for bank in range(self._bank(first), self._bank(last) + 1):
                mask |= 1 << bank
        return mask


def _streams(opcode, fields):
    """Addresses by which words stream out of the buffer beside STORE's."""
    if opcode is Opcode.MATMUL:
        return ["x_address"]
    if opcode is Opcode.VECTOR:
        return [f"{name}_address" for name in "xyz" if fields[f"{name}_source"] <= Source.WIDE]
    return []


def _begins(opcode, fields, config):
    """(where the data of a LOAD or STORE begins in a block, the granules that are as good as it) of
    all places that loops bring it to; (None, all) of other commands.

    Runs are cut where beats and blocks end. If runs lie a part of a block apart, the place in that
    part decides; of a single run that in a beat.
    """
    if opcode not in (Opcode.LOAD, Opcode.STORE):
        return [(None, slice(None))]
    block, granule = block_bytes(config), config.granule_bytes
    period = config.beat_bytes
    if fields["run_count"] > 1:
        period = max(granule, math.gcd(block, fields["run_stride"] % block))
    steps = [fields[stride_name(level)] for level in range(LOOP_LEVELS)]
    step = math.gcd(period, *steps)
    first = fields["dram_address"] % step
    found = []
    for begin in range(first, period, step):
        numbers = np.arange(begin // granule, block // granule, period // granule)
        found.append((begin, numbers))
    return found


def _vector_reads(fields, core):
    total, pixels = 0, fields["i0_count"] * fields["i1_count"] * fields["i2_count"]
    for stream in "xyz":
        words = fields["cb_count"] * vector_words(fields, stream, core)
        total += words * (pixels if vector_moves(fields, stream) else 1)
    return total


def _likeness(parts, bank_of):
    """What decides over cycles: all fields but places in memory; of addresses that are read which
    lie in the same bank, or where they lie if the words of one are in several."""
    values: list[int] = []
    banks, addresses = [], []
    several = False
    for opcode, fields in parts:
        values.append(opcode)
        for name, value in fields.items():
            if name in _READ:
                bank, last = bank_of(value), bank_of(value + _extent(opcode, name, fields))
                banks.append(bank)
                addresses.append(bank if bank == last else 1 << 32 | value)
                several |= bank != last
            elif name not in _OTHER:
                values.append(value)
    if several:
        return (*values, *addresses)
    return (*values, *(banks.index(bank) for bank in banks))


def _extent(opcode, name, fields):
    """Words between the first one that is read from an address and the last one, where conflicts
    depend on them."""
    if opcode is Opcode.MATMUL and name == "x_address":
        return _walked(fields, MATMUL_LOOPS)
    if opcode is Opcode.WEIGHTS and name == "address":
        far = _walked(fields, WEIGHTS_LOOPS)
        return far + fields["row_limit"] * max(0, fields["row_stride"]) // fields["cb_count"]
    if opcode is Opcode.VECTOR and name[0] in "xyz":
        return _walked(fields, VECTOR_LOOPS[:3], f"{name[0]}_") + fields["cb_count"] - 1
    return 0


def _walked(fields, loops, stream=""):
    """Words from the first point of loops to the one furthest on."""
    return sum(
        max(0, fields[f"{stream}{loop}_stride"]) * (fields[f"{loop}_count"] - 1) for loop in loops
    )


def _measured(parts, config, latency, compiled):
    """The :data:`WORK` of a command, with its WEIGHTS before it if it is a MATMUL."""
    free = [(opcode, {**fields, "wait": 0, "signal": 0}) for opcode, fields in parts]
    opcode, fields = free[-1]
    core = config.cores[fields["core"]]
    times, stream = 1, free
    if opcode not in _ALONE:
        times, stream = 2, _held_up(free, fields["core"])
    result = run([*stream, _HALT], config, latency=latency, compiled=compiled)
    counts = result.counters
    own = f"CORE{fields['core']}_"
    beats = counts["READ_BEATS"] - (len(stream) + 1) * LINE_BYTES // config.beat_bytes
    work = dict.fromkeys(_NAMES, 0)
    ends = result.ends[1:]
    if opcode is Opcode.MATMUL:
        work["cycles"] = ends[3] - ends[1]
        work["reads"] = work["vectors"] = counts[f"{own}VECTORS"] // times
        work["tiles"], work["pace"] = k_tiles(free[0][1]), tile_cycles(free[0][1], core)
        work["tail"] = _written(config, core)
        return work
    busy = counts[f"{own}{opcode.name}_BUSY"]
    if opcode in _ALONE:
        work["cycles"] = busy
        work["stalls"] = counts.get(f"{own}{opcode.name}_STALL", 0)
        if opcode is Opcode.VECTOR:
            work["words"], work["reads"] = _vector_words(fields, core), _vector_reads(fields, core)
        elif opcode is Opcode.POST:
            work["words"] = _post_words(fields, core)
        return work
    cycles = work["cycles"] = ends[1] - ends[0]
    if opcode is Opcode.LOAD:
        work["words"], work["head"] = transfer_words(fields, core), max(0, busy - 2 * cycles)
        work["read_beats"] = beats // times
    else:
        work["reads"], work["tail"] = transfer_words(fields, core), max(0, busy - 2 * cycles)
        work["write_beats"] = counts["WRITE_BEATS"] // times
        work["write_bytes"] = counts["WRITE_BYTES"] // times
    return work


def _held_up(free, core):
    """Twice what is in ``free``, behind another command that it waits for, so that all of it is in
    the queues when it begins: of small commands the sequencer would be measured otherwise."""
    opcode, fields = free[-1]
    other = Opcode.STORE if opcode is Opcode.LOAD else Opcode.LOAD
    if opcode is Opcode.MATMUL:
        shape = {"buffer_address": fields["x_address"], "run_bytes": 64, "row_bytes": 64}
    else:
        shape = {name: fields[name] for name in ("buffer_address", "run_bytes", "row_bytes")}
    before = with_defaults(other, {**shape, "dram_address": 0})
    before |= {"core": core, "wait": 0, "signal": 1}
    first, values = free[0]
    return [(other, before), (first, {**values, "wait": 1}), *free[1:], *free]


@functools.cache
def _written(config, core):
    """Cycles from a vector's way into the array until its sums are written."""
    return int(np.array(size_record(config, core), SIZES)["sums_written"])


def _vector_words(fields, core):
    words = fields["cb_count"] * (core.chunks_per_wide if fields["wide"] else 1)
    if not fields["reduce"]:
        words *= fields["i0_count"] * fields["i1_count"] * fields["i2_count"]
    return words


def _post_words(fields, core):
    groups = fields["group_count"] * (core.chunks_per_wide if fields["wide"] else 1)
    outputs = fields["wo_count"] * fields["ho_count"] * fields["n_count"]
    return outputs * -(-groups // core.groups_per_word)
