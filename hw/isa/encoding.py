"""The one command encoding: hardware, compiler, disassembler and documentation read it.

A program is a list of commands of :data:`COMMAND_BYTES` bytes in DRAM, little-endian, executed
from the first to ``HALT``; ``BATCH`` goes on elsewhere in it. Every command starts with the same
header; the fields behind it depend on the opcode. Unused bits are zero. HALT, BATCH, REPEAT and
ROWS belong to the sequencer (:func:`control_opcodes`). HALT and BATCH let everything before them
finish first. REPEAT waits for nothing: behind the commands of a loop it goes back to the first of
them until they have been executed ``count`` times. The loop has a counter, by its level, 0 in the
first time through and counting up; LOAD and STORE add its multiples to their address. ROWS makes a
list of rows and goes by it.

The others go to queues: each core has one for every opcode that it executes
(:func:`queue_opcodes`). They work at the same time, each in order. Semaphores order them: a command
starts when every semaphore in its ``wait`` mask is above zero, and takes one from each; when it has
finished (its data is in place, write responses included) it adds one to each semaphore in its
``signal`` mask. Weight tiles go from WEIGHTS to MATMUL in order and without semaphores: MATMUL
waits for the tiles it takes.
"""

import enum

from amaranth.lib import data

from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig, CoreConfig

from .field import BUFFER_ADDRESS_NOTE, Field, field_places, fields_layout
from .loops import COMMAND_BYTES, LOOP_STRIDES, REPEAT
from .loss import LOSS
from .rows import ROWS
from .vector import VECTOR

__all__ = [
    "COMMANDS",
    "COMMAND_BYTES",
    "COMMAND_WIDTH",
    "ENGINE_FIELDS",
    "Init",
    "MATMUL_LOOPS",
    "MEMORY_SIZE_WIDTH",
    "Opcode",
    "POST_LOOPS",
    "POST_OUTPUT_LOOPS",
    "Pool",
    "QUEUE_OPCODES",
    "SEMAPHORE_MASK_WIDTH",
    "WEIGHTS_LOOPS",
    "command_layout",
    "control_opcodes",
    "decode",
    "encode",
    "engine_layout",
    "queue_opcodes",
    "with_defaults",
]
COMMAND_WIDTH = 8 * COMMAND_BYTES
#: Bits of the size of the memory window. Offsets have 32, so 4 GiB is the most that is of use.
MEMORY_SIZE_WIDTH = 33
SEMAPHORE_MASK_WIDTH = 32

#: MATMUL's loops, innermost first: the first three walk the output vectors (M), the last three
#: the K tiles. ``cb`` counts blocks of ``rows`` channels. With ``transpose`` the first three walk
#: the contraction, and ``rows`` of their steps are a K tile; the last three walk the outputs.
MATMUL_LOOPS = ("wo", "ho", "n", "kw", "kh", "cb")
#: WEIGHTS' loops over K tiles, innermost first.
WEIGHTS_LOOPS = ("kw", "kh", "cb")
#: POST's loops, innermost first: the pooling window inside the channel groups inside the outputs.
POST_LOOPS = ("pw", "ph", "group", "wo", "ho", "n")
#: Those of them that go from output to output.
POST_OUTPUT_LOOPS = ("wo", "ho", "n")


class Opcode(enum.IntEnum):
    """Command codes; 0 is undefined on purpose, so that cleared memory is an error."""

    HALT = 1
    LOAD = 2
    STORE = 3
    MATMUL = 4
    POST = 5
    WEIGHTS = 6
    VECTOR = 7
    LOSS = 8
    BATCH = 9
    REPEAT = 10
    ROWS = 11


#: Opcodes that have queues, in the order of a core's queues and units.
QUEUE_OPCODES = (
    Opcode.LOAD,
    Opcode.WEIGHTS,
    Opcode.MATMUL,
    Opcode.POST,
    Opcode.STORE,
    Opcode.VECTOR,
    Opcode.LOSS,
)


