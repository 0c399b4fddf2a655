"""The interpreter notices what a program must not do; also emulator/vector.py and emulator/loss.py,
whose commands run in programs only. Others step by step: test_machine.py."""

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from emulator.batch_loop import BatchLoop
from emulator.interpreter import FunctionalError, interpret
from golden.prediction.schedule import ScheduleConfig
from hw.config import make_config
from hw.isa.encoding import (
    HEADER_LAYOUT,
    Opcode,
    command_layout,
    decode,
    encode,
)
from verif.programs.faulty_programs import dma, loss, matmul, post, vector, weights

CONFIG = make_config(variant="baseline", preset="tiny")
LOAD = {
    "buffer_address": 0,
    "dram_address": 0,
    "run_bytes": 8,
    "run_count": 1,
    "run_stride": 0,
    "row_bytes": 8,
}


def program(*commands, halt=True):
    encoded = [encode(opcode, **fields) for opcode, fields in commands]
    return b"".join([*encoded, *([encode(Opcode.HALT)] if halt else [])])


def run(*commands, halt=True, **options):
    return interpret(CONFIG, program(*commands, halt=halt), bytearray(256), **options)


def test_copy():
    memory = bytearray(range(256))
    commands = program(
        (Opcode.LOAD, {**LOAD, "run_count": 3, "run_stride": 16, "signal": 1}),
        (Opcode.STORE, {**LOAD, "dram_address": 128, "run_bytes": 24, "wait": 1}),
    )
    assert interpret(CONFIG, commands, memory).semaphores == {}
    expected = [*range(8), *range(16, 24), *range(32, 40)]
    assert list(memory[128:152]) == expected
    assert memory[152] == 152


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dram_address": 252}, "no multiple of 8"),
        ({"dram_address": 256}, "DRAM has 256 entries, none at 0x100"),
        ({"buffer_address": 2048}, "memory 0 has 2048 words, none at 0x800"),
        ({"buffer_address": 1 << 23}, "core 0 does not reach memory 1"),
        ({"run_bytes": 24, "row_bytes": 16}, "run_bytes is no multiple of row_bytes"),
        ({"wait": 2}, "deadlock: waiting commands 0"),
        ({"wait": 1 << 16}, "no such core, engine or semaphore"),
        ({"core": 1}, "no such core, engine or semaphore"),
    ],
)
def test_bad_loads(changes, message):
    with pytest.raises(FunctionalError, match=message):
        run((Opcode.LOAD, {**LOAD, **changes}))


def test_reads_of_what_was_never_written():
    with pytest.raises(FunctionalError, match="memory 0 entry 0x0 byte 0 is read but was never"):
        run((Opcode.STORE, LOAD))
    with pytest.raises(FunctionalError, match="DRAM entry 0x4 byte 0 is read but was never"):
        run((Opcode.LOAD, LOAD), unwritten=[(4, 2)])


def test_undefined_command_and_missing_halt():
    with pytest.raises(FunctionalError, match="command 1: undefined command 0x00"):
        interpret(CONFIG, program((Opcode.LOAD, LOAD), halt=False) + bytes(64), bytearray(256))
    with pytest.raises(FunctionalError, match="command 1: the program ends without HALT"):
        run((Opcode.LOAD, LOAD), halt=False)


def test_semaphore_overflow():
    with pytest.raises(FunctionalError, match="semaphore 3 exceeds 15"):
        run(*[(Opcode.LOAD, {**LOAD, "signal": 8})] * 16)


def test_race_is_found_in_some_order():
    commands = program(
        (Opcode.LOAD, LOAD),
        (Opcode.LOAD, {**LOAD, "signal": 1}),
        (Opcode.STORE, {**LOAD, "wait": 1, "dram_address": 128}),
        (Opcode.LOAD, LOAD),
    )
    found = set()
    for seed in range(20):
        try:
            interpret(CONFIG, commands, bytearray(256), seed=seed)
        except FunctionalError as error:
            found.add(str(error).split(": ")[1].split(";")[0])
    assert found, "no seed shows the race"
    assert all("while another command" in text for text in found)


