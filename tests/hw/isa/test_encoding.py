"""Commands as bytes: what is given, what takes a default, and what is refused.

Covers: hw/isa/array.py.
"""

import random

import pytest

from hw.isa.encoding import (
    COMMANDS,
    ENGINE_FIELDS,
    HEADER,
    HEADER_LAYOUT,
    Opcode,
    Pool,
    command_layout,
    decode,
    encode,
    engine_layout,
    pack_engine_fields,
    with_defaults,
)
from hw.isa.field import field_places
from hw.isa.packing import PACKED_CODE, PACKED_SHIFT, WORD_BYTES
from hw.isa.vector import VECTOR_LOOPS, Source, Watch

#: What has no value that is right more often than others.
REQUIRED = {
    Opcode.HALT: set(),
    Opcode.LOAD: {"buffer_address", "dram_address", "run_bytes", "row_bytes"},
    Opcode.STORE: {"buffer_address", "dram_address", "run_bytes", "row_bytes"},
    Opcode.WEIGHTS: {"address", "row_stride", "row_limit", "transpose"},
    Opcode.MATMUL: {"accumulator_bank", "channels", "x_address"}
    | {"h_origin", "w_origin", "h_limit", "w_limit"},
    Opcode.POST: {"accumulator_bank", "channels", "out_address", "out_group", "scale"},
    Opcode.VECTOR: set(),
    Opcode.LOSS: {field.name for field in COMMANDS[Opcode.LOSS]},
    Opcode.BATCH: {field.name for field in COMMANDS[Opcode.BATCH]},
    Opcode.REPEAT: {field.name for field in COMMANDS[Opcode.REPEAT]},
    Opcode.ROWS: {"level", "action"},
}


def required(opcode):
    """Legal values of the fields that must be given."""
    fields = {field.name: field for field in COMMANDS[opcode]}
    return {name: fields[name].range[1] for name in REQUIRED[opcode]}


@pytest.mark.parametrize("opcode", list(Opcode))
def test_only_fields_without_default_are_needed(opcode):
    encode(opcode, **required(opcode))
    for name in REQUIRED[opcode]:
        others = {key: value for key, value in required(opcode).items() if key != name}
        with pytest.raises(ValueError, match=f"^{opcode.name} needs field {name}, which has no"):
            encode(opcode, **others)


@pytest.mark.parametrize("opcode", list(Opcode))
def test_defaults_are_what_is_decoded(opcode):
    values = required(opcode)
    found, fields = decode(encode(opcode, **values))
    assert found is opcode
    for field in (*HEADER[1:], *COMMANDS[opcode]):
        wanted = values.get(field.name, field.default)
        assert fields[field.name] == wanted, f"{field.name}: {fields[field.name]}, not {wanted}"
    own = {field.name for field in COMMANDS[opcode]}
    expected = {name: value for name, value in fields.items() if name in own}
    assert with_defaults(opcode, values) == expected


