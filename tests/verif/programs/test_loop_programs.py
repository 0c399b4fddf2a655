"""Random loops of WEIGHTS, MATMUL and POST on the whole accelerator against the interpreter."""

import pytest

from emulator.interpreter import interpret
from hw.config import make_config
from hw.isa.encoding import Opcode, decode
from verif.programs.loop_programs import loop_program
from verif.system import accelerator
from verif.system.record import BASE

CONFIGS = {
    "max": {"variant": "max"},
    "3x2": {"variant": "low", "rows": 3, "columns": 2},
    "int8": {"variant": "baseline", "rows": 5, "columns": 3, "operand_format": "int8"},
}


def interpreted(program, seed):
    memory = bytearray(program.image)
    result = interpret(program.config, program.program, memory, seed=seed)
    assert not result.semaphores, program.name
    return bytes(memory)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_order_gives_the_same(name, seed):
    config = make_config(preset="tiny", **CONFIGS[name])
    for core in config.cores:
        program = loop_program(config, core.index, seed)
        first = interpreted(program, seed)
        assert first != program.image
        for order in range(1, 4):
            program.compare(interpreted(program, seed + order), first)


def test_loops_of_every_kind(seed):
    """Fields that no layer sets occur: strides backwards, transposed operands, sums of sums."""
    config = make_config(preset="tiny", variant="max")
    seen = set()
    for number in range(4):
        for command in loop_program(config, 0, seed + number).body:
            opcode, fields = decode(command)
            if opcode is Opcode.MATMUL:
                seen |= {("init", fields["init"]), ("transpose", fields["transpose"])}
                seen.add(("backwards", fields["cb_stride"] < 0 and fields["cb_count"] > 1))
            if opcode is Opcode.POST:
                seen.add(("backwards out", fields["out_n_stride"] < 0 and fields["n_count"] > 1))
    wanted = {("init", n) for n in range(3)} | {("transpose", 0), ("transpose", 1)}
    assert wanted | {("backwards", True), ("backwards out", True)} <= seen


@pytest.mark.long
def test_accelerator(seed):
    """Each program twice, without a reset, on a memory that stalls."""
    config = make_config(preset="tiny", **CONFIGS["max"])
    programs = [loop_program(config, core.index, seed) for core in config.cores]
    runs = [accelerator.Run.of(program) for program in programs]
    simulator = accelerator.build(config, memory_bytes=BASE + max(len(r.image) for r in runs))
    outcomes, _ = accelerator.run(
        simulator, [*runs, *runs], seed=seed, stall_share=0.2, latency=10, timeout_cycles=300_000
    )
    for program, outcome in zip([*programs, *programs], outcomes, strict=True):
        record = outcome.record
        assert record.done and not record.error, f"{program.name}: {record.code} of {record.unit}"
        program.compare(outcome.memory, interpreted(program, seed))
