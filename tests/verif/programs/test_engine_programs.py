"""VECTOR and LOSS on the whole accelerator against the interpreter, bit for bit.

Covers: hw/control/core.py, verif/system/accelerator.py, verif/system/cocotb_device.py,
verif/system/record.py, verif/system/simulator.py.
"""

import pytest

from emulator.interpreter import interpret
from emulator.machine import FunctionalError
from golden.arithmetic.dot_product import Flags
from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from verif.programs.engine_programs import (
    busy_program,
    loss_program,
    product_program,
    vector_program,
)
from verif.system import accelerator
from verif.system.record import BASE

CONFIGS = {
    "max": {"variant": "max"},
    "efficient": {"variant": "efficient"},
    "5x3": {"variant": "low", "rows": 5, "columns": 3},  # the simulator of test_adagp_run.py
    "fp8": {"variant": "max", "rows": 6, "predictor_rows": 2, "operand_format": "fp8_e5m2"},
}


def config_of(name):
    return make_config(preset="tiny", **CONFIGS[name])


def programs(config, seed):
    yield loss_program(config, seed)
    for core in config.cores:
        yield product_program(config, core.index, seed)
        for guard in (False, True):
            yield vector_program(config, core.index, seed, guard=guard)


def interpreted(program, seed):
    """Memory window and result of the interpreter."""
    memory = bytearray(program.image)
    result = interpret(
        program.config, program.program, memory, seed=seed,
        coefficients=program.coefficients, sample_seed=program.sample_seed, guard=program.guard,
    )  # fmt: skip
    assert not result.semaphores, program.name
    return bytes(memory), result


@pytest.mark.parametrize("name", CONFIGS)
def test_every_order_gives_the_same(name, seed):
    config = config_of(name)
    for program in programs(config, seed):
        first, result = interpreted(program, seed)
        assert first != program.image
        assert result.overlap > 1 or len({decode(c)[0] for c in program.body}) == 1
        for order in range(1, 4):
            program.compare(interpreted(program, seed + order)[0], first)


@pytest.mark.parametrize("core", [0, 1])
def test_everything_at_once(core, seed):
    """All engines work at once, in any order. On the accelerator: the coverage campaign."""
    program = busy_program(config_of("max"), core, seed)
    first, result = interpreted(program, seed)
    assert result.overlap >= 3
    program.compare(interpreted(program, seed + 1)[0], first)
    masks = [decode(command)[1] for command in program.body]
    assert sum(fields["wait"].bit_count() > 1 for fields in masks) >= 5


@pytest.mark.parametrize("name", ["max", pytest.param("efficient", marks=pytest.mark.long), "5x3"])
def test_accelerator(name, seed):
    """Every program twice, one after the other without a reset, on a memory that stalls."""
    config = config_of(name)
    runs, wanted = [], []
    for program in programs(config, seed):
        run = accelerator.Run(
            image=program.image, program_size=len(program.program), registers=program.registers
        )
        runs += [run, run]
        wanted += [(program, interpreted(program, seed))] * 2
    simulator = accelerator.build(config, memory_bytes=BASE + max(len(r.image) for r in runs))
    outcomes, _ = accelerator.run(
        simulator, runs, seed=seed, stall_share=0.2, latency=10, timeout_cycles=300_000
    )
    rejected = 0
    for (program, (memory, result)), outcome in zip(wanted, outcomes, strict=True):
        record, core = outcome.record, program.core
        assert record.done and not record.error, f"{program.name}: {record.code} of {record.unit}"
        program.compare(outcome.memory, memory)
        flags = [sum(part[flag.name] * flag for flag in Flags) for part in record.flags]
        assert flags[core] == result.flags, f"{program.name}: flags {flags}, not {result.flags:#x}"
        counters = record.counters
        count = counters[f"CORE{core}_VECTOR_REJECTED"]
        assert count == result.rejected[core], f"{program.name}: {count} rejected"
        assert record.flags[core]["REJECTED"] == (count > 0), program.name
        rejected += count
        opcodes = {decode(command)[0] for command in program.body}
        for opcode in (Opcode.VECTOR, Opcode.LOSS):
            busy = counters[f"CORE{core}_{opcode.name}_BUSY"]
            assert (busy > 0) == (opcode in opcodes), f"{program.name}: {opcode.name} {busy}"
    assert rejected, "the guard never found anything"


def test_coefficients_count_from_the_next_start_on(seed):
    """The same program with other numbers in the registers."""
    config = config_of("max")
    program = product_program(config, 0, seed)
    runs, wanted = [], []
    for values in ([0x3F800000] * 8, [0xC0000000] * 8, [0x7FC00000] * 8):
        registers = {f"COEFFICIENT{number}": value for number, value in enumerate(values)}
        runs.append(
            accelerator.Run(
                image=program.image, program_size=len(program.program), registers=registers
            )
        )
        memory = bytearray(program.image)
        interpret(config, program.program, memory, coefficients=values)
        wanted.append(bytes(memory))
    assert len(set(wanted)) == 3
    simulator = accelerator.build(config, memory_bytes=BASE + len(program.image))
    outcomes, _ = accelerator.run(simulator, runs, seed=seed, timeout_cycles=300_000)
    for outcome, memory in zip(outcomes, wanted, strict=True):
        assert outcome.record.done
        program.compare(outcome.memory, memory)


@pytest.mark.parametrize("kind", [Opcode.POST, Opcode.VECTOR, Opcode.STORE, Opcode.LOSS])
def test_missing_waits_are_noticed_in_some_order(kind, seed):
    config = config_of("max")
    program = product_program(config, 0, seed)
    commands, good = bytearray(program.program), interpreted(program, seed)[0]
    for index in range(0, len(commands), COMMAND_BYTES):
        opcode, fields = decode(commands[index : index + COMMAND_BYTES])
        if opcode is kind:
            commands[index : index + COMMAND_BYTES] = encode(opcode, **fields | {"wait": 0})
    for order in range(10):
        memory = bytearray(program.image)
        try:
            interpret(
                config, bytes(commands), memory, seed=order, coefficients=program.coefficients
            )
        except FunctionalError:
            return
        if memory != good:
            return
    raise AssertionError(f"nobody notices that {kind.name} does not wait")


def test_the_comparison_can_fail(seed):
    program = vector_program(config_of("max"), 0, seed, guard=False)
    memory, _ = interpreted(program, seed)
    wrong = bytearray(memory)
    wrong[program.results + program.contents[0].nbytes] ^= 1
    with pytest.raises(AssertionError, match="word 0x1, lane 0 is 0x"):
        program.compare(bytes(wrong), memory)
    wrong = bytearray(memory)
    wrong[-1] ^= 1
    with pytest.raises(AssertionError, match="of the window is 0x"):
        program.compare(bytes(wrong), memory)