def queue_opcodes(core: CoreConfig) -> tuple[Opcode, ...]:
    """Those of :data:`QUEUE_OPCODES` that a core (:class:`~hw.config.CoreConfig`) executes."""
    exists = {Opcode.VECTOR: core.has_vector, Opcode.LOSS: core.has_loss}
    return tuple(opcode for opcode in QUEUE_OPCODES if exists.get(opcode, True))


def control_opcodes(config: AdaGPConfig) -> tuple[Opcode, ...]:
    """Opcodes that the sequencer of an :class:`~hw.config.AdaGPConfig` executes itself."""
    batches = (Opcode.BATCH,) if config.has_training_engines else ()
    return (Opcode.HALT, Opcode.REPEAT, *batches, *(Opcode.ROWS,) * bool(config.row_list_depth))


class Init(enum.IntEnum):
    """Where the first K tile of a MATMUL takes its partial sums from."""

    ZERO = 0
    BIAS = 1
    ACCUMULATOR = 2


class Pool(enum.IntEnum):
    """How POST reduces a pooling window."""

    MAX = 0
    SUM = 1


_A = BUFFER_ADDRESS_WIDTH

HEADER = (
    Field("opcode", 8, "command code", enum=Opcode),
    Field("core", 1, "core whose queue takes the command (0 main, 1 predictor)", default=0),
    Field("wait", SEMAPHORE_MASK_WIDTH, "semaphores to take one from before starting", default=0),
    Field("signal", SEMAPHORE_MASK_WIDTH, "semaphores to add one to when finished", default=0),
)

_DMA = (
    Field("buffer_address", _A, f"first word; words are consecutive; {BUFFER_ADDRESS_NOTE}"),
    Field("run_bytes", 32, "contiguous bytes per run; multiple of row_bytes", minimum=1),
    Field("run_count", 16, "number of runs", minimum=1, default=1),
    Field(
        "run_stride",
        32,
        "bytes from one run's start to the next's; multiple of the granule",
        default=0,
    ),
    Field(
        "row_bytes",
        32,
        "bytes packed into whole buffer words, the last word filled up with zeros (LOAD) or cut "
        "(STORE); multiple of the granule",
        minimum=1,
    ),
    # The last of the engine's fields, in the chunk that is queued last: the sequencer has the
    # cycles of the others to add up what loops add to it.
    Field("dram_address", 32, "byte offset in the memory window; multiple of the granule"),
)

_WEIGHTS = (
    Field("address", _A, f"word at loop index 0 everywhere, modulo 2**24; {BUFFER_ADDRESS_NOTE}"),
    Field("row_stride", _A, "words from one row (transpose 0: column) to the next", signed=True),
    *(
        Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1)
        for n in WEIGHTS_LOOPS
    ),
    *(
        Field(
            f"{n}_stride", _A, f"words address moves per step of loop {n}", signed=True, default=0
        )
        for n in WEIGHTS_LOOPS
    ),
    Field(
        "row_limit",
        16,
        "rows that exist, counted on through loop cb (transpose 0: columns that exist in every "
        "tile); others are zeros and not read",
    ),
    Field("transpose", 1, "1: a word holds a row of the tile, 0: a column"),
    Field("block_count", 8, "transpose 1: words of a row that are read", minimum=1, default=1),
    Field("skip", 10, "transpose 1: columns to drop before the first of the tile", default=0),
    Field(
        "bias",
        1,
        "bring biases, for the MATMUL with init BIAS that takes the first tile",
        default=0,
    ),
    Field(
        "bias_address",
        _A,
        f"first word of the biases, 32 bits per column; {BUFFER_ADDRESS_NOTE}",
        default=0,
    ),
)

