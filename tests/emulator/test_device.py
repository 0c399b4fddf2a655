"""The emulator as a device, and programs executed in order.

Covers: emulator/executor.py, emulator/program.py.
"""

import numpy as np
import pytest

from emulator.batch_loop import PHASES, BatchLoop, scheduled_phase
from emulator.device import EmulatorDevice
from emulator.interpreter import interpret
from emulator.memory import FunctionalError
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import Opcode, encode
from hw.registers.host import start_values
from hw.registers.map import register_map
from verif.programs.batch_programs import PARTS, BatchProgram
from verif.programs.repeat_programs import repeat_program

CONFIG = make_config(variant="max", preset="tiny")
BASE = 0x2000
PROGRAM = BatchProgram(config=CONFIG)
SCHEDULE = ScheduleConfig(
    warm_up=1, ladder=(Stage(gp=2, bp=1, epochs=2), Stage(gp=1, bp=2, epochs=1))
)
LOOP = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)


def start(device, *, size, program, program_size, **registers):
    values = start_values(
        register_map(CONFIG), base=BASE, size=size, program=program, program_size=program_size
    )
    for name, value in {**registers, **values}.items():
        device.write(name, value)


def status(found):
    fields = register_map(CONFIG)["STATUS"].fields
    return {field.name for field in fields if found["STATUS"] & field.mask}


def test_loops(seed):
    """Random programs with REPEAT leave what the interpreter leaves."""
    program = repeat_program(CONFIG, 0, seed)
    device = EmulatorDevice(CONFIG, 1 << 20)
    device.put(BASE, program.image)
    start(device, size=len(program.image), program=0, program_size=len(program.program))
    assert status(device.wait()) == {"DONE"}
    expected = bytearray(program.image)
    interpret(CONFIG, program.program, expected)
    actual = np.frombuffer(device.get(BASE, len(expected)), np.uint8)
    np.testing.assert_array_equal(actual, np.frombuffer(expected, np.uint8))
    assert expected != program.image


@pytest.mark.parametrize("lowered", [None, 7])
def test_batches(lowered):
    """Phases and parities are those of the schedule; the host may lower the number of batches."""
    commands, device = PROGRAM.commands(), EmulatorDevice(CONFIG, 1 << 20)
    expected = bytearray(PROGRAM.image(commands))
    device.put(BASE, bytes(expected))
    phases = LOOP.phases()
    for number in range(lowered or LOOP.batches):
        for offset, data in PROGRAM.changes(number):
            device.put(BASE + offset, data)
            expected[offset : offset + len(data)] = data
        device.write("BATCHES_READY", number + 1)
        if not number:
            start(device, size=PROGRAM.size, program=PROGRAM.program,
                  program_size=len(commands), **LOOP.registers())  # fmt: skip
        found = device.wait()
        PROGRAM.after(expected, phases[number], number)
        assert device.get(BASE, PROGRAM.size) == bytes(expected), f"batch {number}"
        assert PHASES[scheduled_phase({**found, **_before(found)})] is phases[number]
        assert found["BATCHES_DONE"] == number + 1
        after = LOOP.after(number + 1)
        assert (found["EPOCH"], found["EPOCH_BATCH"]) == (after.epoch, after.epoch_batch)
        assert status(found) == ({"DONE"} if number + 1 == LOOP.batches else {"BUSY"})
    if lowered:
        with pytest.raises(ValueError, match="EPOCH is locked while a program runs"):
            device.write("EPOCH", 0)
        with pytest.raises(TimeoutError, match="waits for batch 7: BATCHES_READY is 7"):
            device.wait()
        device.write("COEFFICIENT3", 5)
        device.write("BATCHES_READY", 8)
        with pytest.raises(ValueError, match="COEFFICIENT3 is locked .* does not wait for a batch"):
            device.write("COEFFICIENT3", 6)
        device.write("BATCHES_READY", 7)
        device.write("BATCHES", lowered)
        assert status(device.wait()) == {"DONE"}
    with pytest.raises(TimeoutError, match="no program runs"):
        device.wait()


def _before(found):
    """EPOCH and EPOCH_BATCH of the batch that has just ended."""
    place = found["EPOCH"] * LOOP.epoch_batches + found["EPOCH_BATCH"] - 1
    epoch, batch = divmod(place, LOOP.epoch_batches)
    return {"EPOCH": epoch, "EPOCH_BATCH": batch}


def test_phases_are_the_schedules(seed):
    """Against golden's schedule, for random ones and every batch of the first epochs."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        stages = [Stage(gp=int(rng.integers(5)), bp=int(rng.integers(1, 4)),
                        epochs=int(rng.integers(1, 4))) for _ in range(4)]  # fmt: skip
        schedule = ScheduleConfig(warm_up=int(rng.integers(3)), ladder=tuple(stages))
        loop = BatchLoop(schedule=schedule, batches=60, epoch_batches=int(rng.integers(1, 9)))
        registers = loop.registers()
        for number, phase in enumerate(loop.phases()):
            place = loop.after(number)
            now = {**registers, "EPOCH": place.epoch, "EPOCH_BATCH": place.epoch_batch}
            assert PHASES[scheduled_phase(now)] is phase, (loop, number)


def test_stop_and_reset():
    commands, device = PROGRAM.commands(), EmulatorDevice(CONFIG, 1 << 20)
    device.put(BASE, PROGRAM.image(commands))
    options = {"size": PROGRAM.size, "program": PROGRAM.program, "program_size": len(commands)}
    device.write("BATCHES_READY", 1)
    start(device, **options, **LOOP.registers())
    device.wait()
    with pytest.raises(ValueError, match="START is refused while a program runs"):
        device.write("CONTROL", 1)
    device.write("CONTROL", 2)
    assert status(device.wait()) == {"DONE", "STOPPED"}
    memory = device.get(BASE, PROGRAM.size)
    device.reset()
    assert device.get(BASE, PROGRAM.size) == memory
    start(device, **options, **{**LOOP.registers(), "BATCHES": 0})
    assert status(device.wait()) == {"DONE"}
    with pytest.raises(ValueError, match="20 bytes at 0xffff0 are outside of the memory"):
        device.get((1 << 20) - 16, 20)


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ([], r"command 0: the program ends without HALT"),
        ([(Opcode.REPEAT, {"level": 0, "count": 2, "first": 64})], "REPEAT.: first 0x40 is no"),
        ([(Opcode.BATCH, {"first": 0, **dict.fromkeys(PARTS, 100)})], "BATCH.: bp_even 0x64 is no"),
        ([(Opcode.LOAD, {"buffer_address": 0, "dram_address": 1 << 20, "run_bytes": 8,
                         "run_count": 1, "run_stride": 0, "row_bytes": 8})], "LOAD.: .*none at"),
    ],
)  # fmt: skip
def test_wrong_programs(commands, message):
    code = b"".join(encode(opcode, **fields) for opcode, fields in commands)
    device = EmulatorDevice(CONFIG, 1 << 20)
    device.put(BASE, code)
    start(device, size=4096, program=0, program_size=len(code), BATCHES=1)
    with pytest.raises((FunctionalError, TimeoutError), match=message):
        device.wait()
