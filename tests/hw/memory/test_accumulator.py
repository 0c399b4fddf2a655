"""The accumulator memory against its model.

Covers: verif/blocks/memory/cocotb_accumulator.py.
"""

import json

import pytest

from hw.config import make_config
from hw.memory.accumulator import AccumulatorMemory
from hw.primitives.shared_module import emit_verilog
from verif.blocks.support import CONFIG_VARIABLE
from verif.sim import runner


@pytest.mark.parametrize(("columns", "depth"), [(1, 16), (3, 37)])
def test_random_traffic(columns, depth, seed):
    config = make_config(
        variant="baseline", preset="tiny", rows=2, columns=columns, accumulator_depth=depth
    )
    text = emit_verilog(AccumulatorMemory(config.cores[0]), name="accumulator")
    result = runner.run(
        runner.build(text, toplevel="accumulator"),
        "verif.blocks.memory.cocotb_accumulator",
        seed=seed,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict())},
    )
    assert len(result.tests) == 4
