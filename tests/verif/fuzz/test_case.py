"""Cases as numbers, and commands by their places.

Covers: verif/fuzz/commands.py, verif/fuzz/generate.py, verif/fuzz/tables.py.
"""

import json
import random
import re

import pytest

from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.registers.map import register_map
from verif.fuzz.case import Case, Slave, case_from_json
from verif.fuzz.commands import CommandFuzzer, opcode_of, places
from verif.fuzz.generate import Generator
from verif.fuzz.good import good_programs
from verif.fuzz.tables import tables

CONFIGS = {
    "baseline": {"variant": "baseline"},
    "odd": {"variant": "max", "rows": 5, "columns": 3, "predictor_rows": 3,
            "predictor_columns": 4, "axi_data_width": 128, "command_queue_depth": 1},
    "int8": {"variant": "low", "operand_format": "int8"},
}  # fmt: skip


def config_of(name):
    return make_config(preset="tiny", **CONFIGS[name])


@pytest.mark.parametrize("opcode", list(Opcode))
def test_places_are_those_of_the_encoding(opcode, rng):
    """What :func:`decode` reads is what was put in, field by field."""
    command, wanted = int(opcode), {}
    for place in places(opcode)[1:]:
        value = int(rng.integers(1 << place.width))
        command = place.put(command, value)
        assert place.get(command) == value
        wanted[place.name] = value
    code, values = decode(command.to_bytes(COMMAND_BYTES, "little"))
    assert code is opcode
    found = {p.name: values[p.name] & (1 << p.width) - 1 for p in places(opcode)[1:]}
    assert found == wanted


def test_commands_of_every_kind(seed):
    """Over a few thousand commands every opcode comes, legal and illegal ones."""
    config = config_of("baseline")
    rng = random.Random(seed)
    goods = good_programs(config, seed)
    fuzzer = CommandFuzzer(config, [command for good in goods for command in good.commands])
    case = {"program": 0, "size": 0x2000, "commands": [1] * 4}
    legal, opcodes = 0, set()
    for _ in range(2000):
        command = fuzzer.random(rng, case)
        opcode, values = decode(command.to_bytes(COMMAND_BYTES, "little"))
        opcodes.add(opcode)
        try:
            encode(opcode, **values)
            legal += 1
        except ValueError:
            pass
    assert opcodes == set(Opcode) - {Opcode.HALT, Opcode.ROWS}
    assert 1000 < legal < 2000
    assert any(opcode_of(fuzzer.mutate(rng, 1, case)) is None for _ in range(2000))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("adversarial", [False, True])
def test_a_case_depends_on_its_number_only(name, adversarial, seed):
    config = config_of(name)
    goods = good_programs(config, seed)
    one = Generator(config, goods, seed=seed, adversarial=adversarial)
    other = Generator(config, goods, seed=seed, adversarial=adversarial)
    backwards = [other.case(number) for number in reversed(range(300))]
    cases = [one.case(number) for number in range(300)]
    assert cases == backwards[::-1]
    assert len({case.packed() for case in cases}) == 300
    assert all(bool(case.commands) != adversarial for case in cases)
    assert max(case.slave.read_high for case in cases) > 100


def test_json_keeps_everything(seed):
    config = config_of("odd")
    generator = Generator(config, good_programs(config, seed), seed=seed)
    for number in range(200):
        case = generator.case(number, fresh=number % 2 == 0)
        assert case_from_json(json.loads(json.dumps(case.as_json()))) == case


@pytest.mark.parametrize(
    ("values", "message"),
    [({"bases": 1}, "a case has no bases"), ({"slave": {"ready": 1}}, "a slave has no ready")],
)
def test_unknown_names_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        case_from_json(values)


def test_packed_length():
    """Numbers of 64 bits, then three lists behind their lengths."""
    empty = len(Case(slave=Slave()).packed())
    full = Case(registers=((4, 1),), script=((1, 2, 3, 4, 5),), commands=(1, 2))
    assert len(full.packed()) == empty + 2 * 4 + 5 * 4 + 2 * COMMAND_BYTES


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_are_those_of_the_registers(name):
    config = config_of(name)
    text = tables(config)
    registers = register_map(config)
    access = re.search(r"ACCESS\[\] = \{(.*)\}", text)[1].split(", ")
    for register in registers:
        kind = "123"[register.writable + register.locked]
        assert access[register.offset // 4] == kind, register.name
    assert access.count("0") == len(access) - len({r.offset for r in registers})
    assert f"BEAT_BYTES = {config.beat_bytes};" in text
