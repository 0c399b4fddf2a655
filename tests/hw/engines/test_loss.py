"""hw.engines.loss.engine.LossEngine against golden.layers.loss, bit for bit.

Covers: hw/isa/loss.py, verif/blocks/engines/cocotb_loss.py, verif/blocks/engines/loss_bench.py,
verif/stimulus/loss.py.
"""

import pytest

from golden.arithmetic.float32_unit import constant
from golden.layers import loss as golden_loss
from hw.config import make_config
from hw.engines.loss.engine import LossEngine
from hw.engines.loss.microcode import CONSTANTS, Constant
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


@pytest.mark.long
def test_throughput(seed):
    """12 cycles per logit at most; the figures are in the run's log."""
    result = run_engine(
        LossEngine,
        "loss",
        size=(12, 15, 3),
        operand_format="bf16",
        seed=seed,
        testcase="throughput",
        LOSS_THROUGHPUT=1,
    )
    print("\n".join(line for line in result.log.splitlines() if " per logit" in line))


def test_constants():
    """The hardware's own constants are those of golden."""
    for divisor, name in ((9, "NINTH"), (7, "SEVENTH"), (5, "FIFTH"), (3, "THIRD"), (1, "ONE")):
        assert CONSTANTS[Constant[name]] == constant(1 / divisor), name
    assert CONSTANTS[Constant.LN2_LOW] == golden_loss._LN2_LOW
    assert CONSTANTS[Constant.LN2_HIGH] == golden_loss._LN2_HIGH


def test_integers_are_refused():
    config = make_config(preset="tiny", variant="baseline", operand_format="int8")
    with pytest.raises(ValueError, match="float format of 8 or 16 bits, not int8"):
        LossEngine(config, config.cores[0])
