"""Lists of rows on the whole accelerator, the emulator and the interpreter.

Covers: hw/control/row_list.py, hw/isa/rows.py, emulator/program.py, emulator/vector.py.
"""

import pytest

from compiler.codegen.disassemble import disassemble
from emulator.executor import execute
from emulator.interpreter import FunctionalError, interpret
from emulator.machine import Machine
from hw.config import make_config
from hw.isa.encoding import Opcode, decode, encode
from hw.isa.execution import dispatched
from hw.isa.rows import RowAction
from perf.machine import model
from verif.programs.faulty_programs import HALT, vector
from verif.programs.row_programs import row_program
from verif.system import accelerator
from verif.system.record import BASE

CONFIGS = {
    "max": {"variant": "max", "row_list_depth": 9},
    "3x5": {"variant": "low", "rows": 3, "columns": 5, "row_list_depth": 7},
    "fp8": {"variant": "baseline", "operand_format": "fp8_e5m2", "row_list_depth": 8},
}


def compare(actual, expected):
    place = next((i for i, pair in enumerate(zip(actual, expected)) if pair[0] != pair[1]), None)
    assert place is None, (
        f"byte {place:#x} is {actual[place]:#04x}, expected {expected[place]:#04x}"
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_models(name, seed):
    program = row_program(make_config(preset="tiny", **CONFIGS[name]), seed)
    assert program.expected != program.image
    for order in range(3):
        memory = bytearray(program.image)
        result = interpret(program.config, program.program, memory, seed=seed + order)
        assert not result.semaphores
        compare(memory, program.expected)
    memory = bytearray(program.image)
    machine = Machine(program.config, memory)
    assert list(execute(machine, program.program)) == []
    compare(memory, program.expected)


def test_a_program_by_the_lengths_of_its_lists(seed):
    """Which commands come, for those who have no data; and what they look like."""
    program = row_program(make_config(preset="tiny", **CONFIGS["max"]), seed, lists=2)
    commands = [decode(command) for command in program.commands]
    begins = [place for place, (opcode, fields) in enumerate(commands)
              if opcode is Opcode.ROWS and fields["action"] == RowAction.BEGIN]  # fmt: skip
    for lengths in ((0, 1), (1, 0)):
        kept = [[True] * length for length in lengths]
        places = [place for place, _ in dispatched(commands, lists=kept)]
        assert places[-1] == len(commands) - 1
        ladders = [place for place in places if place - 3 in begins or place - 4 in begins]
        assert ladders == [begins[n] + 3 + length for n, length in enumerate(lengths)]
    text = list(disassemble(program.program))
    assert text[1].split()[1:] == [
        "-",
        "ROWS",
        "level=3",
        "position=0",
        "first=0x0",
        "action=BEGIN",
    ]


def test_what_must_not_be(seed):
    config = make_config(preset="tiny", variant="baseline", row_list_depth=2)

    def rows(action, **fields):
        return encode(Opcode.ROWS, action=action, level=0, **fields)

    def run(*commands):
        interpret(config, b"".join([*commands, HALT]), bytearray(4096), seed=seed)

    with pytest.raises(FunctionalError, match="no VECTOR has filled the list yet"):
        run(rows(RowAction.BEGIN), rows(RowAction.PICK))
    load = encode(
        Opcode.LOAD, buffer_address=0, dram_address=0, run_bytes=24, row_bytes=8, signal=1
    )
    many = (load, rows(RowAction.BEGIN), vector(config, steps=3, wait=1))
    with pytest.raises(FunctionalError, match="3 rows, of which the list can have 2"):
        run(*many, rows(RowAction.BRANCH, first=0))
    with pytest.raises(FunctionalError, match="first 0x1000 is no command of the program"):
        run(*many, rows(RowAction.JOIN, first=4096))
    with pytest.raises(FunctionalError, match="ROWS has no core and no semaphores"):
        run(rows(RowAction.BEGIN, wait=1))
    plain = make_config(preset="tiny", variant="baseline")
    with pytest.raises(FunctionalError, match="no such core, engine or semaphore"):
        interpret(plain, rows(RowAction.BEGIN) + HALT, bytearray(4096))


@pytest.mark.long
def test_accelerator(seed):
    """Several programs, each twice, without a reset, on a memory that stalls."""
    config = make_config(preset="tiny", variant="baseline", row_list_depth=9)
    programs = [row_program(config, seed + number) for number in range(3)]
    simulator = accelerator.build(config)
    runs = [accelerator.Run.of(program) for program in programs]
    outcomes, _ = accelerator.run(
        simulator, [*runs, *runs], seed=seed, stall_share=0.1, latency=20, timeout_cycles=100_000
    )
    for number, outcome in enumerate(outcomes):
        record = outcome.record
        assert record.done and not record.error, f"program {number}: {record.code}"
        compare(outcome.memory, programs[number % len(programs)].expected)


@pytest.mark.long
def test_the_model_counts_the_same_cycles(seed):
    config = make_config(preset="tiny", variant="baseline", row_list_depth=9)
    programs = [row_program(config, seed + number) for number in range(3)]
    runs = [accelerator.Run.of(program) for program in programs]
    outcomes, _ = accelerator.run(accelerator.build(config), runs, seed=seed, latency=20)
    for program, outcome in zip(programs, outcomes, strict=True):
        found = model.run(program.program, config, latency=20, base=BASE, lists=program.kept)
        assert found.cycles == outcome.record.cycles
