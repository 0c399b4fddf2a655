"""Loops of commands on the whole accelerator against the interpreter, and against the same commands
written out."""

import pytest

from emulator.interpreter import interpret
from hw.config import make_config
from hw.isa.encoding import Opcode, decode
from verif.programs.repeat_programs import repeat_program
from verif.system import accelerator

CONFIGS = {
    "max": {"variant": "max"},
    "3x5": {"variant": "low", "rows": 3, "columns": 5},
    "int8": {"variant": "baseline", "rows": 5, "columns": 3, "operand_format": "int8"},
}


def interpreted(program, commands, seed):
    memory = bytearray(program.image)
    result = interpret(program.config, b"".join(commands), memory, seed=seed)
    assert not result.semaphores, program.name
    return bytes(memory)


def compare(program, actual, expected):
    place = next((i for i, pair in enumerate(zip(actual, expected)) if pair[0] != pair[1]), None)
    assert place is None, (
        f"{program.name}: byte {place:#x} is {actual[place]:#04x}, expected {expected[place]:#04x}"
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_loops_are_what_is_written_out(name, seed):
    config = make_config(preset="tiny", **CONFIGS[name])
    for core in config.cores:
        program = repeat_program(config, core.index, seed, depth=2)
        assert len(program.written_out) > len(program.commands)
        after = interpreted(program, program.written_out, seed)
        assert after != program.image
        for order in range(2):
            compare(program, interpreted(program, program.commands, seed + order), after)


def test_programs_have_all_that_loops_can_do(seed):
    config = make_config(preset="tiny", variant="max")
    seen = set()
    for number in range(6):
        for command in repeat_program(config, 0, seed + number).commands:
            opcode, fields = decode(command)
            if opcode is Opcode.REPEAT:
                seen |= {("level", fields["level"]), ("once", fields["count"] == 1)}
            for level in range(4):
                if opcode in (Opcode.LOAD, Opcode.STORE):
                    stride = fields[f"loop{level}_stride"]
                    seen.add((opcode, level, (stride > 0) - (stride < 0)))
    signs = (-1, 0, 1)
    opcodes = (Opcode.LOAD, Opcode.STORE)
    wanted = {(opcode, level, sign) for opcode in opcodes for level in range(4) for sign in signs}
    wanted |= {("level", level) for level in range(4)} | {("once", True), ("once", False)}
    assert wanted <= seen, wanted - seen


def test_accelerator(seed):
    """Each program twice, without a reset, on a memory that stalls."""
    config = make_config(preset="tiny", **CONFIGS["max"])
    programs = [repeat_program(config, core.index, seed + core.index) for core in config.cores]
    expected = [interpreted(program, program.written_out, seed) for program in programs]
    simulator = accelerator.build(config)
    runs = [accelerator.Run.of(program) for program in programs]
    outcomes, _ = accelerator.run(
        simulator, [*runs, *runs], seed=seed, stall_share=0.1, latency=20, timeout_cycles=100_000
    )
    for number, outcome in enumerate(outcomes):
        program, record = programs[number % len(programs)], outcome.record
        assert record.done and not record.error, f"{program.name}: {record.code}"
        compare(program, outcome.memory, expected[number % len(programs)])