_MATMUL = (
    Field("accumulator_bank", 1, "bank that collects the sums"),
    Field("init", 2, "partial sums the first K tile starts from", enum=Init, default=Init.ZERO),
    Field(
        "transpose",
        1,
        "1: K tiles run over `rows` steps of wo, ho, n in order, vectors over cb, kh, kw and the "
        "`rows` channels of a word",
        default=0,
    ),
    Field(
        "ones",
        1,
        "transpose 1: one more vector per K tile, of ones; its entry is the last",
        default=0,
    ),
    Field("channels", 16, "valid columns; float flags of columns beyond are ignored", minimum=1),
    Field(
        "x_address",
        _A,
        "word at loop index 0 everywhere, modulo 2**24; never read where coordinates are outside "
        f"the limits; {BUFFER_ADDRESS_NOTE}",
    ),
    Field(
        "accumulator_address", 16, "entry of the first output vector; the rest follow", default=0
    ),
    *(
        Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1)
        for n in MATMUL_LOOPS
    ),
    *(
        Field(
            f"{n}_stride", _A, f"words x_address moves per step of loop {n}", signed=True, default=0
        )
        for n in MATMUL_LOOPS
    ),
    Field("h_origin", 16, "row coordinate at index 0 (minus the padding)", signed=True),
    Field("w_origin", 16, "column coordinate at index 0 (minus the padding)", signed=True),
    Field("h_limit", 16, "rows in the buffer; a row coordinate outside reads zeros"),
    Field("w_limit", 16, "columns in the buffer; a column coordinate outside reads zeros"),
    Field("ho_step", 8, "row coordinate per step of ho (convolution stride)", default=0),
    Field("wo_step", 8, "column coordinate per step of wo", default=0),
    Field("kh_step", 8, "row coordinate per step of kh (dilation)", default=0),
    Field("kw_step", 8, "column coordinate per step of kw", default=0),
)

_POST = (
    Field("accumulator_bank", 1, "bank to read"),
    Field("pool", 1, "reduction over the pooling window", enum=Pool, default=Pool.MAX),
    Field("relu", 1, "negative values become zero before pooling", default=0),
    Field("wide", 1, "store 32-bit values instead of operands", default=0),
    Field("accumulator_address", 16, "entry of index 0 everywhere", default=0),
    *(Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1) for n in POST_LOOPS),
    *(
        Field(f"{n}_stride", 16, f"entries per step of loop {n}", signed=True, default=0)
        for n in POST_LOOPS
        if n != "group"
    ),
    Field("channels", 16, "valid channels of the tile; lanes beyond are stored as zero"),
    Field("out_address", _A, f"word of the first output's first group; {BUFFER_ADDRESS_NOTE}"),
    Field("out_group", 8, "position of the first group inside that word, in groups"),
    *(
        Field(
            f"out_{n}_stride",
            _A,
            f"words the output moves per step of loop {n}",
            signed=True,
            default=0,
        )
        for n in POST_OUTPUT_LOOPS
    ),
    Field("scale", 32, "float32 factor; integers: multiplier in bits 0-15, shift in 16-21"),
)

_BATCH = (
    Field("first", 1, "no batch ends here; only the first BATCH that a run comes to may say so"),
    *(
        Field(
            f"{phase}_{parity}",
            32,
            f"offset in the memory window of the commands of the next batch if it is {kind} and "
            f"its number in this run is {parity}; a command of the program",
        )
        for phase, kind in (("bp", "WARM_UP or BP"), ("gp", "GP"))
        for parity in ("even", "odd")
    ),
)

#: Opcode -> fields behind the header that the engine takes, or for opcodes without a queue the
#: sequencer; in order from the least significant bit.
ENGINE_FIELDS = {
    Opcode.HALT: (),
    Opcode.LOAD: _DMA,
    Opcode.STORE: _DMA,
    Opcode.WEIGHTS: _WEIGHTS,
    Opcode.MATMUL: _MATMUL,
    Opcode.POST: _POST,
    Opcode.VECTOR: VECTOR,
    Opcode.LOSS: LOSS,
    Opcode.BATCH: _BATCH,
    Opcode.REPEAT: REPEAT,
    Opcode.ROWS: ROWS,
}

#: Opcode -> all fields behind the header, those for the sequencer behind those for the engine.
COMMANDS = ENGINE_FIELDS | {
    opcode: ENGINE_FIELDS[opcode] + LOOP_STRIDES for opcode in (Opcode.LOAD, Opcode.STORE)
}