@pytest.mark.parametrize(
    ("opcode", "names", "most"),
    [
        (Opcode.LOAD, ["dram_address"], 1),
        (Opcode.STORE, ["dram_address"], 1),
        (Opcode.WEIGHTS, ["skip", "address"], 2),
        (Opcode.MATMUL, ["accumulator_bank", "accumulator_address"], 1),
        (Opcode.MATMUL, ["x_address"], 1),
        (Opcode.POST, ["out_address", "out_group"], 1),
        (Opcode.VECTOR, ["x_address", "o_address"], 2),
        (Opcode.VECTOR, ["x_address", "y_address", "z_address", "o_address"], 3),
    ],
)
def test_what_differs_between_commands_is_in_few_words(opcode, names, most):
    """These words are all that a packed command takes for them. (The last 2 bits of the address of
    a tile are the memory, which does not change.)"""
    places, bits = field_places((*HEADER, *COMMANDS[opcode])), 8 * WORD_BYTES
    words = set()
    for name in names:
        place = places[name]
        last = place.position + place.mask.bit_length() - 1
        words |= set(range(place.position // bits, last // bits + 1))
    assert len(words) <= most, f"{names}: words {sorted(words)}"


@pytest.mark.parametrize("opcode", list(Opcode))
def test_bits_that_no_field_has_mean_nothing(opcode, seed):
    """They are zeros, and are not looked at."""
    rng = random.Random(seed)
    command = encode(opcode, **required(opcode))
    used = sum(p.mask << p.position for p in field_places((*HEADER, *COMMANDS[opcode])).values())
    word, free = int.from_bytes(command, "little"), ~used & (1 << 8 * len(command)) - 1
    assert not word & free
    other = word | rng.getrandbits(8 * len(command)) & free
    assert decode(other.to_bytes(len(command), "little")) == decode(command)


@pytest.mark.parametrize("opcode", list(Opcode))
def test_layouts_and_numbers_agree(opcode, seed):
    """What the hardware sees of a command, and the fields that the engine takes of it."""
    rng = random.Random(seed)
    values = {f.name: rng.randint(*f.range) for f in COMMANDS[opcode]}
    command = int.from_bytes(encode(opcode, **values), "little")
    engine = command >> HEADER_LAYOUT.size & (1 << engine_layout(opcode).size) - 1
    assert pack_engine_fields(opcode, values) == engine
    for layout, fields in (
        (command_layout(opcode), COMMANDS[opcode]),
        (engine_layout(opcode), ENGINE_FIELDS[opcode]),
    ):
        assert [name for name, _ in layout] == [field.name for field in fields]
        for field in fields:
            offset = HEADER_LAYOUT.size + layout[field.name].offset
            found = command >> offset & (1 << field.width) - 1
            assert found == values[field.name] & (1 << field.width) - 1, field.name


def test_no_opcode_is_taken_for_a_packed_command():
    for opcode in Opcode:
        assert int(opcode) >> PACKED_SHIFT != PACKED_CODE, opcode.name


def test_defaults_run_every_loop_once_and_move_nothing():
    for opcode, fields in COMMANDS.items():
        for field in fields:
            if field.name in REQUIRED[opcode]:
                continue
            if field.name.endswith("_count"):
                assert field.default == 1, f"{opcode.name} {field.name}"
            elif field.name.endswith(("_stride", "_step")):
                assert field.default == 0, f"{opcode.name} {field.name}"
            low, high = field.range
            assert low <= field.default <= high, f"{opcode.name} {field.name}: {field.default}"


def test_default_vector_copies_one_word():
    _, fields = decode(encode(Opcode.VECTOR))
    changed = {name: value for name, value in fields.items() if value}
    assert changed == {
        "y_source": Source.IMMEDIATE,
        "z_source": Source.IMMEDIATE,
        "channels": 0xFFFF,
        **{f"{loop}_count": 1 for loop in VECTOR_LOOPS},
    }


def test_what_is_given_comes_before_the_default(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    for opcode, fields in COMMANDS.items():
        values = {field.name: rng.randint(*field.range) for field in fields}
        header = {"core": 1, "wait": rng.getrandbits(32), "signal": rng.getrandbits(32)}
        assert decode(encode(opcode, **values, **header)) == (opcode, header | values)
        assert with_defaults(opcode, values) == values


@pytest.mark.parametrize(
    ("opcode", "fields", "message"),
    [
        (Opcode.POST, {"wo_count": 0}, "POST field wo_count must be from 1 to 65535, not 0"),
        (Opcode.MATMUL, {"channels": 0}, "MATMUL field channels must be from 1 to 65535, not 0"),
        (Opcode.POST, {"pool": Pool.SUM + 1}, "POST field pool must be from 0 to 1, not 2"),
        (Opcode.WEIGHTS, {"kw_stride": 1 << 23}, "from -8388608 to 8388607, not 8388608"),
        (Opcode.VECTOR, {"watch": Watch.MORE + 2}, "VECTOR field watch must be from 0 to 3, not 4"),
        (Opcode.VECTOR, {"waits": 1, "cores": 0}, "VECTOR has no field waits, cores"),
        (Opcode.HALT, {"core": 2}, "HALT field core must be from 0 to 1, not 2"),
    ],
)
def test_messages(opcode, fields, message):
    with pytest.raises(ValueError, match=message):
        encode(opcode, **required(opcode) | fields)
