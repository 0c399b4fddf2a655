"""golden.commands.vector: what a command does with what is negative.

Other fields are compared with the hardware (tests/hw/engines/test_vector.py) and with the compiled
model (tests/emulator/test_compiled.py).
"""

import numpy as np
import pytest

from golden.arithmetic.dot_product import Flags, encode
from golden.arithmetic.formats import BF16, FLOAT32
from golden.commands.vector import Source, VectorMachine
from hw.isa.encoding import Opcode, with_defaults

ROWS = 6
VALUES = [1.5, -1.5, -0.0, np.nan, -np.inf, -1e-39]


def run(wide, relu, **fields):
    """(results as real numbers, flags) of X, float32 :data:`VALUES`, which are copied."""
    memory = np.zeros((4, ROWS), np.uint16)
    codes = np.array(VALUES, np.float32).view(np.uint32)
    memory[:2] = codes.view(np.uint16).reshape(2, ROWS)
    machine = VectorMachine(fmt=BF16, memory=memory)
    fields = {"x_source": Source.WIDE, "o_address": 2, "wide": wide, "relu": relu} | fields
    machine.run(with_defaults(Opcode.VECTOR, fields))
    if wide:
        return machine.memory[2:].reshape(-1).view(np.uint32), machine.flags
    return machine.memory[2], machine.flags


@pytest.mark.parametrize("wide", [0, 1])
def test_what_is_negative_is_stored_as_zero(wide):
    plain, flags = run(wide, 0)
    codes, same_flags = run(wide, 1)
    fmt = FLOAT32 if wide else BF16
    assert codes.tolist() == encode(fmt, [1.5, 0.0, 0.0, np.nan, 0.0, 0.0]).tolist()
    kept = [0, 3]
    assert codes[kept].tolist() == plain[kept].tolist()
    assert plain[1] == encode(fmt, [-1.5])[0]
    assert flags == same_flags


def test_flags_are_those_of_the_numbers_before():
    """A negative number that is rounded raises them, though +0 is stored."""
    codes, flags = run(0, 1, channels=2, y_source=Source.IMMEDIATE, immediate=0x3F800001, factor=1)
    assert codes[:2].tolist() == encode(BF16, [1.5, 0.0]).tolist()
    assert flags & Flags.INEXACT