#: Layout of the header, the low bits of every command.
HEADER_LAYOUT = fields_layout(HEADER)


def command_layout(opcode: Opcode) -> data.StructLayout:
    """Layout of the fields behind the header of ``opcode``'s commands."""
    return fields_layout(COMMANDS[opcode])


def engine_layout(opcode: Opcode) -> data.StructLayout:
    """Layout of those of them that the engine takes: the first ones."""
    return fields_layout(ENGINE_FIELDS[opcode])


for _opcode, _fields in COMMANDS.items():
    _used = sum(f.width for f in (*HEADER, *_fields))
    if _used > COMMAND_WIDTH:
        raise AssertionError(f"{_opcode.name} takes {_used} of {COMMAND_WIDTH} bits")


_DEFAULTS = {
    opcode: {field.name: int(field.default) for field in fields if field.default is not None}
    for opcode, fields in COMMANDS.items()
}
#: Places of all fields but the opcode.
_PLACES = {opcode: field_places((*HEADER, *COMMANDS[opcode])) for opcode in Opcode}
for _place in _PLACES.values():
    del _place["opcode"]
_REQUIRED = {
    opcode: frozenset(name for name, place in places.items() if place.default is None)
    for opcode, places in _PLACES.items()
}
#: Commands in which all fields have their defaults.
_WORDS = {
    opcode: opcode + sum((place.default or 0) << place.position for place in places.values())
    for opcode, places in _PLACES.items()
}
_DECODED = {
    int(opcode): (opcode, tuple((name, *place[:3]) for name, place in places.items()))
    for opcode, places in _PLACES.items()
}


def with_defaults(opcode: Opcode, values: dict[str, int]) -> dict[str, int]:
    """``values``, fields of a command behind its header, and the defaults of those not given."""
    return _DEFAULTS[opcode] | values


def encode(opcode: Opcode, **values: int) -> bytes:
    """Encode one command into :data:`COMMAND_BYTES` bytes.

    Fields that are not given take their defaults (:attr:`~hw.isa.field.Field.default`): a loop runs
    once and moves nothing, what can be switched on is off. Addresses of results, and whatever has
    no value that is right more often than others, must be given.

    Raises
    ------
    ValueError
        naming the field, its value and the range, or the field that is missing or unknown.
    """
    opcode = Opcode(opcode)
    word, places = _WORDS[opcode], _PLACES[opcode]
    if missing := _REQUIRED[opcode] - values.keys():
        name = next(name for name in places if name in missing)
        raise ValueError(f"{opcode.name} needs field {name}, which has no default")
    if unknown := [name for name in values if name not in places]:
        raise ValueError(f"{opcode.name} has no field {', '.join(unknown)}")
    for name, value in values.items():
        position, mask, _, low, high, default = places[name]
        if value != default:
            if not low <= int(value) <= high:
                allowed = f"from {low} to {high}, not {int(value)}"
                raise ValueError(f"{opcode.name} field {name} must be {allowed}")
            word ^= ((int(value) ^ (default or 0)) & mask) << position
    return word.to_bytes(COMMAND_BYTES, "little")


def decode(command: bytes) -> tuple[Opcode, dict[str, int]]:
    """Decode :data:`COMMAND_BYTES` bytes into ``(opcode, {field: value})``.

    Raises
    ------
    ValueError
        for a wrong length or an undefined opcode.
    """
    if len(command) != COMMAND_BYTES:
        raise ValueError(f"a command has {COMMAND_BYTES} bytes, not {len(command)}")
    word = int.from_bytes(command, "little")
    code = word & 0xFF
    if code not in _DECODED:
        raise ValueError(f"undefined command {code:#04x}")
    opcode, places = _DECODED[code]
    values = {}
    for name, position, mask, sign in places:
        value = (word >> position) & mask
        values[name] = value - ((value & sign) << 1)
    return opcode, values
