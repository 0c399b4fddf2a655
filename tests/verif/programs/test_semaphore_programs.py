"""Programs that take semaphores to their limits, in the interpreter.

On the accelerator they run in the coverage campaign (verif/coverage/stimuli.py).
"""

import pytest

from emulator.interpreter import interpret
from emulator.machine import FunctionalError
from hw.config import make_config
from hw.isa.encoding import decode, queue_opcodes
from verif.programs.faulty_programs import WINDOW
from verif.programs.semaphore_programs import counting_program, overflow_faults

CONFIG = make_config(variant="max", preset="tiny")


def test_counting():
    """Every queue gives all semaphores; they reach their maximum, and are 0 again at the end."""
    commands = counting_program(CONFIG)
    every = (1 << CONFIG.semaphore_count) - 1
    signals = [decode(command)[1]["signal"] for command in commands[:-1]]
    assert signals[-30:] == [every] * 15 + [0] * 15
    queues = {
        (fields["core"], opcode)
        for opcode, fields in map(decode, commands[:-1])
        if fields["signal"] in (every, every >> 1)
    }
    assert queues == {(c.index, opcode) for c in CONFIG.cores for opcode in queue_opcodes(c)}
    assert not interpret(CONFIG, b"".join(commands), bytearray(WINDOW)).semaphores


def test_one_too_many():
    faults = overflow_faults(CONFIG)
    assert [fault.address for fault in faults] == list(range(CONFIG.semaphore_count))
    for fault in (faults[0], faults[-1]):
        with pytest.raises(FunctionalError, match=f"semaphore {fault.address} "):
            interpret(CONFIG, fault.bytes, bytearray(WINDOW))
