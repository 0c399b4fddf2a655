"""Layers as VECTOR commands: golden's engine against golden's layers, bit for bit."""

import numpy as np
import pytest

from golden.formats import BF16, FP8_E5M2, FP16
from golden.vector_command import Carry, Condition, Factor, Operation, Source, Term, Watch
from hw import vector_command
from verif.vector_cases import CASES

#: Rows of the array and shape of the map (N, H, W, C): ragged channels, several words per pixel.
SHAPES = ((4, (2, 6, 5, 4)), (3, (1, 7, 8, 7)), (5, (3, 5, 3, 2)))


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E5M2], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", CASES)
def test_layers(name, fmt, rng):
    for rows, shape in SHAPES:
        case = CASES[name](rng, fmt, rows, shape)
        machine = case.plan.machine(coefficients=case.coefficients, guard=True)
        for command in case.plan.commands:
            machine.run(command)
        for key, (view, bits) in case.expected.items():
            actual = case.plan.read(machine.memory, view)
            bits = np.reshape(bits, view.shape)
            wrong = np.argwhere(actual != bits)
            place = tuple(int(i) for i in wrong[0]) if len(wrong) else ()
            assert not len(wrong), (
                f"{name}, {rows} rows, {shape}: {key}{place} is {int(actual[place]):#x}, expected "
                f"{int(bits[place]):#x}, {len(wrong)} differ"
            )
        assert machine.flags == case.flags, (
            f"{name}, {rows} rows, {shape}: flags {machine.flags:#06b}, expected {case.flags:#06b}"
        )
        assert machine.rejected == case.rejected


def test_codes_are_those_of_the_hardware():
    """Golden has enumerations of its own: it stands alone."""
    for kind in (Operation, Source, Term, Factor, Carry, Condition, Watch):
        other = getattr(vector_command, kind.__name__)
        assert {k.name: int(k) for k in kind} == {k.name: int(k) for k in other}
