"""Functional points: classes of the fields, and what a log of the monitor reaches.

Covers: verif/coverage/sampling.py.
"""

import pytest

from hw.config import VARIANTS, make_config
from hw.isa.encoding import COMMANDS, HEADER, Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit
from verif.coverage.bins import classes, functional_points
from verif.coverage.monitor import waits
from verif.coverage.sampling import sample

CONFIG = make_config(variant="max", preset="tiny", rows=6, columns=5)
FIELDS = {opcode: {f.name: f for f in (*HEADER, *COMMANDS[opcode])} for opcode in Opcode}


def names(opcode, field, value, config=CONFIG):
    kinds = classes(FIELDS[opcode][field], config)
    return [kind.name for kind in kinds if kind.holds(value)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_value_is_in_at_most_one_class(variant, rng):
    """All but 0 of an address or a scale are in one."""
    config = make_config(variant=variant, preset="tiny", rows=6, columns=5)
    for opcode, fields in FIELDS.items():
        for field in fields.values():
            low, high = field.range
            for value in {low, high, *map(int, rng.integers(low, high, 20, endpoint=True))}:
                if field.enum is not None and value not in set(field.enum):
                    continue
                if "memory" in field.doc and not config.has_predictor_memory:
                    continue
                found = [kind.name for kind in classes(field, config) if kind.holds(value)]
                least = 0 if field.width > 24 and value == 0 else 1
                assert least <= len(found) <= 1, f"{opcode.name}.{field.name} = {value}: {found}"


def test_classes():
    counts = [names(Opcode.MATMUL, "wo_count", n)[0] for n in (1, 2, 3, 5, 6, 7, 65535)]
    assert counts == ["1", "2", "below the array", "the array's", "the array's",
                      "above the array", "largest"]  # fmt: skip
    assert names(Opcode.MATMUL, "init", 2) == ["ACCUMULATOR"]
    assert names(Opcode.MATMUL, "wo_stride", -1) == ["negative"]
    assert names(Opcode.LOAD, "buffer_address", 1 << 23) == ["memory 1"]
    assert names(Opcode.LOAD, "wait", 0x8001) == ["several"]
    assert names(Opcode.LOAD, "row_bytes", CONFIG.cores[0].word_bytes) == ["a word"]
    assert names(Opcode.MATMUL, "kh_step", 7) == ["above"]
    assert names(Opcode.POST, "scale", 0) == [] != names(Opcode.POST, "scale", 1)
    assert names(Opcode.LOAD, "run_stride", 0) == ["0"]


def log(*events):
    return [event if isinstance(event, str) else f"C {event:0128x}" for event in events]


LOAD = int.from_bytes(
    encode(Opcode.LOAD, core=1, buffer_address=0, dram_address=64, run_bytes=64, row_bytes=64),
    "little",
)


def test_commands_count_when_their_run_ends_well():
    point = next(p for p in functional_points(CONFIG) if p.what == "max: command LOAD on core 1")
    assert sample(CONFIG, log("R", "B", LOAD, LOAD, "F", "B", LOAD, "F"))[point] == 3
    assert point not in sample(CONFIG, log("B", LOAD, "E 1 2", "F"))
    assert point not in sample(CONFIG, log("B", LOAD, "R", "B", "F"))
    assert point not in sample(CONFIG, log("B", LOAD, "S", "B", "F"))


def test_errors_and_waits_count():
    counts = sample(CONFIG, log("B", f"E {ErrorCode.BUFFER_ADDRESS:d} {Unit.CORE1_POST:d}", "W 4"))
    wait = waits(CONFIG)[4]
    assert {point.what for point in counts} == {
        "max: error BUFFER_ADDRESS of CORE1_POST",
        f"max: wait {wait.opcode.name} on core {wait.core} for {wait.cause}",
    }
    assert set(counts) <= functional_points(CONFIG)


@pytest.mark.parametrize("line", ["X", "W 9999", "E 200 1", "C", "B\nQ 1"])
def test_a_log_that_is_wrong(line):
    with pytest.raises(ValueError, match="of the monitor's log"):
        sample(CONFIG, [*line.splitlines(), "F"])


def test_points_of_commands_are_points_that_there_are(rng):
    """Whatever a legal command reaches is known in advance."""
    known = functional_points(CONFIG)
    words = []
    for opcode in set(Opcode) - {Opcode.ROWS}:
        for _ in range(20):
            values = {}
            for field in FIELDS[opcode].values():
                if field.name not in ("opcode", "core"):
                    low, high = field.range
                    choice = list(field.enum) if field.enum else [low, high, min(high, 3)]
                    values[field.name] = int(rng.choice(choice))
            words.append(int.from_bytes(encode(opcode, **values), "little"))
    counts = sample(CONFIG, log("B", *words, "F"))
    assert set(counts) <= known and len(counts) > 300