def _without(commands, index, kind, semaphore):
    """A program of ``commands``, in which number ``index`` has no ``semaphore`` in its ``kind``."""
    changed = list(commands)
    opcode, fields = changed[index]
    changed[index] = opcode, fields | {kind: fields[kind] & ~(1 << semaphore)}
    return b"".join(encode(opcode, **fields) for opcode, fields in changed)


def test_every_missing_wait_of_a_compiled_program_is_noticed():
    """Mutation test: without any one wait, some order fails or leaves a token behind."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 1))
    config = make_config(
        variant="baseline", preset="tiny", rows=3, columns=2, accumulator_depth=16,
        buffer_banks=2, buffer_bank_depth=64,
    )  # fmt: skip
    shape = (2, 3, 6, 5)
    compiled = compiler.compile(model, config, shape)
    values = torch.randn(2, 6, 5, 3).numpy()
    unwritten = [(tensor.offset, tensor.size) for tensor in compiled.outputs]
    good = compiled.memory(values)
    interpret(config, compiled.commands, good, unwritten=unwritten)
    waits = [
        (index, number)
        for index, (_, fields) in enumerate(compiled.command_list)
        for number in range(16)
        if fields["wait"] >> number & 1
    ]
    assert len(waits) > 20
    for index, number in waits[:: max(1, len(waits) // 12)]:
        commands = _without(compiled.command_list, index, "wait", number)
        memory = compiled.memory(values)
        try:
            result = interpret(config, commands, memory, unwritten=unwritten)
        except FunctionalError:
            continue
        assert result.semaphores, f"wait of command {index} for semaphore {number} is not needed"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (vector(CONFIG, steps=3, o_address=1), "reads word 0x1 of memory 0, another one writes it"),
        (vector(CONFIG, steps=3, o_i0_stride=0), "reads word 0x0 of memory 0"),
        (vector(CONFIG, x_address=4), "memory 0 entry 0x20 byte 0 is read but was never"),
        (vector(CONFIG, o_address=2048), "memory 0 has 2048 words, none at 0x800"),
        (vector(CONFIG, watch=3), "watch must be one of"),
        (vector(CONFIG, reduce=1, add=1), "A reduction sums products"),
        (vector(CONFIG, operation=1, watch=1), "Divisions, roots and exponentials do not watch"),
        (loss(CONFIG, target_address=1, gradient_address=0), "reads and writes word 0x0"),
        (loss(CONFIG, target_address=1, value_address=1), "reads and writes word 0x1"),
        (loss(CONFIG, target_address=1, gradient_address=9), "Labels must be from 0 to 0"),
        (loss(CONFIG, target_address=0, x_address=3, first=0), "begins with a command with first"),
        (loss(CONFIG), "memory 0 entry 0x40 byte 0 is read but was never"),
        (loss(CONFIG, value_address=2048), "memory 0 has 2048 words, none at 0x800"),
    ],
)
def test_bad_vectors_and_losses(command, message):
    """The first four words are there: a label 0 and then 1."""
    memory = bytearray(512)
    memory[256:288] = np.arange(4, dtype="<u8").tobytes()
    load = encode(Opcode.LOAD, **LOAD | {"dram_address": 256, "run_bytes": 32, "signal": 1})
    opcode, fields = decode(command)
    command = encode(opcode, **fields | {"wait": 1})
    with pytest.raises(FunctionalError, match=message):
        interpret(CONFIG, load + command + encode(Opcode.HALT), memory)


def test_lanes_beyond_the_channels_need_not_be_there():
    """POST writes one lane of a word."""
    config = make_config(variant="baseline", preset="tiny", rows=5, columns=3)
    commands = [
        dma(Opcode.LOAD, config, words=1, dram_address=0, signal=1 | 2),
        weights(config, wait=1),
        matmul(config, wait=2, signal=4),
        post(config, out_address=7, wait=4, signal=8),
    ]
    copy = {"wait": 8, "x_address": 7, "o_address": 8}
    good = b"".join([*commands, vector(config, channels=1, **copy), encode(Opcode.HALT)])
    assert interpret(config, good, bytearray(256)).semaphores == {}
    bad = b"".join([*commands, vector(config, channels=2, **copy), encode(Opcode.HALT)])
    with pytest.raises(FunctionalError, match="memory 0 entry 0x48 byte 0 is read but was never"):
        interpret(config, bad, bytearray(256))


def test_loops():
    """Rows of a matrix go to the columns of another, whatever runs ahead."""
    body = [
        (Opcode.LOAD, {**LOAD, "dram_address": 64, "loop3_stride": 16, "loop1_stride": 8,
                       "wait": 2, "signal": 1}),
        (Opcode.STORE, {**LOAD, "dram_address": 128, "loop3_stride": 8, "loop1_stride": 24,
                        "wait": 1, "signal": 2}),
        (Opcode.REPEAT, {"level": 1, "count": 2, "first": 64}),
        (Opcode.REPEAT, {"level": 3, "count": 3, "first": 64}),
    ]  # fmt: skip
    start = (Opcode.LOAD, {**LOAD, "signal": 2})
    for seed in range(5):
        memory = bytearray(range(256))
        result = interpret(CONFIG, program(start, *body), memory, seed=seed)
        assert result.semaphores == {1: 1}
        assert result.commands == 1 + 3 * (2 * 3 + 1) + 1
        for row in range(3):
            for column in range(2):
                at = 128 + 8 * row + 24 * column
                source = 64 + 16 * row + 8 * column
                assert memory[at : at + 8] == bytes(range(source, source + 8)), (seed, row, column)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first": 128}, r"command 1 \(REPEAT\): first 0x80 is no command of the program"),
        ({"first": 32}, r"command 1 \(REPEAT\): first 0x20 is no command of the program"),
        ({"wait": 1}, "command 1: REPEAT has no core and no semaphores"),
        ({"core": 1}, "command 1: REPEAT has no core and no semaphores"),
    ],
)
def test_bad_loops(fields, message):
    values = {"level": 0, "count": 3, "first": 0} | fields
    with pytest.raises(FunctionalError, match=message):
        run((Opcode.LOAD, LOAD), (Opcode.REPEAT, values), halt=False)


def test_loops_that_do_not_run_or_do_not_end():
    once = int.from_bytes(encode(Opcode.REPEAT, level=0, count=1, first=0), "little")
    count = HEADER_LAYOUT.size + command_layout(Opcode.REPEAT)["count"].offset
    body = once ^ 1 << count
    with pytest.raises(FunctionalError, match=r"command 0 \(REPEAT\): count is 0"):
        interpret(CONFIG, body.to_bytes(64, "little"), bytearray(64))
    batch = dict.fromkeys(("bp_even", "bp_odd", "gp_even", "gp_odd"), 0)
    message = r"command 0 \(BATCH\): a loop is not over, its counters are \[0, 0, 1, 0\]"
    loop = BatchLoop(schedule=ScheduleConfig(), batches=1, epoch_batches=1)
    stream = program((Opcode.BATCH, {"first": 1, **batch}), halt=False)
    stream = encode(Opcode.REPEAT, level=2, count=2, first=64) + stream
    with pytest.raises(FunctionalError, match=message.replace("command 0", "command 1")):
        interpret(CONFIG, stream, bytearray(64), loop=loop)
    # HALT ends the run wherever it is.
    stream = encode(Opcode.REPEAT, level=2, count=2, first=64) + encode(Opcode.HALT)
    assert interpret(CONFIG, stream, bytearray(64)).commands == 2


@pytest.mark.parametrize("fields", [{"training": False}, {"operand_format": "int8"}])
def test_engines_that_do_not_exist(fields):
    config = make_config(variant="baseline", preset="tiny", **fields)
    for command in (vector(config), loss(config)):
        with pytest.raises(FunctionalError, match="no such core, engine or semaphore"):
            interpret(config, command, bytearray(64))
