"""Layers between products, from DRAM to DRAM, against golden, bit for bit."""

import pytest

from golden import vector_command as golden
from hw import vector_command
from hw.config import make_config
from verif.interpreter import interpret
from verif.layer_cases import CASES

ARRAYS = {
    "tiny": {},
    "5x3": {"rows": 5, "columns": 3},
    "8x4: two groups": {"rows": 8, "columns": 4},
    "fp8": {"rows": 6, "columns": 4, "operand_format": "fp8_e5m2"},
    "fp16": {"rows": 3, "columns": 6, "operand_format": "fp16"},
}
#: Shapes (N, H, W, C): ragged channels, several words per pixel, one image, one pixel.
SHAPES = ((2, 6, 5, 4), (1, 7, 8, 7), (3, 5, 3, 2))


def config_of(array, **options):
    return make_config(variant="baseline", preset="tiny", **ARRAYS[array], **options)


def run(case, where, seed):
    memory = bytearray(case.image)
    result = interpret(
        case.config, case.program, memory, seed=seed, unwritten=case.unwritten,
        coefficients=case.coefficients, guard=True,
    )  # fmt: skip
    assert not result.semaphores, where
    case.check(bytes(memory), where)
    assert result.flags == case.flags, (
        f"{where}: flags {result.flags:#06b}, expected {case.flags:#06b}"
    )
    assert sum(result.rejected) == case.rejected, where


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", CASES)
def test_interpreter(name, array, rng, seed):
    config = config_of(array)
    for shape in SHAPES:
        run(CASES[name](rng, config, shape), f"{name}, {shape}", seed)


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", CASES)
def test_maps_larger_than_the_buffer(name, array, rng, seed):
    config = config_of(array, buffer_bank_depth=64)
    for shape in ((3, 7, 6, 7), (2, 5, 7, 13)):
        run(CASES[name](rng, config, shape), f"{name}, {shape}", seed)


def test_codes_are_those_of_the_hardware():
    """Golden has enumerations of its own: it stands alone."""
    for name in ("Carry", "Condition", "Factor", "Operation", "Source", "Term", "Watch"):
        codes = [
            {kind.name: int(kind) for kind in getattr(module, name)}
            for module in (golden, vector_command)
        ]
        assert codes[0] == codes[1], name
