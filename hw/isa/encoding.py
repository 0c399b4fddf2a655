"""The one command encoding: hardware, compiler, disassembler and documentation read it.

A program is a list of commands of :data:`COMMAND_BYTES` bytes in DRAM, little-endian, executed
from the first to ``HALT``; ``BATCH`` goes on elsewhere in it. Every command starts with the same
header; the fields behind it depend on the opcode. Unused bits are zero. HALT, BATCH, REPEAT and
ROWS belong to the sequencer (:func:`control_opcodes`). HALT and BATCH let everything before them
finish first. REPEAT waits for nothing: behind the commands of a loop it goes back to the first of
them until they have been executed ``count`` times. The loop has a counter, by its level, 0 in the
first time through and counting up; LOAD and STORE add its multiples to their address. ROWS makes a
list of rows and goes by it.

Packed commands (:mod:`hw.isa.packing`) have those 32-bit words that differ from another command's.
So what differs from command to command, the addresses, lies in as few words as possible.

The others go to queues: each core has one for every opcode that it executes
(:func:`queue_opcodes`). They work at the same time, each in order. Semaphores order them: a command
starts when every semaphore in its ``wait`` mask is above zero, and takes one from each; when it has
finished (its data is in place, write responses included) it adds one to each semaphore in its
``signal`` mask. Weight tiles go from WEIGHTS to MATMUL in order and without semaphores: MATMUL
waits for the tiles it takes.
"""

import enum
from collections.abc import Mapping

from amaranth.lib import data

from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig, CoreConfig

from .array import (
    MATMUL,
    MATMUL_LOOPS,
    POST,
    POST_LOOPS,
    POST_OUTPUT_LOOPS,
    WEIGHTS,
    WEIGHTS_LOOPS,
    Init,
    Pool,
)
from .field import BUFFER_ADDRESS_NOTE, Field, field_places, fields_layout, pack_fields
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
    "pack_engine_fields",
    "queue_opcodes",
    "with_defaults",
]
COMMAND_WIDTH = 8 * COMMAND_BYTES
#: Bits of the size of the memory window. Offsets have 32, so 4 GiB is the most that is of use.
MEMORY_SIZE_WIDTH = 33
SEMAPHORE_MASK_WIDTH = 32


class Opcode(enum.IntEnum):
    """Command codes, less than 64; 0 is undefined on purpose: cleared memory is an error."""

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


_A = BUFFER_ADDRESS_WIDTH

HEADER = (
    Field("opcode", 8, "command code", enum=Opcode),
    Field("core", 1, "core whose queue takes the command (0 main, 1 predictor)", default=0),
    Field("wait", SEMAPHORE_MASK_WIDTH, "semaphores to take one from before starting", default=0),
    Field("signal", SEMAPHORE_MASK_WIDTH, "semaphores to add one to when finished", default=0),
)


_DMA = (
    Field("buffer_address", _A, f"first word; words are consecutive; {BUFFER_ADDRESS_NOTE}"),
    Field("run_count", 16, "number of runs", minimum=1, default=1),
    Field("run_bytes", 32, "contiguous bytes per run; multiple of row_bytes", minimum=1, align=32),
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
    Opcode.WEIGHTS: WEIGHTS,
    Opcode.MATMUL: MATMUL,
    Opcode.POST: POST,
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


def command_layout(opcode: Opcode) -> data.FlexibleLayout:
    """Layout of the fields behind the header of ``opcode``'s commands."""
    return fields_layout(COMMANDS[opcode], HEADER_LAYOUT.size)


def engine_layout(opcode: Opcode) -> data.FlexibleLayout:
    """Layout of those of them that the engine takes: the first ones."""
    return fields_layout(ENGINE_FIELDS[opcode], HEADER_LAYOUT.size)


def pack_engine_fields(opcode: Opcode, values: Mapping[str, int]) -> int:
    """A number of that layout, as :func:`~hw.isa.field.pack_fields` makes it."""
    return pack_fields(ENGINE_FIELDS[opcode], values, HEADER_LAYOUT.size)


for _opcode, _fields in COMMANDS.items():
    _used = fields_layout((*HEADER, *_fields)).size
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
