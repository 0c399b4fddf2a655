"""hw.engines.loss.engine.LossEngine against golden.layers.loss, bit for bit.

Covers: hw/isa/loss.py, verif/blocks/engines/cocotb_loss.py, verif/blocks/engines/loss_bench.py,
verif/stimulus/loss.py.
"""

import pytest

from golden.arithmetic.float32_unit import constant
from golden.layers import loss as golden_loss
from hw.config import make_config
from hw.engines.loss.engine import LossEngine
from hw.engines.loss.microcode import CONSTANTS, PROGRAM, Register
from tests.hw.conftest import engine_cases, run_engine


# Rows, columns, lanes: rows that are no multiple of the lanes of a float32, one row, square.
@engine_cases(
    ((12, 15, 3), "bf16"),
    long=[
        ((1, 1, 1), "fp8_e5m2"),
        ((8, 10, 2), "fp16"),
        ((4, 4, 4), "fp16"),
        ((5, 3, 1), "bf16"),
        ((6, 4, 2), "fp8_e4m3"),
    ],
)
def test_engine(size, operand_format, seed):
    run_engine(
        LossEngine, "loss", size=size, operand_format=operand_format, seed=seed, LOSS_BATCHES=24
    )


def test_constants():
    """The hardware's own constants are those of golden."""
    for divisor, name in ((9, "NINTH"), (7, "SEVENTH"), (5, "FIFTH"), (3, "THIRD"), (1, "ONE")):
        assert CONSTANTS[Register[name]] == constant(1 / divisor), name
    assert CONSTANTS[Register.LN2_LOW] == golden_loss._LN2_LOW
    assert CONSTANTS[Register.LN2_HIGH] == golden_loss._LN2_HIGH
    assert len(PROGRAM) <= 64


def test_integers_are_refused():
    config = make_config(preset="tiny", variant="baseline", operand_format="int8")
    with pytest.raises(ValueError, match="float format of 8 or 16 bits, not int8"):
        LossEngine(config, config.cores[0])
